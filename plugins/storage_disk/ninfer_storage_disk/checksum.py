"""A 64-bit checksum as fast as memory, of one image or of many beside each other. Knows nothing about files."""

import sys
import zlib
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ninfer_storage_disk.compiled_sums import Sums

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

WINDOW_BYTES: Final = 1 << 20
"""Bytes summed at once; the second pass over them finds them in the processor's cache. In smaller parts each call costs
more than its bytes when other threads want the interpreter."""

_ROW_BYTES: Final = 4 << 10
_ROW_WORDS: Final = _ROW_BYTES // 8
_WORD: Final = np.dtype("<u8")
_SUMS: Final = np.dtype([("weighted", "<u8"), ("rows", "<u4"), ("rest", "<u4")])
"""Weighted sum, CRC-32 of the column sums, CRC-32 of the words behind the last whole row."""

_HASH: Final = blake2b(digest_size=8, person=b"ninfer-disk-1")


def _odd_weights(count: int) -> Words:
    """Return fixed pseudo-random odd numbers: splitmix64 of 1..count. Part of the format; never change it."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    weights: Words = (x ^ (x >> np.uint64(31))) | np.uint64(1)
    return weights


_WEIGHTS: Final = _odd_weights(WINDOW_BYTES // 8)
_WEIGHTS_ADDRESS: Final = _WEIGHTS.ctypes.data


class Checksum:
    """Checksums of images of equal length, given in parts. Lets go of the GIL while it reads the bytes.

    For each window of 1 MiB two sums are taken: the words times fixed odd weights modulo 2^64 (any change of one
    word, and any swap of blocks, changes it) and the plain column sums of rows of 4 KiB (which catches what the
    first is weak for, an even number of changes in the highest bits). A keyed hash joins them with the length.
    Measured on one core, in parts that are in its cache: 10 GB/s with numpy, 30 compiled, against 2.5 for crc32 and 0.6 for
    blake2b alone.

    Args:
        num_images: how many.
        num_bytes: length of each.
        columns: `[num_images or more, 512]` to work in, for who sums often: fresh memory costs as much as the sums.
    """

    def __init__(self, num_images: int, num_bytes: int, columns: Words | None = None) -> None:
        """Begin with nothing."""
        self._joined = [num_bytes.to_bytes(8, "little")] * num_images
        self._columns = empty_columns(num_images) if columns is None else columns[:num_images]

    def add(self, part: Bytes) -> None:
        """Add the next bytes.

        Args:
            part: `[num_images, bytes]`, the last axis without gaps. A multiple of `WINDOW_BYTES`, or all that is left.
        """
        for at in range(0, part.shape[1], WINDOW_BYTES):
            self._add_window(part[:, at : at + WINDOW_BYTES])

    def values(self) -> list[int]:
        """Return the checksums; all bytes are there."""
        digests = []
        for joined in self._joined:
            hashed = _HASH.copy()
            hashed.update(joined)
            digests.append(hashed.digest())
        values: list[int] = np.frombuffer(b"".join(digests), _WORD).tolist()
        return values

    def _add_window(self, part: Bytes) -> None:
        num_images, num_bytes = part.shape
        num_rows, num_words = num_bytes // _ROW_BYTES, num_bytes // 8
        words = part[:, : num_words * 8].view(_WORD)
        if num_words:
            sums = np.zeros(num_images, _SUMS)
            sums["weighted"] = _sum_words(words, num_rows, self._columns)
            sums["rows"] = [zlib.crc32(row) for row in self._columns]
            if num_words % _ROW_WORDS:
                rest = words[:, num_rows * _ROW_WORDS :]
                sums["rest"] = [zlib.crc32(image.tobytes()) for image in rest]
            packed, size = sums.tobytes(), _SUMS.itemsize
            for at, joined in enumerate(self._joined):
                self._joined[at] = joined + packed[size * at : size * at + size]
        if num_bytes % 8:
            odd = part[:, num_words * 8 :]
            for at, joined in enumerate(self._joined):
                self._joined[at] = joined + odd[at].tobytes()


def _sum_words(words: Words, num_rows: int, columns: Words) -> Words:
    """Return the weighted sum of each image, and write the sums of its rows.

    Args:
        words: `[num_images, num_words]` of one window, the last axis without gaps.
        num_rows: whole rows of an image.
        columns: `[num_images, 512]`.
    """
    num_images, num_words = words.shape
    stride, gap = divmod(words.strides[0], 8)
    address = _address(words)
    sum_windows = compiled_sums()
    if sum_windows is None or gap or stride < 0 or address % 8 or not _fits(columns, num_images):
        rows = words[:, : num_rows * _ROW_WORDS].reshape(num_images, num_rows, _ROW_WORDS)
        np.add.reduce(rows, axis=1, out=columns)
        weighted: Words = np.einsum("ij,j->i", words, _WEIGHTS[:num_words])
        return weighted
    weighted = np.empty(num_images, np.uint64)
    places = (_WEIGHTS_ADDRESS, _address(columns), _address(weighted))
    sum_windows(address, stride, num_images, num_rows, num_words, *places)
    return weighted


def _fits(columns: Words, num_images: int) -> bool:
    """Tell whether compiled code, which looks at nothing but addresses, may write there; numpy says what is wrong."""
    return columns.shape == (num_images, _ROW_WORDS) and columns.flags.c_contiguous


def _address(words: Words) -> int:
    address: int = words.__array_interface__["data"][0]
    return address


@cache
def compiled_sums() -> "Sums | None":
    """Return what `compiled_sums.py` compiles, once; nothing where numba is not installed or cannot compile: numpy computes the same, more slowly."""
    if sys.byteorder != "little":
        return None
    try:
        from ninfer_storage_disk.compiled_sums import compile_sums  # noqa: PLC0415 - an extra

        return compile_sums()
    except Exception:  # noqa: BLE001 - of any type
        return None


def side_by_side(buffers: Sequence[memoryview]) -> Bytes | None:
    """Return buffers of equal length as one array `[num_buffers, bytes]` if they lie evenly spaced in memory; borrowed."""
    arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    if len(arrays) == 1:
        return arrays[0][None]
    places = [array.__array_interface__["data"][0] for array in arrays]
    stride = places[1] - places[0]
    if any(after - before != stride for before, after in pairwise(places)):
        return None
    shape = (len(arrays), len(arrays[0]))
    return np.lib.stride_tricks.as_strided(arrays[0], shape, (stride, 1), writeable=False)


def empty_columns(num_images: int) -> Words:
    """Return memory that `Checksum` can work in."""
    return np.empty((num_images, _ROW_WORDS), _WORD)


def checksum(payload: memoryview) -> int:
    """Return the checksum of one image."""
    joined = Checksum(1, len(payload))
    if len(payload):
        joined.add(np.frombuffer(payload, np.uint8)[None])
    return joined.values()[0]
