"""Puts the parts of a row's attention together. Reference: `kernels.reference_attention`."""

import numpy as np
from numba import carray

from ninfer.kernels.compiled.address import float32_at, load_int
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.header import (
    CONTEXT_START,
    FIRST_PART,
    NUM_ROWS,
    PART_TOKENS,
    PARTIAL,
    POSITION,
    ROW_SIZE,
    ROWS,
)


def merge(op: int, header: int, thread: int, _num_threads: int) -> None:
    """Merge the parts of all rows and heads; to be compiled.

    Numbers: 1 address of the attended heads, float32; 2 bytes from row to row; 3 query heads; 4 elements of a head;
    5 bytes from thread to thread: every thread merges all for itself; 6 address of gates, float32, 0 for none; 7 bytes from
    row to row.
    """
    num_heads, head_dim = load_int(op, 3), load_int(op, 4)
    num_tasks = load_int(header, NUM_ROWS) * num_heads
    base = load_int(op, 1) + thread * load_int(op, 5)
    for task in range(num_tasks):
        row, head = task // num_heads, task % num_heads
        facts = load_int(header, ROWS) + row * ROW_SIZE * 8
        start, position = load_int(facts, CONTEXT_START), load_int(facts, POSITION)
        num_parts = position // PART_TOKENS - start // PART_TOKENS + 1
        size = head_dim + 2
        first = load_int(header, PARTIAL) + load_int(facts, FIRST_PART) * num_heads * size * 4
        parts = carray(float32_at(first), (num_parts, num_heads, size))
        address = base + row * load_int(op, 2) + head * head_dim * 4
        output = carray(float32_at(address), (head_dim,))
        largest = parts[0, head, head_dim]
        for part in range(1, num_parts):
            largest = max(largest, parts[part, head, head_dim])
        total = np.float32(0)
        for i in range(head_dim):
            output[i] = np.float32(0)
        for part in range(num_parts):
            weight = exponential(parts[part, head, head_dim] - largest)
            total += weight * parts[part, head, head_dim + 1]
            for i in range(head_dim):
                output[i] += weight * parts[part, head, i]
        for i in range(head_dim):
            output[i] /= total
        if load_int(op, 6):
            address = load_int(op, 6) + row * load_int(op, 7) + head * head_dim * 4
            gates = carray(float32_at(address), (head_dim,))
            for i in range(head_dim):
                output[i] /= np.float32(1) + exponential(-gates[i])
