"""Few rows of several lanes attend in matrix tiles, as operations of a step. Each lane as `attend_parts` does it."""

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import float32_at, float_of_bf16, load_int, uint16_at
from ninfer.kernels.compiled.attend_parts import HEADER_SIZE, attend_lane, merge_lane
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.header import LANES, NUM_LANES, NUM_ROWS


def attend_lanes(op: int, header: int, thread: int, _num_threads: int) -> None:
    """Attend to parts of the keys of all lanes; to be compiled. Numbers: 1 layer of the pool."""
    for lane in range(load_int(header, NUM_LANES)):
        attend_lane(_lane(op, header, lane), thread)


def merge_lanes(op: int, header: int, thread: int, num_threads: int) -> None:
    """Put the parts of all lanes together; to be compiled. Numbers: 1 layer of the pool."""
    for lane in range(load_int(header, NUM_LANES)):
        merge_lane(_lane(op, header, lane), thread, num_threads)


def widen(op: int, header: int, thread: int, _num_threads: int) -> None:
    """Turn bf16 rows into float32 ones, and multiply them with the sigmoid of gates; to be compiled.

    Numbers: 1 address of x, bf16; 2 bytes from row to row; 3 address of y, float32; 4 bytes from row to row; 5 bytes from
    thread to thread: every thread does all for itself; 6 width; 7 address of gates, float32, zero for none; 8 bytes from
    row to row.
    """
    width = load_int(op, 6)
    for row in range(load_int(header, NUM_ROWS)):
        x = carray(uint16_at(load_int(op, 1) + row * load_int(op, 2)), (width,))
        at = load_int(op, 3) + thread * load_int(op, 5) + row * load_int(op, 4)
        y = carray(float32_at(at), (width,))
        for i in range(width):
            y[i] = float_of_bf16(x[i])
        if load_int(op, 7):
            gates = carray(float32_at(load_int(op, 7) + row * load_int(op, 8)), (width,))
            for i in range(width):
                y[i] /= np.float32(1) + exponential(-gates[i])


@njit(error_model="numpy")
def _lane(op: int, header: int, lane: int) -> int:
    """Return the address of a lane's header in the operation's layer."""
    number = load_int(op, 1) * load_int(header, NUM_LANES) + lane
    address: int = load_int(header, LANES) + number * HEADER_SIZE * 8
    return address
