"""Many rows attend to one range of KV, all of which lies before them. Reference: torch's flash attention.

Tiles of 16 queries go over the keys; scores never leave the fastest cache. What torch's kernel takes longer for is the
softmax between its products, so here a vector holds one key's scores of 16 queries.
"""

import math
from typing import Final

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import float32_at, load_float, load_int, uint16_at
from ninfer.kernels.compiled.amx import (
    TILE,
    TILE_BYTES,
    load_tile_config,
    score_tiles,
    soften,
    store_tile_config,
    value_tiles,
)

QUERIES: Final = 0
"""Address of bf16 `[num_heads, num_queries, head_dim]`."""
NUM_HEADS: Final = 1
NUM_QUERIES: Final = 2
HEAD_DIM: Final = 3
KEYS: Final = 4
"""Address of the first key, bf16 `[num_keys, num_heads, head_dim]`, keys strided."""
VALUES: Final = 5
STRIDE: Final = 6
"""Bytes from key to key."""
NUM_KEYS: Final = 7
OUTPUT: Final = 8
"""Address of float32 `[num_heads, num_queries, head_dim]`."""
LOG_SUMS: Final = 9
"""Address of float32 `[num_heads, num_queries]`."""
SCALE: Final = 10
SCRATCH: Final = 11
SCRATCH_BYTES: Final = 12
"""Of one thread."""
CONFIG: Final = 13
"""Address of a tile configuration: all tiles 16 rows of 64 bytes."""
HEADER_SIZE: Final = 14

BLOCK_KEYS: Final = 256
"""Keys whose scores of 16 queries are in the fastest cache together."""
MIN_QUERIES: Final = 128
"""Fewer do not pay for turning the values over."""
KEYS_STEP: Final = 32
"""Elements of a head, and the number of keys, are multiples of it."""
_LOG2_E: Final = 1 / math.log(2)
_LOWEST: Final = np.float32(-3e38)


def scratch_bytes(num_queries: int, head_dim: int, num_threads: int) -> int:
    """Return what one thread needs."""
    tiles = -(-num_queries // TILE)
    own = -(-tiles // num_threads)
    return 64 + BLOCK_KEYS * (64 + 32 + 2 * head_dim) + own * (96 * head_dim + 128)


def attend_range(_op: int, header: int, thread: int, num_threads: int) -> None:
    """Attend; to be compiled. Each thread does its share of the queries."""
    num_queries = load_int(header, NUM_QUERIES)
    num_tiles = (num_queries + TILE - 1) // TILE
    first, end = num_tiles * thread // num_threads, num_tiles * (thread + 1) // num_threads
    if first == end:
        return
    saved = load_int(header, SCRATCH) + thread * load_int(header, SCRATCH_BYTES)
    store_tile_config(saved)
    load_tile_config(load_int(header, CONFIG))
    for head in range(load_int(header, NUM_HEADS)):
        _head(header, head, first, end, saved + 64)
    load_tile_config(saved)


@njit(error_model="numpy")
def _head(header: int, head: int, first: int, end: int, scratch: int) -> None:
    head_dim, num_keys = load_int(header, HEAD_DIM), load_int(header, NUM_KEYS)
    stride = load_int(header, STRIDE)
    num_own, dims = end - first, head_dim // 32
    weights = scratch + BLOCK_KEYS * 64
    values = weights + BLOCK_KEYS * 32
    packed = values + BLOCK_KEYS * 2 * head_dim
    sums = packed + num_own * 32 * head_dim
    facts = sums + num_own * 64 * head_dim
    scale = np.float32(load_float(header, SCALE) * _LOG2_E)
    for number in range(num_own):
        _pack_queries(header, head, first + number, packed + number * 32 * head_dim)
    totals = carray(float32_at(sums), (num_own * TILE * head_dim,))
    totals[:] = np.float32(0)
    both = carray(float32_at(facts), (num_own, 2, TILE))
    both[:, 0] = _LOWEST
    both[:, 1] = np.float32(0)
    keys = load_int(header, KEYS) + head * head_dim * 2
    for start in range(0, num_keys, BLOCK_KEYS):
        count = min(BLOCK_KEYS, num_keys - start)
        _pack_values(header, head, start, count, values)
        for number in range(num_own):
            own_sums, own_facts = sums + number * 64 * head_dim, facts + number * 128
            queries = packed + number * 32 * head_dim
            score_tiles(keys + start * stride, stride, queries, scratch, count // KEYS_STEP, dims)
            soften(scratch, weights, own_facts, own_sums, count // 2, head_dim, scale)
            for dim in range(dims):
                value_tiles(
                    values + dim * 2 * TILE_BYTES,
                    64 * head_dim,
                    weights,
                    own_sums + dim * 2 * TILE_BYTES,
                    count // KEYS_STEP,
                )
    for number in range(num_own):
        _finish(header, head, first + number, sums + number * 64 * head_dim, facts + number * 128)


@njit(error_model="numpy")
def _pack_queries(header: int, head: int, tile: int, target: int) -> None:
    """Write 16 queries as tiles B; those beyond the last one are zero."""
    head_dim, num_queries = load_int(header, HEAD_DIM), load_int(header, NUM_QUERIES)
    address = load_int(header, QUERIES) + head * num_queries * head_dim * 2
    queries = carray(uint16_at(address), (num_queries, head_dim))
    packed = carray(uint16_at(target), (head_dim // 2, TILE, 2))
    for row in range(TILE):
        index = tile * TILE + row
        for pair in range(head_dim // 2):
            for part in range(2):
                packed[pair, row, part] = (
                    queries[index, 2 * pair + part] if index < num_queries else np.uint16(0)
                )


@njit(error_model="numpy")
def _pack_values(header: int, head: int, start: int, count: int, target: int) -> None:
    """Write values as `[keys / 32, head_dim, 32]`."""
    head_dim, stride = load_int(header, HEAD_DIM), load_int(header, STRIDE)
    first = load_int(header, VALUES) + head * head_dim * 2 + start * stride
    packed = carray(uint16_at(target), (BLOCK_KEYS // KEYS_STEP, head_dim, KEYS_STEP))
    for key in range(count):
        value = carray(uint16_at(first + key * stride), (head_dim,))
        for dim in range(head_dim):
            packed[key // KEYS_STEP, dim, key % KEYS_STEP] = value[dim]


@njit(error_model="numpy")
def _finish(header: int, head: int, tile: int, sums_at: int, facts_at: int) -> None:
    head_dim, num_queries = load_int(header, HEAD_DIM), load_int(header, NUM_QUERIES)
    sums = carray(float32_at(sums_at), (head_dim, TILE))
    facts = carray(float32_at(facts_at), (2, TILE))
    scale = np.float32(load_float(header, SCALE))
    for row in range(min(TILE, num_queries - tile * TILE)):
        index = head * num_queries + tile * TILE + row
        output = carray(float32_at(load_int(header, OUTPUT) + index * head_dim * 4), (head_dim,))
        total = facts[1, row]
        for dim in range(head_dim):
            output[dim] = sums[dim, row] / total
        log_sum = carray(float32_at(load_int(header, LOG_SUMS) + index * 4), (1,))
        log_sum[0] = facts[0, row] * scale + np.float32(math.log(total))
