"""Carries out one operation after another, on all threads of a team. Knows nothing about operations."""

from numba import types

from ninfer.kernels.compiled.address import (
    address_of,
    call_for_int,
    call_for_nothing,
    call_op,
    load_int,
)
from ninfer.kernels.compiled.header import OP_SIZE, WAITS

THREAD_NUMBER = 0
NUM_THREADS = 1
BARRIER = 2
NUM_OPS = 3
OPS = 4
HEADER = 5
WALK_SIZE = 6


def walk(pointer: types.voidptr) -> None:
    """Call all operations; every thread of the team runs this. To be compiled.

    Args:
        pointer: to six int64: address of the addresses of two functions, which tell the thread's number and how many there
            are; number of threads the work is cut for; address of the function that waits for the others; number of
            operations; their address; address of the header.
    """
    table = address_of(pointer)
    num_threads, first, step = load_int(table, NUM_THREADS), 0, 1
    if num_threads > 1:
        functions = load_int(table, THREAD_NUMBER)
        first, step = call_for_int(load_int(functions, 0)), call_for_int(load_int(functions, 1))
    header = load_int(table, HEADER)
    for number in range(load_int(table, NUM_OPS)):
        op = load_int(table, OPS) + number * OP_SIZE * 8
        # A thread does the shares of those that were not started too, always the same ones.
        for thread in range(first, num_threads, step):
            call_op(load_int(op, 0), op, header, thread, num_threads)
        if num_threads > 1 and load_int(op, WAITS):
            call_for_nothing(load_int(table, BARRIER))
