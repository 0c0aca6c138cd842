"""Normalise and rotate heads, and write keys and values into the pool. Reference: `kernels.rope`, `kernels.rms_norm`."""

import numpy as np
from numba import carray, njit

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.address import (
    bf16_of_float,
    float32_at,
    load_float,
    load_int,
    uint16_at,
)
from ninfer.kernels.compiled.header import (
    FIRST_PAGE,
    KV,
    NUM_ROWS,
    NUM_SLOTS,
    PAGES,
    POSITION,
    ROTATION,
    ROW_SIZE,
    ROWS,
)
from ninfer.kernels.compiled.norm import mean_square


@njit(error_model="numpy")
def _rotate(head: np.ndarray, rotation: int, num_pairs: int) -> None:
    """Rotate interleaved pairs by angles given as cosine and sine."""
    angles = carray(float32_at(rotation), (2 * num_pairs,))
    for pair in range(num_pairs):
        real, imaginary = head[2 * pair], head[2 * pair + 1]
        cosine, sine = angles[2 * pair], angles[2 * pair + 1]
        head[2 * pair] = real * cosine - imaginary * sine
        head[2 * pair + 1] = real * sine + imaginary * cosine


@njit(error_model="numpy")
def _round(head: np.ndarray, stored: np.ndarray) -> None:
    for i in range(len(head)):
        stored[i] = bf16_of_float(head[i])


def heads(op: int, header: int, thread: int, num_threads: int) -> None:
    """Prepare heads where they are, and store keys and values; to be compiled.

    Each thread does its share of the heads of all rows.

    Numbers: 1 address of the heads, float32, per row query heads, key heads, value heads; 2 bytes from row to row;
    3 query heads; 4 key heads; 5 elements of a head; 6 elements of a head that are rotated; 7 address of the norm's
    weight, float32 `[query and key heads, elements]`, zero for none; 8 eps, a float; 9 layer of the pool; 10 address of
    bf16 rows that queries are written to as well, zero for none; 11 bytes from row to row.
    """
    num_heads, num_kv_heads, head_dim = load_int(op, 3), load_int(op, 4), load_int(op, 5)
    num_all = num_heads + 2 * num_kv_heads
    first_head = num_all * thread // num_threads
    num_own = num_all * (thread + 1) // num_threads - first_head
    num_tasks = load_int(header, NUM_ROWS) * num_own
    num_pairs = load_int(op, 6) // 2
    eps = np.float32(load_float(op, 8))
    num_slots = load_int(header, NUM_SLOTS)
    slot_size = num_kv_heads * head_dim
    for task in range(num_tasks):
        row, index = task // num_own, first_head + task % num_own
        address = load_int(op, 1) + row * load_int(op, 2) + index * head_dim * 4
        head = carray(float32_at(address), (head_dim,))
        if index < num_heads + num_kv_heads:
            if load_int(op, 7):
                weight = carray(float32_at(load_int(op, 7) + index * head_dim * 4), (head_dim,))
                factor = np.float32(1) / np.sqrt(mean_square(head) + eps)
                for i in range(head_dim):
                    head[i] = head[i] * factor * weight[i]
            _rotate(head, load_int(header, ROTATION) + row * num_pairs * 8, num_pairs)
        if index < num_heads:
            if load_int(op, 10):
                address = load_int(op, 10) + row * load_int(op, 11) + index * head_dim * 2
                _round(head, carray(uint16_at(address), (head_dim,)))
        else:
            position = load_int(load_int(header, ROWS), row * ROW_SIZE + POSITION)
            first_page = load_int(load_int(header, ROWS), row * ROW_SIZE + FIRST_PAGE)
            page = load_int(load_int(header, PAGES), first_page + position // PAGE_SIZE_TOKENS)
            slot = page * PAGE_SIZE_TOKENS + position % PAGE_SIZE_TOKENS
            is_value = index >= num_heads + num_kv_heads
            plane = 2 * load_int(op, 9) + (1 if is_value else 0)
            place = (plane * num_slots + slot) * slot_size + (
                index - num_heads
            ) % num_kv_heads * head_dim
            _round(head, carray(uint16_at(load_int(header, KV) + 2 * place), (head_dim,)))
