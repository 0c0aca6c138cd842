"""The gated activation of many rows, bf16 to bf16, float32 in between. Reference: `kernels.silu_mul.silu_mul`."""

from typing import Final

import numpy as np
from numba import carray

from ninfer.kernels.compiled.address import bf16_of_float, float_of_bf16, load_int, uint16_at
from ninfer.kernels.compiled.exponential import exponential

NUM_ROWS: Final = 0
WIDTH: Final = 1
"""Of the result."""
X: Final = 2
"""Address of bf16 rows, contiguous: gates, then ups."""
Y: Final = 3
"""Address of bf16 rows, contiguous."""
HEADER_SIZE: Final = 4

_ONE: Final = np.float32(1)


def activation_rows(_op: int, header: int, thread: int, num_threads: int) -> None:
    """Compute `silu(gate) * up`; to be compiled. Each thread does its share of the rows."""
    num_rows, width = load_int(header, NUM_ROWS), load_int(header, WIDTH)
    for row in range(num_rows * thread // num_threads, num_rows * (thread + 1) // num_threads):
        both = load_int(header, X) + row * width * 4
        gates = carray(uint16_at(both), (width,))
        ups = carray(uint16_at(both + 2 * width), (width,))
        y = carray(uint16_at(load_int(header, Y) + row * width * 2), (width,))
        for i in range(width):
            gate = float_of_bf16(gates[i])
            y[i] = bf16_of_float(gate / (_ONE + exponential(-gate)) * float_of_bf16(ups[i]))
