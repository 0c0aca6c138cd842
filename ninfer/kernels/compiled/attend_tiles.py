"""Many rows of one lane attend to everything up to themselves, in matrix tiles. Reference: torch's flash attention.

Tiles of 16 queries go over the keys, page by page where they are in the pool; scores never leave the fastest cache. A
vector holds one key's scores of 16 queries. Blocks and parts of keys begin at multiples of their size, parts are put together
in their order, and a query's arithmetic depends on no other query; so where a prompt is cut, and where its pages are,
changes no bit. `attend_parts` gives the same bits.
"""

import math
from typing import Final

import numpy as np
from numba import carray, njit

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.address import (
    float32_at,
    load_float,
    load_int,
    take_number,
    uint16_at,
)
from ninfer.kernels.compiled.softmax_tile import ALL_LANES, fold, hide, raise_shift, soften
from ninfer.kernels.compiled.tile_products import (
    configure_tiles,
    save_tiles,
    score_tiles,
    value_tiles,
)
from ninfer.kernels.compiled.tile_shape import TILE, TILE_BYTES
from ninfer.kernels.compiled.turned import turn_queries, turn_sums, turn_values

QUERIES: Final = 0
"""Address of bf16 rows, head by head."""
QUERY_STRIDE: Final = 1
"""Bytes from row to row."""
NUM_ROWS: Final = 2
FIRST_POSITION: Final = 3
"""Of the first row; the rows' own keys are in the pool."""
CONTEXT_START: Final = 4
"""First position that rows look at."""
NUM_HEADS: Final = 5
NUM_KV_HEADS: Final = 6
HEAD_DIM: Final = 7
KEYS: Final = 8
"""Address of the layer's keys in slot 0, bf16 `[num_slots, num_kv_heads, head_dim]`."""
VALUES: Final = 9
PAGES: Final = 10
"""Address of int64 page numbers, in the order of positions."""
OUTPUT: Final = 11
"""Address of bf16 `[num_rows, num_heads, head_dim]`."""
SCALE: Final = 12
SCRATCH: Final = 13
SCRATCH_BYTES: Final = 14
"""Of one thread."""
CONFIG: Final = 15
"""Address of a tile configuration: all tiles 16 rows of 64 bytes."""
TAKEN: Final = 16
"""Pieces of work that threads have taken; 0 at first."""
HEADER_SIZE: Final = 17

BLOCK_KEYS: Final = 2 * PAGE_SIZE_TOKENS
"""Keys whose scores of 16 queries are in the fastest cache together."""
PART_KEYS: Final = 8 * BLOCK_KEYS
"""Keys that are summed up alone, so that threads can share them out."""
KEYS_STEP: Final = 32
"""Keys of one product of weights and values. Elements of a head are a multiple of it too."""
TILES_TOGETHER: Final = 32
"""Tiles of queries that go through the context together: values are turned over once for all of them. Threads take such pieces
of work as they get on, since one that shares its core with other work takes twice as long (measured)."""
_LOG2_E: Final = 1 / math.log(2)
_LOWEST: Final = np.float32(-3e38)


def scratch_bytes(head_dim: int, group: int) -> int:
    """Return what one thread needs for heads of which `group` share keys."""
    tiles = max(TILES_TOGETHER, group)
    block = BLOCK_KEYS * (4 * TILE + 2 * TILE + 2 * head_dim)
    return 64 + block + tiles * (160 * head_dim + 256) + 2 * TILE * head_dim


def attend_tiles(_op: int, header: int, thread: int, _num_threads: int) -> None:
    """Attend; to be compiled. Threads take pieces of work until none is left."""
    saved = load_int(header, SCRATCH) + thread * load_int(header, SCRATCH_BYTES)
    save_tiles(saved)
    configure_tiles(load_int(header, CONFIG))
    num_kv_heads = load_int(header, NUM_KV_HEADS)
    together = max(1, TILES_TOGETHER * num_kv_heads // load_int(header, NUM_HEADS))
    num_tiles = (load_int(header, NUM_ROWS) + TILE - 1) // TILE
    num_pieces = (num_tiles + together - 1) // together * num_kv_heads
    while True:
        number = take_number(header + TAKEN * 8)
        if number >= num_pieces:
            break
        # Late rows first: they see the most keys.
        piece = num_pieces - 1 - number
        first = piece // num_kv_heads * together
        tiles = (first, min(together, num_tiles - first))
        _attend(header, piece % num_kv_heads, tiles, saved + 64)
    configure_tiles(saved)


@njit(error_model="numpy")
def _attend(header: int, kv_head: int, tiles: tuple[int, int], scratch: int) -> None:
    """Attend some tiles of rows (first, count), all heads that share keys."""
    head_dim = load_int(header, HEAD_DIM)
    group = load_int(header, NUM_HEADS) // load_int(header, NUM_KV_HEADS)
    first, count = tiles
    num_own = count * group
    weights = scratch + BLOCK_KEYS * 4 * TILE
    values = weights + BLOCK_KEYS * 2 * TILE
    packed = values + BLOCK_KEYS * 2 * head_dim
    sums = packed + num_own * 2 * TILE * head_dim
    part_sums = sums + num_own * 4 * TILE * (head_dim + 2)
    rows = part_sums + num_own * 4 * TILE * (head_dim + 2)
    for number in range(num_own):
        head = kv_head * group + number % group
        _pack_queries(header, head, first + number // group, packed + number * 32 * head_dim)
    start = load_int(header, FIRST_POSITION)
    last = min(start + load_int(header, NUM_ROWS), start + (first + count) * TILE)
    blocks = (scratch, weights, values, packed)
    part = load_int(header, CONTEXT_START) // PART_KEYS * PART_KEYS
    _attend_part(header, kv_head, tiles, (part, min(last, part + PART_KEYS)), (*blocks, sums))
    for key in range(part + PART_KEYS, last, PART_KEYS):
        keys = (key, min(last, key + PART_KEYS))
        _attend_part(header, kv_head, tiles, keys, (*blocks, part_sums))
        for number in range(num_own):
            at = number * 4 * TILE * (head_dim + 2)
            facts = at + 4 * TILE * head_dim
            fold(sums + at, sums + facts, part_sums + at, part_sums + facts, head_dim)
    for number in range(num_own):
        tile = first + number // group
        at = sums + number * 4 * TILE * (head_dim + 2)
        _finish(
            header, kv_head * group + number % group, tile, (at, at + 4 * TILE * head_dim, rows)
        )


@njit(error_model="numpy")
def _attend_part(
    header: int,
    kv_head: int,
    tiles: tuple[int, int],
    keys: tuple[int, int],
    places: tuple[int, int, int, int, int],
) -> None:
    """Attend to the keys of one part (first, end); the places are those of scores, weights, values, queries, sums."""
    head_dim, context_start = load_int(header, HEAD_DIM), load_int(header, CONTEXT_START)
    group = load_int(header, NUM_HEADS) // load_int(header, NUM_KV_HEADS)
    first, count = tiles
    scores, weights, values, packed, sums = places
    size = 4 * TILE * (head_dim + 2)
    for number in range(count * group):
        clear(sums + number * size, head_dim)
    start = load_int(header, FIRST_POSITION)
    first_block = max(context_start // BLOCK_KEYS * BLOCK_KEYS, keys[0])
    for key in range(first_block, keys[1], BLOCK_KEYS):
        num_keys = min(BLOCK_KEYS, keys[1] - key)
        pack_values(header, kv_head, (key, num_keys), values)
        for number in range(count * group):
            position = start + (first + number // group) * TILE
            own_keys = min(num_keys, position + TILE - key)
            if own_keys <= 0:
                continue
            own_keys = (own_keys + KEYS_STEP - 1) // KEYS_STEP * KEYS_STEP
            at = sums + number * size
            own = (packed + number * 2 * TILE * head_dim, at, at + 4 * TILE * head_dim)
            score(header, kv_head, (key, own_keys), own[0], scores)
            _hide(scores, (key, own_keys), position, context_start)
            weigh(header, (scores, weights, values), own, own_keys, key == first_block)


@njit(error_model="numpy")
def clear(sums: int, head_dim: int) -> None:
    """Begin a tile's sums: float32 `[head_dim + 2, 16]`, sums, shift, sum of weights."""
    found = carray(float32_at(sums), (head_dim + 2, TILE))
    found[:] = np.float32(0)
    found[head_dim] = _LOWEST


@njit(error_model="numpy")
def _pack_queries(header: int, head: int, tile: int, target: int) -> None:
    """Write 16 queries as tiles B; those beyond the last one are copies of it."""
    head_dim, stride = load_int(header, HEAD_DIM), load_int(header, QUERY_STRIDE)
    row = tile * TILE
    at = load_int(header, QUERIES) + row * stride + head * head_dim * 2
    for dim in range(head_dim // 32):
        last = load_int(header, NUM_ROWS) - 1 - row
        turn_queries(at + dim * 64, stride, last, target + dim * TILE_BYTES)


@njit(error_model="numpy")
def _slot(header: int, position: int) -> int:
    page: int = load_int(load_int(header, PAGES), position // PAGE_SIZE_TOKENS)
    return page * PAGE_SIZE_TOKENS + position % PAGE_SIZE_TOKENS


@njit(error_model="numpy")
def pack_values(header: int, kv_head: int, keys: tuple[int, int], target: int) -> None:
    """Write values of a block as `[keys / 32, head_dim, 32]`; those that nobody looks at are zero."""
    head_dim = load_int(header, HEAD_DIM)
    stride = load_int(header, NUM_KV_HEADS) * head_dim * 2
    key, num_keys = keys
    hidden = load_int(header, CONTEXT_START) - key
    for at in range(0, num_keys, KEYS_STEP):
        rows = load_int(header, VALUES) + _slot(header, key + at) * stride + kv_head * head_dim * 2
        part = target + at * head_dim * 2
        for dim in range(head_dim // 32):
            turn_values(rows + dim * 64, stride, part + dim * 2 * TILE_BYTES)
        packed = carray(uint16_at(part), (head_dim, KEYS_STEP))
        if at < hidden:
            packed[:, : min(KEYS_STEP, hidden - at)] = 0
        if at + KEYS_STEP > num_keys:
            packed[:, num_keys - at :] = 0


@njit(error_model="numpy")
def touch(header: int, heads: tuple[int, int], keys: tuple[int, int]) -> int:
    """Read from every cache line of some keys (first, how many) and their values, heads (first, end).

    Memory is fastest in order, and heads are computed one after the other: a head alone is a part of each row.
    """
    head_bytes = load_int(header, HEAD_DIM) * 2
    stride = load_int(header, NUM_KV_HEADS) * head_bytes
    first, end = heads
    total = 0
    for plane in range(2):
        base = load_int(header, KEYS + plane)
        for at in range(0, keys[1], PAGE_SIZE_TOKENS):
            row = base + _slot(header, keys[0] + at) * stride
            for _ in range(min(PAGE_SIZE_TOKENS, keys[1] - at)):
                for line in range(row + first * head_bytes, row + end * head_bytes, 64):
                    total += load_int(line, 0)
                row += stride
    return total


@njit(error_model="numpy")
def score(header: int, kv_head: int, keys: tuple[int, int], queries: int, scores: int) -> None:
    """Multiply 16 queries with the keys of a block, page by page."""
    head_dim = load_int(header, HEAD_DIM)
    stride = load_int(header, NUM_KV_HEADS) * head_dim * 2
    key, num_keys = keys
    for at in range(0, num_keys, PAGE_SIZE_TOKENS):
        rows = load_int(header, KEYS) + _slot(header, key + at) * stride + kv_head * head_dim * 2
        count = min(PAGE_SIZE_TOKENS, num_keys - at) // KEYS_STEP
        score_tiles(rows, stride, queries, scores + at * 4 * TILE, count, head_dim // 32)


@njit(error_model="numpy")
def _hide(scores: int, keys: tuple[int, int], position: int, context_start: int) -> None:
    """Hide keys after a query, or before all that is looked at. The first query is that of `position`."""
    key, num_keys = keys
    for at in range(min(num_keys, context_start - key)):
        hide(scores + at * 4 * TILE, TILE)
    for at in range(max(0, position + 1 - key), num_keys):
        hide(scores + at * 4 * TILE, key + at - position)


@njit(error_model="numpy")
def weigh(
    header: int,
    block: tuple[int, int, int],
    places: tuple[int, int, int],
    num_keys: int,
    is_first: bool,  # noqa: FBT001 - numba takes no keywords here
) -> None:
    """Turn scores into weights, and add the weighted values."""
    scores, weights, values = block
    _, sums, facts = places
    head_dim = load_int(header, HEAD_DIM)
    scale = np.float32(load_float(header, SCALE) * _LOG2_E)
    large = ALL_LANES if is_first else soften(scores, weights, facts, num_keys // 2, scale)
    if large:
        raise_shift(scores, facts, sums, num_keys // 2, head_dim, scale, large)
        soften(scores, weights, facts, num_keys // 2, scale)
    for dim in range(head_dim // 32):
        part = dim * 2 * TILE_BYTES
        value_tiles(values + part, 64 * head_dim, weights, sums + part, num_keys // KEYS_STEP)


@njit(error_model="numpy")
def _finish(header: int, head: int, tile: int, place: tuple[int, int, int]) -> None:
    head_dim, num_heads = load_int(header, HEAD_DIM), load_int(header, NUM_HEADS)
    sums, facts, rows = place
    for dim in range(0, head_dim, TILE):
        turn_sums(sums + dim * 4 * TILE, facts + 4 * TILE, rows + dim * 2, head_dim * 2)
    own = min(TILE, load_int(header, NUM_ROWS) - tile * TILE)
    found = carray(uint16_at(rows), (TILE, head_dim))
    at = load_int(header, OUTPUT) + tile * TILE * num_heads * head_dim * 2
    output = carray(uint16_at(at), (TILE, num_heads, head_dim))
    output[:own, head] = found[:own]
