"""Root-mean-square normalisation of many rows, after something was added to them. Reference: `kernels.rms_norm.RmsNorm`.

Rows are read once and written once: what is added and the result may be bf16, which products give and take.
"""

from typing import Final

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import (
    bf16_of_float,
    float32_at,
    float_of_bf16,
    load_float,
    load_int,
    uint16_at,
)
from ninfer.kernels.compiled.norm import mean_square

NUM_ROWS: Final = 0
WIDTH: Final = 1
X: Final = 2
"""Address of float32 rows, contiguous."""
ADDED: Final = 3
"""Address of rows that are added to x, contiguous; zero for none."""
ADDED_BYTES: Final = 4
"""Of an element: 2 for bf16, 4 for float32."""
WEIGHT: Final = 5
"""Address of float32 `[width]`."""
EPS: Final = 6
"""A float."""
Y: Final = 7
"""Address of the result's rows, contiguous."""
Y_BYTES: Final = 8
"""Of an element, as `ADDED_BYTES`."""
HEADER_SIZE: Final = 9

_BF16_BYTES: Final = 2


def norm_rows(_op: int, header: int, thread: int, num_threads: int) -> None:
    """Add and normalise; to be compiled. Each thread does its share of the rows."""
    num_rows, width = load_int(header, NUM_ROWS), load_int(header, WIDTH)
    added, added_bytes = load_int(header, ADDED), load_int(header, ADDED_BYTES)
    y_bytes = load_int(header, Y_BYTES)
    weight = carray(float32_at(load_int(header, WEIGHT)), (width,))
    eps = np.float32(load_float(header, EPS))
    for row in range(num_rows * thread // num_threads, num_rows * (thread + 1) // num_threads):
        x = carray(float32_at(load_int(header, X) + row * width * 4), (width,))
        if added:
            _add(x, added + row * width * added_bytes, added_bytes)
        factor = np.float32(1) / np.sqrt(mean_square(x) + eps)
        _store(x, factor, weight, load_int(header, Y) + row * width * y_bytes, y_bytes)


@njit(error_model="numpy")
def _add(x: np.ndarray, address: int, element_bytes: int) -> None:
    if element_bytes == _BF16_BYTES:
        rounded = carray(uint16_at(address), (len(x),))
        for i in range(len(x)):
            x[i] += float_of_bf16(rounded[i])
    else:
        exact = carray(float32_at(address), (len(x),))
        for i in range(len(x)):
            x[i] += exact[i]


@njit(error_model="numpy")
def _store(
    x: np.ndarray, factor: np.float32, weight: np.ndarray, address: int, element_bytes: int
) -> None:
    if element_bytes == _BF16_BYTES:
        rounded = carray(uint16_at(address), (len(x),))
        for i in range(len(x)):
            rounded[i] = bf16_of_float(x[i] * factor * weight[i])
    else:
        exact = carray(float32_at(address), (len(x),))
        for i in range(len(x)):
            exact[i] = x[i] * factor * weight[i]
