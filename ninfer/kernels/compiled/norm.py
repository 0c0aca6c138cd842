"""Root-mean-square normalisation of a few rows. Reference: `kernels.rms_norm.RmsNorm`."""

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import float32_at, load_float, load_int
from ninfer.kernels.compiled.header import NUM_ROWS


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def mean_square(values: np.ndarray) -> np.float32:
    """Return the mean of the squares of a float32 vector."""
    total = np.float32(0)
    for i in range(len(values)):
        total += values[i] * values[i]
    return total / np.float32(len(values))


def norm(op: int, header: int, thread: int, num_threads: int) -> None:
    """Normalise rows; to be compiled.

    Numbers: 1 address of x, float32; 2 bytes from row to row; 3 address of y, float32; 4 bytes from row to row;
    5 address of the weight, float32; 6 width; 7 eps, a float; 8 bytes from thread to thread in y: not zero for all rows in
    each thread's own y.
    """
    num_rows, width = load_int(header, NUM_ROWS), load_int(op, 6)
    weight = carray(float32_at(load_int(op, 5)), (width,))
    eps = np.float32(load_float(op, 7))
    first, end = num_rows * thread // num_threads, num_rows * (thread + 1) // num_threads
    own = load_int(op, 8)
    if own:
        first, end = 0, num_rows
    for row in range(first, end):
        x = carray(float32_at(load_int(op, 1) + row * load_int(op, 2)), (width,))
        y = carray(float32_at(load_int(op, 3) + thread * own + row * load_int(op, 4)), (width,))
        factor = np.float32(1) / np.sqrt(mean_square(x) + eps)
        for i in range(width):
            y[i] = x[i] * factor * weight[i]
