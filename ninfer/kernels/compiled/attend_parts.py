"""Few rows of one lane attend to a long context in matrix tiles, its keys shared out among threads.

As `attend_tiles`, but the columns of a tile are the heads of a row that share keys, then those of the next row, and a piece
of work is a part of the keys and some heads of keys. The bits are those of `attend_tiles`. Values are finite: one that is not
reaches the rows before it too, with weight zero.
"""

from typing import Final

from numba import carray, njit

from ninfer.kernels.compiled.address import int64_at, load_int, take_number, uint16_at
from ninfer.kernels.compiled.attend_tiles import (
    BLOCK_KEYS,
    CONFIG,
    CONTEXT_START,
    FIRST_POSITION,
    HEAD_DIM,
    KEYS_STEP,
    NUM_HEADS,
    NUM_KV_HEADS,
    NUM_ROWS,
    OUTPUT,
    PART_KEYS,
    QUERIES,
    QUERY_STRIDE,
    SCRATCH,
    SCRATCH_BYTES,
    TAKEN,
    clear,
    pack_values,
    score,
    touch,
    weigh,
)
from ninfer.kernels.compiled.attend_tiles import HEADER_SIZE as _COMMON_SIZE
from ninfer.kernels.compiled.softmax_tile import fold, hide
from ninfer.kernels.compiled.tile_products import configure_tiles, save_tiles
from ninfer.kernels.compiled.tile_shape import TILE
from ninfer.kernels.compiled.turned import turn_queries, turn_sums

PARTIAL: Final = _COMMON_SIZE
"""Address of what parts gave: float32 `[parts, num_kv_heads, tiles, head_dim + 2, 16]`: sums, shift, sum of weights."""
NUM_GROUPS: Final = _COMMON_SIZE + 1
"""Groups of heads of keys; a part's group is a piece of work. See `groups`."""
HEADER_SIZE: Final = _COMMON_SIZE + 2


def scratch_bytes(head_dim: int, num_tiles: int) -> int:
    """Return what one thread needs for so many tiles of queries, of all heads of keys together."""
    block = BLOCK_KEYS * (4 * TILE + 2 * TILE + 2 * head_dim)
    return 64 + block + (num_tiles + 1) * 2 * TILE * head_dim


def groups(num_kv_heads: int, num_parts: int, num_threads: int) -> int:
    """Return how many groups of heads there should be: they lie beside each other in memory, which is read fastest in order."""
    return min(num_kv_heads, -(-num_threads // num_parts))


def partial_size(head_dim: int) -> int:
    """Return the numbers that one part gives one tile."""
    return TILE * (head_dim + 2)


def attend_parts(_op: int, header: int, thread: int, _num_threads: int) -> None:
    """Attend to parts of the keys; to be compiled."""
    attend_lane(header, thread)


def merge_parts(_op: int, header: int, thread: int, num_threads: int) -> None:
    """Put parts together and write the result; to be compiled."""
    merge_lane(header, thread, num_threads)


@njit(error_model="numpy")
def attend_lane(header: int, thread: int) -> None:
    """Attend to parts of the keys. Threads take parts until none is left."""
    saved = load_int(header, SCRATCH) + thread * load_int(header, SCRATCH_BYTES)
    save_tiles(saved)
    configure_tiles(load_int(header, CONFIG))
    num_kv_heads, num_groups = load_int(header, NUM_KV_HEADS), load_int(header, NUM_GROUPS)
    first, num_parts = _parts(header)
    while True:
        piece = take_number(header + TAKEN * 8)
        if piece >= num_parts * num_groups:
            break
        part, group = piece // num_groups, piece % num_groups
        heads = (num_kv_heads * group // num_groups, num_kv_heads * (group + 1) // num_groups)
        place = load_int(header, PARTIAL) + part * num_kv_heads * _piece_bytes(header)
        _attend(header, heads, first + part, saved + 64, place)
    configure_tiles(saved)


@njit(error_model="numpy")
def merge_lane(header: int, thread: int, num_threads: int) -> None:
    """Put parts together and write the result. Each thread does its share of tiles and key heads."""
    head_dim, num_kv_heads = load_int(header, HEAD_DIM), load_int(header, NUM_KV_HEADS)
    num_tiles = _num_tiles(header)
    scratch = load_int(header, SCRATCH) + thread * load_int(header, SCRATCH_BYTES)
    part_bytes = num_kv_heads * _piece_bytes(header)
    num_parts = _parts(header)[1]
    for task in range(thread, num_kv_heads * num_tiles, num_threads):
        sums = load_int(header, PARTIAL) + task * 4 * TILE * (head_dim + 2)
        facts = sums + 4 * TILE * head_dim
        for part in range(1, num_parts):
            offset = part * part_bytes
            fold(sums, facts, sums + offset, facts + offset, head_dim)
        _finish(header, task // num_tiles, task % num_tiles, (sums, facts, scratch))


@njit(error_model="numpy")
def _parts(header: int) -> tuple[int, int]:
    """Return the first part and their number."""
    end = load_int(header, FIRST_POSITION) + load_int(header, NUM_ROWS)
    first = load_int(header, CONTEXT_START) // PART_KEYS
    return first, (end - 1) // PART_KEYS - first + 1


@njit(error_model="numpy")
def _num_tiles(header: int) -> int:
    group = load_int(header, NUM_HEADS) // load_int(header, NUM_KV_HEADS)
    tiles: int = (load_int(header, NUM_ROWS) * group + TILE - 1) // TILE
    return tiles


@njit(error_model="numpy")
def _piece_bytes(header: int) -> int:
    size: int = _num_tiles(header) * 4 * TILE * (load_int(header, HEAD_DIM) + 2)
    return size


@njit(error_model="numpy")
def _attend(header: int, heads: tuple[int, int], part: int, scratch: int, place: int) -> None:
    """Attend to one part, all rows and the heads of keys (first, end); place is that of the part's sums."""
    head_dim, num_tiles = load_int(header, HEAD_DIM), _num_tiles(header)
    num_rows, context_start = load_int(header, NUM_ROWS), load_int(header, CONTEXT_START)
    values = scratch + BLOCK_KEYS * 6 * TILE
    packed = values + BLOCK_KEYS * 2 * head_dim
    tile_bytes, size = 2 * TILE * head_dim, _piece_bytes(header) // num_tiles
    gathered = packed + (heads[1] - heads[0]) * num_tiles * tile_bytes
    for head in range(heads[0], heads[1]):
        for tile in range(num_tiles):
            number = (head - heads[0]) * num_tiles + tile
            _pack_queries(header, head, tile, gathered, packed + number * tile_bytes)
            clear(place + (head * num_tiles + tile) * size, head_dim)
    last = min(load_int(header, FIRST_POSITION) + num_rows, (part + 1) * PART_KEYS)
    first_block = max(context_start // BLOCK_KEYS * BLOCK_KEYS, part * PART_KEYS)
    for key in range(first_block, last, BLOCK_KEYS):
        keys = (key, min(BLOCK_KEYS, last - key))
        carray(int64_at(scratch), (1,))[0] = touch(header, heads, keys)
        for head in range(heads[0], heads[1]):
            done = head - heads[0]
            pack_values(header, head, keys, values)
            sums = place + head * num_tiles * size
            queries = packed + done * num_tiles * tile_bytes
            _attend_block(header, head, keys, (scratch, values, queries, sums), key == first_block)


@njit(error_model="numpy")
def _attend_block(
    header: int,
    head: int,
    keys: tuple[int, int],
    places: tuple[int, int, int, int],
    is_first: bool,  # noqa: FBT001 - numba takes no keywords here
) -> None:
    """Attend to a block of keys (first, how many), all rows; the places are those of scores, values, queries, sums."""
    head_dim, num_tiles = load_int(header, HEAD_DIM), _num_tiles(header)
    num_rows = load_int(header, NUM_ROWS)
    group = load_int(header, NUM_HEADS) // load_int(header, NUM_KV_HEADS)
    start, context_start = load_int(header, FIRST_POSITION), load_int(header, CONTEXT_START)
    key, num_keys = keys
    scratch, values, queries, sums = places
    size = _piece_bytes(header) // num_tiles
    for tile in range(num_tiles):
        last_row = min(num_rows - 1, (tile * TILE + TILE - 1) // group)
        own_keys = min(num_keys, start + last_row + 1 - key)
        if own_keys <= 0:
            continue
        own_keys = (own_keys + KEYS_STEP - 1) // KEYS_STEP * KEYS_STEP
        at = sums + tile * size
        own = (queries + tile * 2 * TILE * head_dim, at, at + 4 * TILE * head_dim)
        score(header, head, (key, own_keys), own[0], scratch)
        _hide(scratch, (key, own_keys), (start, context_start), tile * TILE, group)
        block = (scratch, scratch + BLOCK_KEYS * 4 * TILE, values)
        weigh(header, block, own, own_keys, is_first)


@njit(error_model="numpy")
def _pack_queries(header: int, kv_head: int, tile: int, gathered: int, target: int) -> None:
    """Write 16 columns as tiles B; those beyond the last one are copies of it."""
    head_dim, num_rows = load_int(header, HEAD_DIM), load_int(header, NUM_ROWS)
    group = load_int(header, NUM_HEADS) // load_int(header, NUM_KV_HEADS)
    num_own = min(TILE, num_rows * group - tile * TILE)
    together = carray(uint16_at(gathered), (TILE, head_dim))
    for at in range(num_own):
        row, member = (tile * TILE + at) // group, (tile * TILE + at) % group
        query = load_int(header, QUERIES) + row * load_int(header, QUERY_STRIDE)
        query += (kv_head * group + member) * head_dim * 2
        together[at] = carray(uint16_at(query), (head_dim,))
    for dim in range(head_dim // 32):
        turn_queries(gathered + dim * 64, head_dim * 2, num_own - 1, target + dim * 64 * TILE)


@njit(error_model="numpy")
def _hide(
    scores: int, keys: tuple[int, int], positions: tuple[int, int], column: int, group: int
) -> None:
    """Hide keys after a query, or before all that is looked at.

    Args:
        scores: address of those of a tile.
        keys: of the block: the first, how many.
        positions: of the first row; where all that is looked at begins.
        column: the tile's first one.
        group: columns of a row.
    """
    key, num_keys = keys
    start, context_start = positions
    for at in range(min(num_keys, context_start - key)):
        hide(scores + at * 4 * TILE, TILE)
    for at in range(max(0, start + column // group + 1 - key), num_keys):
        hide(scores + at * 4 * TILE, (key + at - start) * group - column)


@njit(error_model="numpy")
def _finish(header: int, kv_head: int, tile: int, place: tuple[int, int, int]) -> None:
    head_dim, num_heads = load_int(header, HEAD_DIM), load_int(header, NUM_HEADS)
    num_rows, group = load_int(header, NUM_ROWS), num_heads // load_int(header, NUM_KV_HEADS)
    sums, facts, rows = place
    for dim in range(0, head_dim, TILE):
        turn_sums(sums + dim * 4 * TILE, facts + 4 * TILE, rows + dim * 2, head_dim * 2)
    found = carray(uint16_at(rows), (TILE, head_dim))
    output = carray(uint16_at(load_int(header, OUTPUT)), (num_rows, num_heads, head_dim))
    for at in range(min(TILE, num_rows * group - tile * TILE)):
        row, member = (tile * TILE + at) // group, (tile * TILE + at) % group
        output[row, kv_head * group + member] = found[at]
