"""The numbers that operations of a step share, by place. Knows nothing about who fills them in.

An operation is called as `operation(op, header, thread, num_threads)`: the addresses of its own row of numbers and of
the header, and which share of the work is wanted. All threads call it. After an operation that says so (`WAITS`) they
wait for each other. Waiting is what costs: a thread that another process interrupts holds up all. So operations that need
nothing but what the same thread just computed do without, and small ones are done by every thread for itself, in a
buffer of its own.
"""

from typing import Final

import numpy as np

NUM_ROWS: Final = 0
"""Rows of the step."""
KV: Final = 1
"""Address of the KV pool, bf16 `[num_layers, 2, num_slots, num_kv_heads, head_dim]`."""
NUM_SLOTS: Final = 2
ROTATION: Final = 3
"""Address of float32 `[num_rows, rotated_dim / 2, 2]`, cosine and sine."""
PAGES: Final = 4
"""Address of int64 page numbers of all lanes."""
ROWS: Final = 5
"""Address of int64 `[num_rows, 4]`: position, first position looked at, where the lane's pages begin, first part."""
PARTS: Final = 6
"""Address of int64 `[num_parts, 2]`: row, number of the part within the context."""
NUM_PARTS: Final = 7
PARTIAL: Final = 8
"""Address of float32 `[num_parts, num_heads, head_dim + 2]`: weighted sum of values, largest score, sum of weights."""
SCORES: Final = 9
"""Address of float32 `[num_threads, num_heads / num_kv_heads, PART_TOKENS]`."""
LANES: Final = 10
"""Address of int64 `[num_layers, num_lanes, attend_parts.HEADER_SIZE]`: what attention in matrix tiles reads."""
NUM_LANES: Final = 11
SIZE: Final = 12

POSITION: Final = 0
CONTEXT_START: Final = 1
FIRST_PAGE: Final = 2
FIRST_PART: Final = 3
ROW_SIZE: Final = 4

PART_TOKENS: Final = 128
"""Tokens of one part of a context. Parts begin at multiples of it, so that a row's parts do not depend on other rows."""

OP_SIZE: Final = 16
"""Numbers of one operation; the first is the address of its function."""
WAITS: Final = OP_SIZE - 1
"""Place of a one where threads wait for each other after the operation, else zero."""


def bits_of(number: float) -> int:
    """Return what stands for a float among the numbers; `address.load_float` reads it."""
    return int(np.float64(number).view(np.int64))
