"""Both sums of a checksum's window in one pass of compiled code. Needs numba.

numpy takes them one after the other, and between its calls threads that verify beside each other wait for the interpreter:
two threads summed no faster than one. This is one call without the interpreter's lock.
"""

import ctypes
from collections.abc import Callable
from typing import Final

import numpy as np
from numba import carray, cfunc, types

Sums = Callable[[int, int, int, int, int, int, int, int], None]
_ROW_WORDS: Final = 512
_SIGNATURE: Final = types.void(
    types.voidptr, *[types.int64] * 4, types.voidptr, types.voidptr, types.voidptr
)


def _sum_windows(  # noqa: PLR0913
    words: int,
    stride: int,
    num_images: int,
    num_rows: int,
    num_words: int,
    weights: int,
    columns: int,
    weighted: int,
) -> None:
    """Sum one window of each image.

    Args:
        words: address of little-endian uint64, aligned.
        stride: words from image to image.
        num_images: at least 1.
        num_rows: whole rows of 512 words of an image.
        num_words: of an image.
        weights: address of uint64 `[num_words]`.
        columns: address of uint64 `[num_images, 512]`; gets the sums of the rows.
        weighted: address of uint64 `[num_images]`; gets the sum of words times weights.
    """
    factors = carray(weights, num_words, np.uint64)
    totals = carray(weighted, num_images, np.uint64)
    places = carray(columns, (num_images, _ROW_WORDS), np.uint64)
    everything = carray(words, stride * (num_images - 1) + num_words, np.uint64)
    for image in range(num_images):
        own = everything[image * stride : image * stride + num_words]
        sums = places[image]
        sums[:] = 0
        total = np.uint64(0)
        for row in range(0, num_rows - 3, 4):
            at = row * _ROW_WORDS
            rows = own[at : at + 4 * _ROW_WORDS].reshape(4, _ROW_WORDS)
            by = factors[at : at + 4 * _ROW_WORDS].reshape(4, _ROW_WORDS)
            for k in range(_ROW_WORDS):
                sums[k] += rows[0, k] + rows[1, k] + rows[2, k] + rows[3, k]
                total += rows[0, k] * by[0, k] + rows[1, k] * by[1, k]
                total += rows[2, k] * by[2, k] + rows[3, k] * by[3, k]
        for row in range(num_rows // 4 * 4, num_rows):
            at = row * _ROW_WORDS
            for k in range(_ROW_WORDS):
                sums[k] += own[at + k]
                total += own[at + k] * factors[at + k]
        for k in range(num_rows * _ROW_WORDS, num_words):
            total += own[k] * factors[k]
        totals[image] = total


def compile_sums() -> Sums:
    """Compile, or take what an earlier process compiled: half a second, or a hundredth of one.

    Raises:
        Exception: numba cannot compile here; of any type.
    """
    try:
        compiled = cfunc(_SIGNATURE, cache=True, error_model="numpy")(_sum_windows)
    except Exception:  # noqa: BLE001 - no folder for machine code, a full disk, damaged code there
        compiled = cfunc(_SIGNATURE, error_model="numpy")(_sum_windows)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kinds = (pointer, number, number, number, number, pointer, pointer, pointer)
    call: Sums = ctypes.CFUNCTYPE(None, *kinds)(compiled.address)
    _kept.append(compiled)
    return call


_kept: Final[list[object]] = []
"""What has machine code that is in use."""
