"""A gated delta layer between its two projections, token by token. Reference: `kernels.reference_delta_rule`.

Convolution, normalised queries and keys, recurrence, gated norm: everything of one key head stays in a cache. While the
state of a head fits there, a token costs less this way than its share of a chunk's products (`kernels.delta_chunks`).
Every token is computed alike, so where a prompt is cut, and what else is in the step, changes no bit.
"""

import math
from typing import Final

import numpy as np
from numba import carray, njit

from ninfer.kernels.compiled.address import float32_at, load_float, load_int
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.norm import mean_square
from ninfer.kernels.compiled.state_table import (
    FIRST_KEPT,
    ROW_START,
    SEGMENT_ROWS,
    SEGMENT_SIZE,
    SLOT,
)
from ninfer.kernels.compiled.state_tile import read_state, update_state
from ninfer.kernels.l2_norm import EPSILON

PROJECTED: Final = 0
"""Address of float32 rows: queries, keys, values, gates, betas, decays, each head by head."""
PROJECTED_STRIDE: Final = 1
"""Bytes from row to row."""
OUTPUT: Final = 2
"""Address of float32 rows, heads by heads."""
OUTPUT_STRIDE: Final = 3
NUM_SEGMENTS: Final = 4
SEGMENTS: Final = 5
"""Address of `StateTable.segments`."""
KEPT: Final = 6
"""Address of `StateTable.kept`."""
STATES: Final = 7
"""Address of the layer's recurrent state in slot 0, float32 `[num_value_heads, key_dim, value_dim]`."""
WINDOWS: Final = 8
"""Address of the layer's window in slot 0, float32 `[window - 1, conv_width]`."""
SLOT_STRIDE: Final = 9
"""Bytes from slot to slot."""
SCRATCH: Final = 10
"""Address of float32 `[num_threads, 2 * key_dim + (group + 3) * value_dim + 1]`."""
HEADER_SIZE: Final = 11

_MAX_SOFTPLUS: Final = 20.0
"""Above it softplus is the identity, as in torch."""
_ONE: Final = np.float32(1)
_EPSILON: Final = np.float32(EPSILON)


def delta(op: int, header: int, thread: int, num_threads: int) -> None:
    """Compute the rows of all segments; to be compiled.

    Each thread does its share of the pairs of a segment and a key head.

    Numbers: 1 key heads; 2 value heads per key head; 3 key_dim; 4 value_dim; 5 window; 6 address of the convolution's
    weight, `[window, conv_width]`; 7 of the decay bias; 8 of the decay rate; 9 of the norm's weight; 10 its eps, a float.
    """
    key_heads = load_int(op, 1)
    for task in range(thread, load_int(header, NUM_SEGMENTS) * key_heads, num_threads):
        segment = load_int(header, SEGMENTS) + task // key_heads * SEGMENT_SIZE * 8
        _head(op, header, segment, task % key_heads, thread)


@njit(error_model="numpy")
def _head(op: int, header: int, segment: int, head: int, thread: int) -> None:
    """Compute the rows of a segment for a key head and the value heads it serves."""
    key_heads, group = load_int(op, 1), load_int(op, 2)
    key_dim, value_dim, window = load_int(op, 3), load_int(op, 4), load_int(op, 5)
    num_heads, state_size = key_heads * group, key_dim * value_dim
    values_start = 2 * key_heads * key_dim
    conv_width = values_start + num_heads * value_dim
    num_convolved = 2 * key_dim + group * value_dim
    scratch = load_int(header, SCRATCH) + thread * (num_convolved + 3 * value_dim + 1) * 4
    convolved = carray(float32_at(scratch), (num_convolved,))
    queries, keys = convolved[:key_dim], convolved[key_dim : 2 * key_dim]
    # The channels of this head.
    starts = (head * key_dim, (key_heads + head) * key_dim, values_start + head * group * value_dim)
    parts = (starts, (key_dim, key_dim, group * value_dim))

    slot, slot_stride = load_int(segment, SLOT), load_int(header, SLOT_STRIDE)
    num_rows, first_kept = load_int(segment, SEGMENT_ROWS), load_int(segment, FIRST_KEPT)
    stride, output_stride = load_int(header, PROJECTED_STRIDE), load_int(header, OUTPUT_STRIDE)
    rows = load_int(header, PROJECTED) + load_int(segment, ROW_START) * stride
    outputs = load_int(header, OUTPUT) + load_int(segment, ROW_START) * output_stride
    before = load_int(header, WINDOWS) + slot * slot_stride
    place = (rows, stride, before, conv_width, window)
    states = load_int(header, STATES) + head * group * state_size * 4
    for row in range(num_rows):
        _convolve(convolved, op, row, place, parts)
        _normalise(queries, _ONE / np.sqrt(np.float32(key_dim)))
        _normalise(keys, _ONE)
        overlap = _dot(queries, keys)
        others = rows + row * stride + conv_width * 4
        for member in range(group):
            state = states + slot * slot_stride + member * state_size * 4
            addresses = (scratch, state, others, outputs + row * output_stride)
            _value_head(op, head * group + member, member, addresses, overlap)
        if first_kept < 0:
            continue
        kept = load_int(load_int(header, KEPT), first_kept + row)
        if kept != slot:
            _copy(states + kept * slot_stride, states + slot * slot_stride, group * state_size)
            target = load_int(header, WINDOWS) + kept * slot_stride
            _keep_window(target, row + 1, place, parts)
    _keep_window(before, num_rows, place, parts)


@njit(error_model="numpy")
def _convolve(
    convolved: np.ndarray,
    op: int,
    row: int,
    place: tuple[int, int, int, int, int],
    parts: tuple[tuple[int, int, int], tuple[int, int, int]],
) -> None:
    """Convolve the channels of a head up to a row, then SiLU."""
    conv_width, window = place[3], place[4]
    weight = carray(float32_at(load_int(op, 6)), (window, conv_width))
    starts, widths = parts
    for tap in range(window):
        mixed = carray(float32_at(_row_at(row + tap, place)), (conv_width,))
        at = 0
        for part in range(3):
            start, width = starts[part], widths[part]
            channels = slice(start, start + width)
            sums = convolved[at : at + width]
            if tap == 0:
                sums[:] = np.float32(0)
            _accumulate(sums, mixed[channels], weight[tap, channels])
            at += width
    _silu(convolved)


@njit(error_model="numpy")
def _value_head(
    op: int, index: int, member: int, addresses: tuple[int, int, int, int], overlap: np.float32
) -> None:
    """Compute one token of a value head."""
    key_heads, group = load_int(op, 1), load_int(op, 2)
    key_dim, value_dim = load_int(op, 3), load_int(op, 4)
    num_heads = key_heads * group
    scratch, state, others, output = addresses
    keys_at = scratch + 4 * key_dim
    values_at = keys_at + 4 * key_dim + 4 * member * value_dim
    read_key_at = scratch + 4 * (2 * key_dim + group * value_dim)
    read_query_at, change_at = read_key_at + 4 * value_dim, read_key_at + 8 * value_dim
    factor_at = read_key_at + 12 * value_dim

    scores = carray(float32_at(others + 4 * num_heads * value_dim), (2 * num_heads,))
    beta = _ONE / (_ONE + exponential(-scores[index]))
    raw = scores[num_heads + index] + carray(float32_at(load_int(op, 7)), (num_heads,))[index]
    softplus = raw if raw > _MAX_SOFTPLUS else np.float32(math.log1p(math.exp(raw)))
    decay = exponential(softplus * carray(float32_at(load_int(op, 8)), (num_heads,))[index])

    # The output is read before the update, S^T q + (k . q) change, so that one loop reads for both.
    read_state(state, keys_at, scratch, read_key_at, read_query_at, key_dim, value_dim)
    change = carray(float32_at(change_at), (value_dim,))
    values = carray(float32_at(values_at), (value_dim,))
    _change(change, values, carray(float32_at(read_key_at), (value_dim,)), decay, beta)
    carray(float32_at(factor_at), (1,))[0] = decay
    update_state(state, keys_at, change_at, factor_at, key_dim, value_dim)

    result = carray(float32_at(output + 4 * index * value_dim), (value_dim,))
    read_query = carray(float32_at(read_query_at), (value_dim,))
    for j in range(value_dim):
        result[j] = decay * read_query[j] + overlap * change[j]
    gates = carray(float32_at(others + 4 * index * value_dim), (value_dim,))
    _normalise_gated(
        result,
        gates,
        carray(float32_at(load_int(op, 9)), (value_dim,)),
        np.float32(load_float(op, 10)),
    )


@njit(error_model="numpy")
def _row_at(number: int, place: tuple[int, int, int, int, int]) -> int:
    """Return the address of a row, counted from the first one of the window before the segment."""
    rows, stride, before, conv_width, window = place
    if number < window - 1:
        return before + number * conv_width * 4
    return rows + (number - window + 1) * stride


@njit(error_model="numpy")
def _keep_window(
    target: int,
    num_rows: int,
    place: tuple[int, int, int, int, int],
    parts: tuple[tuple[int, int, int], tuple[int, int, int]],
) -> None:
    """Write a head's window after so many rows; in ascending order, because it may be the one before."""
    conv_width, window = place[3], place[4]
    starts, widths = parts
    for number in range(window - 1):
        source = _row_at(num_rows + number, place)
        for part in range(3):
            at = (number * conv_width + starts[part]) * 4
            _copy(target + at, source + starts[part] * 4, widths[part])


@njit(error_model="numpy")
def _copy(target: int, source: int, length: int) -> None:
    to, values = carray(float32_at(target), (length,)), carray(float32_at(source), (length,))
    for i in range(length):
        to[i] = values[i]


@njit(error_model="numpy", fastmath={"contract"})
def _accumulate(sums: np.ndarray, x: np.ndarray, weight: np.ndarray) -> None:
    for i in range(len(sums)):
        sums[i] += x[i] * weight[i]


@njit(error_model="numpy")
def _silu(x: np.ndarray) -> None:
    for i in range(len(x)):
        x[i] /= _ONE + exponential(-x[i])


@njit(error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(x: np.ndarray, y: np.ndarray) -> np.float32:
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit(error_model="numpy")
def _normalise(x: np.ndarray, scale: np.float32) -> None:
    factor = scale / np.sqrt(_dot(x, x) + _EPSILON)
    for i in range(len(x)):
        x[i] *= factor


@njit(error_model="numpy", fastmath={"contract"})
def _change(
    change: np.ndarray,
    values: np.ndarray,
    read_key: np.ndarray,
    decay: np.float32,
    beta: np.float32,
) -> None:
    for j in range(len(change)):
        change[j] = (values[j] - decay * read_key[j]) * beta


@njit(error_model="numpy", fastmath={"contract"})
def _normalise_gated(x: np.ndarray, gates: np.ndarray, weight: np.ndarray, eps: np.float32) -> None:
    factor = _ONE / np.sqrt(mean_square(x) + eps)
    for i in range(len(x)):
        gate = gates[i]
        x[i] = x[i] * factor * weight[i] * (gate / (_ONE + exponential(-gate)))
