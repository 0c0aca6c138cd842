"""Attention of single rows over parts of their contexts, in place in the pages. Reference: `kernels.reference_attention`."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import carray, njit

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.address import (
    float32_at,
    float_of_bf16,
    load_float,
    load_int,
    uint16_at,
)
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.header import (
    CONTEXT_START,
    FIRST_PAGE,
    KV,
    NUM_PARTS,
    NUM_SLOTS,
    PAGES,
    PART_TOKENS,
    PARTIAL,
    PARTS,
    POSITION,
    ROW_SIZE,
    ROWS,
    SCORES,
)


@njit(error_model="numpy")
def _weigh(scores: np.ndarray, count: int, result: np.ndarray, head_dim: int) -> None:
    """Turn scores into weights `exp(score - largest)`; note the largest score and the sum of the weights."""
    largest = scores[0]
    for i in range(1, count):
        largest = max(largest, scores[i])
    total = np.float32(0)
    for i in range(count):
        scores[i] = exponential(scores[i] - largest)
    for i in range(count):
        total += scores[i]
    result[head_dim] = largest
    result[head_dim + 1] = total


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(query: np.ndarray, key: np.ndarray, head_dim: int) -> np.float32:
    total = np.float32(0)
    for i in range(head_dim):
        total += query[i] * float_of_bf16(key[i])
    return total


@njit(error_model="numpy", fastmath={"contract"})
def _add_weighted(total: np.ndarray, weight: np.float32, value: np.ndarray, head_dim: int) -> None:
    for i in range(head_dim):
        total[i] += weight * float_of_bf16(value[i])


@njit(error_model="numpy")
def _slot(pages: int, token: int) -> int:
    page: int = load_int(pages, token // PAGE_SIZE_TOKENS)
    return page * PAGE_SIZE_TOKENS + token % PAGE_SIZE_TOKENS


@cache
def attend_of(head_dim: int, group: int) -> Callable[[int, int, int, int], None]:
    """Return the operation for heads of a size, and so many query heads to a key head; to be compiled.

    Its numbers: 1 address of the query heads, float32; 2 bytes from row to row; 3 query heads; 4 key heads; 5 layer
    of the pool; 6 scale, a float.
    """

    def attend(op: int, header: int, thread: int, num_threads: int) -> None:
        num_heads, num_kv_heads = load_int(op, 3), load_int(op, 4)
        num_slots = load_int(header, NUM_SLOTS)
        num_tasks = load_int(header, NUM_PARTS) * num_kv_heads
        scale = np.float32(load_float(op, 6))
        slot_bytes = 2 * num_kv_heads * head_dim
        keys = load_int(header, KV) + 2 * load_int(op, 5) * num_slots * slot_bytes
        values = keys + num_slots * slot_bytes
        own = load_int(header, SCORES) + thread * group * PART_TOKENS * 4
        scores = carray(float32_at(own), (group, PART_TOKENS))
        for task in range(
            num_tasks * thread // num_threads, num_tasks * (thread + 1) // num_threads
        ):
            part, kv_head = task // num_kv_heads, task % num_kv_heads
            row = load_int(load_int(header, PARTS), 2 * part)
            facts = load_int(header, ROWS) + row * ROW_SIZE * 8
            number = load_int(load_int(header, PARTS), 2 * part + 1)
            start = max(number * PART_TOKENS, load_int(facts, CONTEXT_START))
            end = min((number + 1) * PART_TOKENS, load_int(facts, POSITION) + 1)
            pages = load_int(header, PAGES) + load_int(facts, FIRST_PAGE) * 8
            first_head = load_int(op, 1) + row * load_int(op, 2) + kv_head * group * head_dim * 4
            queries = carray(float32_at(first_head), (group, head_dim))
            head_bytes = kv_head * head_dim * 2
            for token in range(start, end):
                at = keys + _slot(pages, token) * slot_bytes + head_bytes
                key = carray(uint16_at(at), (head_dim,))
                for member in range(group):
                    scores[member, token - start] = _dot(queries[member], key, head_dim) * scale
            place = (
                load_int(header, PARTIAL)
                + (part * num_heads + kv_head * group) * (head_dim + 2) * 4
            )
            result = carray(float32_at(place), (group, head_dim + 2))
            for member in range(group):
                _weigh(scores[member], end - start, result[member], head_dim)
                result[member, :head_dim] = np.float32(0)
            for token in range(start, end):
                at = values + _slot(pages, token) * slot_bytes + head_bytes
                value = carray(uint16_at(at), (head_dim,))
                for member in range(group):
                    weight = scores[member, token - start]
                    _add_weighted(result[member], weight, value, head_dim)

    return attend
