"""The gated activation of a feed-forward block. Reference: `kernels.silu_mul.silu_mul`."""

import numpy as np
from numba import carray

from ninfer.kernels.compiled.address import float32_at, load_int
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.header import NUM_ROWS
from ninfer.kernels.compiled.panels import PANEL


def activation(op: int, header: int, thread: int, num_threads: int) -> None:
    """Compute `silu(gate) * up`; to be compiled.

    Each thread does its share of the panels of all rows.

    Numbers: 1 address of the rows, float32, gates, then ups; 2 bytes from row to row; 3 address of y, float32; 4 bytes
    from row to row; 5 width of y.
    """
    width = load_int(op, 5)
    num_panels = (width + PANEL - 1) // PANEL
    first = num_panels * thread // num_threads * PANEL
    end = min(width, num_panels * (thread + 1) // num_threads * PANEL)
    for row in range(load_int(header, NUM_ROWS)):
        both = load_int(op, 1) + row * load_int(op, 2)
        gate = carray(float32_at(both), (width,))
        up = carray(float32_at(both + 4 * width), (width,))
        y = carray(float32_at(load_int(op, 3) + row * load_int(op, 4)), (width,))
        for i in range(first, end):
            y[i] = gate[i] / (np.float32(1) + exponential(-gate[i])) * up[i]
