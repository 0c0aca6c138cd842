"""Payloads of a data file: many small ones in one go, large ones in parts. Knows nothing about the journal or keys."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ninfer_storage_disk.blocks import Run
from ninfer_storage_disk.checksum import PART_BYTES, Checksum, checksum
from ninfer_storage_disk.entry import Entry
from ninfer_storage_disk.files import Files

_JOINED_BYTES: Final = 512 << 10
"""Small images that follow each other in the file are read and verified together, up to this: it fits the processor's
own cache."""

Wanted = tuple[Entry, memoryview]


class Payloads:
    """Reads and verifies payloads. Thread-safe.

    Args:
        files: the file layer.
        block_bytes: length of a block.
    """

    def __init__(self, files: Files, block_bytes: int) -> None:
        """Begin without memory for joined reads."""
        self._files = files
        self._block_bytes = block_bytes
        self._spare: list[bytearray] = []

    def read(self, handle: int, wanted: Sequence[Wanted]) -> list[bool | OSError]:
        """Read payloads into their buffers, each as long as its payload.

        Args:
            handle: the data file.
            wanted: entries with buffers; in the order of the file it takes the fewest reads.

        Returns:
            For each: whether the bytes are those that were put, or what the system said.
        """
        found: list[bool | OSError] = []
        for group in self._groups(wanted):
            try:
                if len(group) == 1:
                    found.append(self._read_one(handle, *group[0]))
                else:
                    found += self._read_joined(handle, group)
            except OSError as error:
                found += [error] * len(group)
        return found

    def _groups(self, wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
        """Cut into stretches of images of one length, one behind the other in the file."""
        first = 0
        for at in range(1, len(wanted) + 1):
            if at < len(wanted) and self._follows(wanted[at - 1][0], wanted[at][0]):
                stretch_bytes = (at + 1 - first) * wanted[first][0].runs[0].count
                if stretch_bytes * self._block_bytes <= _JOINED_BYTES:
                    continue
            yield wanted[first:at]
            first = at

    @staticmethod
    def _follows(before: Entry, entry: Entry) -> bool:
        return (
            len(before.runs) == len(entry.runs) == 1
            and before.num_bytes == entry.num_bytes
            and before.runs[0].end == entry.runs[0].start
        )

    def _read_joined(self, handle: int, group: Sequence[Wanted]) -> list[bool]:
        first = group[0][0]
        stride = first.runs[0].count * self._block_bytes
        memory = self._spare.pop() if self._spare else bytearray(_JOINED_BYTES)
        whole = memoryview(memory)[: stride * len(group)]
        num_read = self._files.read_at(handle, whole, first.runs[0].start * self._block_bytes)
        images = np.frombuffer(whole, np.uint8).reshape(len(group), stride)
        joined = Checksum(len(group), first.num_bytes)
        joined.add(images[:, : first.num_bytes])
        found = []
        for at, ((entry, buffer), value) in enumerate(zip(group, joined.values(), strict=True)):
            end = at * stride + entry.num_bytes
            buffer[:] = whole[at * stride : end]
            found.append(end <= num_read and value == entry.checksum)
        self._spare.append(memory)
        return found

    def _read_one(self, handle: int, entry: Entry, buffer: memoryview) -> bool:
        if len(entry.runs) == 1:
            return self._read_run(handle, entry.runs[0], entry, buffer)
        position = 0
        for run in entry.runs:
            part = buffer[position : position + run.count * self._block_bytes]
            position += self._files.read_at(handle, part, run.start * self._block_bytes)
        return position == entry.num_bytes and checksum(buffer) == entry.checksum

    def _read_run(self, handle: int, run: Run, entry: Entry, buffer: memoryview) -> bool:
        """Verify each part right after it was read, while the processor's cache holds it."""
        joined = Checksum(1, entry.num_bytes)
        bytes_ = np.frombuffer(buffer, np.uint8)[None]
        offset = run.start * self._block_bytes
        for at in range(0, len(buffer), PART_BYTES):
            part = buffer[at : at + PART_BYTES]
            if self._files.read_at(handle, part, offset + at) < len(part):
                return False
            joined.add(bytes_[:, at : at + PART_BYTES])
        return joined.values()[0] == entry.checksum
