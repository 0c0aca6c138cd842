"""Preallocated host memory, cut into extents. Knows nothing about keys or images."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ninfer.api import HostAllocator

GRANULE_BYTES: Final = 256
"""Extents are multiples of this. A full page is 64 tokens of at least 4 bytes, so pages waste nothing."""

MAX_CHUNK_BYTES: Final = 4 << 30
"""Most bytes asked from the host allocator at once."""


def round_up(num_bytes: int) -> int:
    """Return the bytes of the extent that holds `num_bytes`; at least one granule."""
    return max(1, -(-num_bytes // GRANULE_BYTES)) * GRANULE_BYTES


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes of the arena: [start, start + length), inside one chunk."""

    start: int
    length: int


class Arena:
    """Host memory in chunks, and which parts of it are free.

    Extents of exactly `slot_bytes` (pages) are taken from the lowest address that fits, all others (state
    images, partial pages) from the highest. The two kinds meet only when the arena is nearly full, so holes
    left by one kind are refilled by the same kind:

        |P|P|P|.|P|P|P|P|              free              |  S  |..|  S  |t|  S  |
        0 -> pages                                          <- everything else  capacity

    In a full arena the room that pages leave is in pieces too short for a state; `take_pieces` takes several.

    Not thread-safe; the tier locks.

    Invariants:
        free extents are disjoint, sorted, inside one chunk, and no two touch each other within a chunk
        free_bytes = sum of free extents
    """

    def __init__(
        self,
        allocator: HostAllocator,
        capacity_bytes: int,
        *,
        slot_bytes: int,
        max_chunk_bytes: int = MAX_CHUNK_BYTES,
    ) -> None:
        """Allocate all memory now.

        Args:
            allocator: where memory comes from.
            capacity_bytes: rounded down to granules.
            slot_bytes: the most common image length, 0 if unknown.
            max_chunk_bytes: most bytes asked at once; chunks are whole numbers of slots.
        """
        self._slot = round_up(slot_bytes) if slot_bytes else 0
        capacity = capacity_bytes // GRANULE_BYTES * GRANULE_BYTES
        unit = self._slot if 0 < self._slot <= max_chunk_bytes else GRANULE_BYTES
        step = max_chunk_bytes // unit * unit
        self._chunk_starts = list(range(0, capacity, step))
        self._chunks = [
            allocator.allocate_host(min(step, capacity - start)).cast("B")
            for start in self._chunk_starts
        ]
        self.capacity_bytes = capacity
        self.free_bytes = capacity
        self._starts: list[int] = list(self._chunk_starts)
        self._lengths: dict[int, int] = {
            start: len(chunk) for start, chunk in zip(self._chunk_starts, self._chunks, strict=True)
        }
        self._sizes: Counter[int] = Counter(self._lengths.values())

    def take(self, num_bytes: int) -> Extent | None:
        """Take an extent for `num_bytes`; None if no free run is long enough.

        Changes: the free extents.
        """
        length = round_up(num_bytes)
        if length > self.free_bytes or not any(size >= length for size in self._sizes):
            return None
        is_page = length == self._slot
        order = self._starts if is_page else reversed(self._starts)
        found = next(start for start in order if self._lengths[start] >= length)
        free_length = self._lengths[found]
        self._remove_free(found)
        if is_page:
            extent = Extent(found, length)
            self._add_free(found + length, free_length - length)
        else:
            extent = Extent(found + free_length - length, length)
            self._add_free(found, free_length - length)
        self.free_bytes -= length
        return extent

    def take_pieces(self, num_bytes: int) -> tuple[Extent, ...] | None:
        """Take room for `num_bytes`: one extent, or several if no free run is long enough; None if too little is free.

        Cost: linear in the free runs if there have to be several.

        Changes: the free extents.
        """
        whole = self.take(num_bytes)
        if whole is not None:
            return (whole,)
        missing = round_up(num_bytes)
        if missing > self.free_bytes:
            return None
        pieces = []
        for start in sorted(self._starts, key=self._lengths.__getitem__, reverse=True):
            length = min(missing, self._lengths[start])
            free_length = self._lengths[start]
            self._remove_free(start)
            self._add_free(start + length, free_length - length)
            pieces.append(Extent(start, length))
            missing -= length
            if not missing:
                break
        self.free_bytes -= round_up(num_bytes)
        return tuple(pieces)

    def give_pieces(self, extents: Iterable[Extent]) -> None:
        """Return what `take_pieces` gave. Changes: the free extents."""
        for extent in extents:
            self.give(extent)

    def give(self, extent: Extent) -> None:
        """Return an extent that `take` gave. Changes: the free extents."""
        start, end = extent.start, extent.start + extent.length
        index = bisect_left(self._starts, start)
        self.free_bytes += extent.length
        if (
            index < len(self._starts)
            and self._starts[index] == end
            and not self._is_chunk_start(end)
        ):
            end += self._lengths[end]
            self._remove_free(self._starts[index])
        if index > 0 and not self._is_chunk_start(start):
            before = self._starts[index - 1]
            if before + self._lengths[before] == start:
                self._remove_free(before)
                start = before
        self._add_free(start, end - start)

    def view(self, extent: Extent, num_bytes: int) -> memoryview:
        """Return the first `num_bytes` of an extent as writable memory."""
        index = bisect_left(self._chunk_starts, extent.start + 1) - 1
        offset = extent.start - self._chunk_starts[index]
        return self._chunks[index][offset : offset + num_bytes]

    def chunk_end(self, start: int) -> int:
        """Return where the memory that holds byte `start` ends."""
        index = bisect_left(self._chunk_starts, start + 1) - 1
        return self._chunk_starts[index] + len(self._chunks[index])

    def views(self, extents: Iterable[Extent], num_bytes: int) -> list[memoryview]:
        """Return the first `num_bytes` of some extents, in order, as writable memory."""
        found = []
        for extent in extents:
            found.append(self.view(extent, min(extent.length, num_bytes)))
            num_bytes -= extent.length
        return found

    def check(self, taken: list[Extent]) -> list[str]:
        """Return a sentence for each broken invariant, given all extents that are taken."""
        problems = []
        free = [Extent(start, self._lengths[start]) for start in self._starts]
        position = 0
        for extent in sorted(taken + free, key=lambda extent: extent.start):
            if extent.start != position:
                problems.append(
                    f"arena: byte {position} is covered twice or not at all (next extent {extent})"
                )
            position = extent.start + extent.length
        if position != self.capacity_bytes:
            problems.append(
                f"arena: extents end at {position}, capacity is {self.capacity_bytes} bytes"
            )
        if sum(extent.length for extent in free) != self.free_bytes:
            problems.append(
                f"arena: free_bytes is {self.free_bytes}, free extents sum to another number"
            )
        if +self._sizes != Counter(self._lengths.values()):
            problems.append("arena: size counts differ from the free extents")
        return problems

    def close(self) -> None:
        """Forget the memory; it is freed when nobody holds a view any more."""
        self._chunks.clear()

    def _is_chunk_start(self, start: int) -> bool:
        index = bisect_left(self._chunk_starts, start)
        return index < len(self._chunk_starts) and self._chunk_starts[index] == start

    def _add_free(self, start: int, length: int) -> None:
        if length:
            self._starts.insert(bisect_left(self._starts, start), start)
            self._lengths[start] = length
            self._sizes[length] += 1

    def _remove_free(self, start: int) -> None:
        del self._starts[bisect_left(self._starts, start)]
        length = self._lengths.pop(start)
        self._sizes[length] -= 1
        if not self._sizes[length]:
            del self._sizes[length]
