"""Normalise and rotate the bf16 heads of many rows where they are. Reference: `kernels.rope`, `kernels.rms_norm`.

A pair of elements that is rotated is one number of 32 bits, so that a vector of pairs needs no exchange of neighbours.
"""

from typing import Final

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import (
    bf16_of_float,
    float32_at,
    float_of_bits,
    int32_at,
    load_float,
    load_int,
)

NUM_ROWS: Final = 0
NUM_HEADS: Final = 1
HEAD_DIM: Final = 2
HEADS: Final = 3
"""Address of bf16 rows of heads; heads of a row lie beside each other."""
STRIDE: Final = 4
"""Bytes from row to row."""
ROTATED_DIM: Final = 5
"""Leading elements of a head that are rotated, even."""
ROTATION: Final = 6
"""Address of float32 `[num_rows, rotated_dim / 2, 2]`, cosine and sine."""
WEIGHT: Final = 7
"""Address of the norm's weight, float32 `[num_heads, head_dim]`; zero for no norm."""
EPS: Final = 8
"""A float."""
SCRATCH: Final = 9
"""Address of float32 `[num_threads, head_dim]`."""
HEADER_SIZE: Final = 10


def rotation_rows(_op: int, header: int, thread: int, num_threads: int) -> None:
    """Normalise and rotate; to be compiled. Each thread does its share of the rows."""
    num_rows, num_heads = load_int(header, NUM_ROWS), load_int(header, NUM_HEADS)
    head_dim, num_rotated = load_int(header, HEAD_DIM), load_int(header, ROTATED_DIM) // 2
    weights = load_int(header, WEIGHT)
    eps = np.float32(load_float(header, EPS))
    scratch = load_int(header, SCRATCH) + thread * head_dim * 4
    # Pairs that are not rotated are rotated by nothing.
    cosines = carray(float32_at(scratch), (head_dim // 2,))
    sines = carray(float32_at(scratch + head_dim * 2), (head_dim // 2,))
    cosines[:] = np.float32(1)
    sines[:] = np.float32(0)
    for row in range(num_rows * thread // num_threads, num_rows * (thread + 1) // num_threads):
        angles = carray(
            float32_at(load_int(header, ROTATION) + row * num_rotated * 8), (num_rotated, 2)
        )
        for pair in range(num_rotated):
            cosines[pair], sines[pair] = angles[pair, 0], angles[pair, 1]
        for number in range(num_heads):
            head = load_int(header, HEADS) + row * load_int(header, STRIDE) + number * head_dim * 2
            pairs = carray(int32_at(head), (head_dim // 2,))
            if weights:
                weight = carray(float32_at(weights + number * head_dim * 4), (head_dim // 2, 2))
                _normalise_and_rotate(pairs, cosines, sines, weight, eps)
            else:
                _rotate(pairs, cosines, sines)


@njit(error_model="numpy")
def _first(pair: np.int32) -> np.float32:
    """Return the first bf16 of two."""
    first: np.float32 = float_of_bits(pair << np.int32(16))
    return first


@njit(error_model="numpy")
def _second(pair: np.int32) -> np.float32:
    """Return the second bf16 of two."""
    second: np.float32 = float_of_bits(pair & np.int32(-65536))
    return second


@njit(error_model="numpy")
def _rotated(
    first: np.float32, second: np.float32, cosine: np.float32, sine: np.float32
) -> np.int32:
    """Rotate a pair and round it to two bf16."""
    real = np.int32(bf16_of_float(first * cosine - second * sine))
    imaginary = np.int32(bf16_of_float(first * sine + second * cosine))
    return real | imaginary << np.int32(16)


@njit(error_model="numpy")
def _rotate(pairs: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> None:
    for i in range(len(pairs)):
        pairs[i] = _rotated(_first(pairs[i]), _second(pairs[i]), cosines[i], sines[i])


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def _mean_square(pairs: np.ndarray) -> np.float32:
    total = np.float32(0)
    for i in range(len(pairs)):
        total += _first(pairs[i]) * _first(pairs[i]) + _second(pairs[i]) * _second(pairs[i])
    return total / np.float32(2 * len(pairs))


@njit(error_model="numpy")
def _normalise_and_rotate(
    pairs: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    weight: np.ndarray,
    eps: np.float32,
) -> None:
    factor = np.float32(1) / np.sqrt(_mean_square(pairs) + eps)
    for i in range(len(pairs)):
        first = _first(pairs[i]) * factor * weight[i, 0]
        second = _second(pairs[i]) * factor * weight[i, 1]
        pairs[i] = _rotated(first, second, cosines[i], sines[i])
