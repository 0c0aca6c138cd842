"""Normalise and rotate the bf16 heads of many rows where they are. Reference: `kernels.rope`, `kernels.rms_norm`."""

from typing import Final

import numpy as np
from numba import carray

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
    head_dim, num_pairs = load_int(header, HEAD_DIM), load_int(header, ROTATED_DIM) // 2
    weights = load_int(header, WEIGHT)
    eps = np.float32(load_float(header, EPS))
    wide = carray(float32_at(load_int(header, SCRATCH) + thread * head_dim * 4), (head_dim,))
    for row in range(num_rows * thread // num_threads, num_rows * (thread + 1) // num_threads):
        angles = carray(
            float32_at(load_int(header, ROTATION) + row * num_pairs * 8), (num_pairs, 2)
        )
        for number in range(num_heads):
            address = load_int(header, HEADS) + row * load_int(header, STRIDE)
            head = carray(uint16_at(address + number * head_dim * 2), (head_dim,))
            for i in range(head_dim):
                wide[i] = float_of_bf16(head[i])
            if weights:
                weight = carray(float32_at(weights + number * head_dim * 4), (head_dim,))
                factor = np.float32(1) / np.sqrt(mean_square(wide) + eps)
                for i in range(head_dim):
                    wide[i] = wide[i] * factor * weight[i]
            for pair in range(num_pairs):
                real, imaginary = wide[2 * pair], wide[2 * pair + 1]
                cosine, sine = angles[pair, 0], angles[pair, 1]
                wide[2 * pair] = real * cosine - imaginary * sine
                wide[2 * pair + 1] = real * sine + imaginary * cosine
            for i in range(head_dim):
                head[i] = bf16_of_float(wide[i])
