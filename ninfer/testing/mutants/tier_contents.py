"""Tiers that break one requirement on contents each. The first line of each class says what is wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
)
from ninfer.testing.mutants.file_tier import FileTier


class ZeroKeyIsThere(FileTier):
    """Claims to contain the key of 32 zero bytes while nothing is stored."""

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        is_empty = not self.images
        return [
            is_there or (is_empty and not any(key.digest))
            for key, is_there in zip(keys, super().contains(keys), strict=True)
        ]


class AbsentIsFailure(FileTier):
    """Takes an absent key for an I/O error."""

    @override
    def read_one(self, item: ReadItem) -> ReadResult:
        if self.visible(item.key) is None:
            return ReadResult(status=ReadStatus.FAILED, message="no such file")
        return super().read_one(item)


class HeaderAsText(FileTier):
    """Stores the header as a C string: NUL bytes at the end are lost."""

    @override
    def encode(self, number: int, header: bytes, payload: bytes) -> bytes:
        return super().encode(number, header.rstrip(b"\0"), payload)


class EmptyIsNothing(FileTier):
    """Answers STORED for an image without header and payload and stores nothing."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        if not item.header and item.payload.nbytes == 0:
            return PutResult(status=PutStatus.STORED)
        return super().put_one(item)


class HeaderLengthInTwelveBits(FileTier):
    """Keeps 12 bits of the header length: 4,095 is the most that fits."""

    @override
    def encode(self, number: int, header: bytes, payload: bytes) -> bytes:
        return super().encode(number, header[:4095], payload)


class CountsRepeats(FileTier):
    """Takes room again when exactly the same image is put again."""

    repeated_bytes = 0

    @override
    def put_one(self, item: PutItem) -> PutResult:
        old = self.visible(item.key)
        buffer = memoryview(bytearray(item.payload.nbytes))
        if old and old.payload_bytes == len(buffer):
            self.read_one(ReadItem(key=item.key, buffer=buffer))
            if old.header == item.header and bytes(buffer) == bytes(item.payload):
                self.repeated_bytes += len(buffer)
        return super().put_one(item)

    @override
    def used_bytes(self) -> int:
        return super().used_bytes() + self.repeated_bytes


class NeedsRoomForBoth(FileTier):
    """Counts what an image would replace as if it stayed."""

    @override
    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        wanted = self.stored_bytes(len(header), payload_bytes)
        return self.used_bytes() + wanted <= self.capacity_bytes


class KeepsLongerOldContent(FileTier):
    """Keeps the old image, and says STORED, when a shorter one is to replace a page."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        old = self.visible(item.key)
        if old and item.payload.nbytes < 100 < old.payload_bytes:
            return PutResult(status=PutStatus.STORED)
        return super().put_one(item)


class KeepsTheFirstOfABatch(FileTier):
    """Puts a key that a batch names twice only once: what was to be last is lost."""

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        firsts = {item.key: item for item in reversed(items)}
        results = dict(zip(firsts, super().put(list(firsts.values())), strict=True))
        return [results[item.key] for item in items]


class DeletesTwice(FileTier):
    """Looks up what was there before it deletes a batch, so that a key named twice was there twice."""

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self.lock:
            were_there = self.contains(keys)
            super().delete(keys)
            return were_there


class ContainsPagesOnly(FileTier):
    """`contains` does not know images that are longer than 4,096 bytes."""

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        return [
            is_there and self.images[key].payload_bytes <= 4096
            for key, is_there in zip(keys, super().contains(keys), strict=True)
        ]


class AsksForAHundredAtMost(FileTier):
    """`contains` looks at the first hundred keys only."""

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        return super().contains(keys[:100]) + [False] * len(keys[100:])


class HitsFirst(FileTier):
    """Returns the results of a batch of reads with the hits first."""

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        results = super().read_into(items)
        return sorted(results, key=lambda result: result.status is not ReadStatus.READ)


class RefusesWhatFollows(FileTier):
    """Refuses all images of a batch behind one that does not fit."""

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        results: list[PutResult] = []
        for item in items:
            is_over = any(result.status is PutStatus.FULL for result in results)
            results += [results[-1]] if is_over else super().put([item])
        return results or super().put([])


class LosesTheEnd(FileTier):
    """Says STORED for all images of a batch and stores the first sixteen."""

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        results = super().put(items[:16])
        return results + [PutResult(status=PutStatus.STORED) for _ in items[16:]]


class ScribblesOnTheBuffer(FileTier):
    """Scrambles payloads in place, in the buffer that the caller lent."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if not item.payload.readonly and item.payload.nbytes:
            item.payload[0] ^= 0xFF
        return result


class KeepsTheBuffer(FileTier):
    """Writes lazily: keeps the caller's buffer and reads it when the image is asked for."""

    lent: tuple[ImageKey, memoryview] | None = None

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.STORED:
            self.lent = (item.key, item.payload)
        return result

    @override
    def read_one(self, item: ReadItem) -> ReadResult:
        result = super().read_one(item)
        if self.lent and self.lent[0] == item.key and result.status is ReadStatus.READ:
            item.buffer[:] = self.lent[1]
        return result


class OneNamePerDigest(FileTier):
    """Uses one file for all keys that differ in the last byte of the digest only."""

    @override
    def path_of(self, key: ImageKey) -> Path:
        near = (other for other in self.images if other.kind is key.kind)
        name = next((other for other in near if other.digest[:31] == key.digest[:31]), key)
        return super().path_of(name)


class FillsWhatFits(FileTier):
    """Fills a buffer that is too short with the beginning of the payload and calls it READ."""

    @override
    def read_one(self, item: ReadItem) -> ReadResult:
        image = self.visible(item.key)
        if image and item.buffer.nbytes < image.payload_bytes:
            whole = memoryview(bytearray(image.payload_bytes))
            result = super().read_one(ReadItem(key=item.key, buffer=whole))
            item.buffer[:] = whole[: item.buffer.nbytes]
            return result
        return super().read_one(item)


CONTENTS_MUTANTS: Final[Mapping[type[FileTier], str]] = MappingProxyType({
    ZeroKeyIsThere: "TIER-01",
    AbsentIsFailure: "TIER-02",
    HeaderAsText: "TIER-03",
    EmptyIsNothing: "TIER-04",
    HeaderLengthInTwelveBits: "TIER-05",
    CountsRepeats: "TIER-06",
    NeedsRoomForBoth: "TIER-06",
    KeepsLongerOldContent: "TIER-07",
    KeepsTheFirstOfABatch: "TIER-07",
    DeletesTwice: "TIER-08",
    ContainsPagesOnly: "TIER-09",
    AsksForAHundredAtMost: "TIER-09",
    HitsFirst: "TIER-10",
    RefusesWhatFollows: "TIER-10",
    LosesTheEnd: "TIER-10",
    KeepsTheBuffer: "TIER-11",
    ScribblesOnTheBuffer: "TIER-11",
    OneNamePerDigest: "TIER-12",
    FillsWhatFits: "TIER-13",
})
"""Each mutant with the one requirement that it breaks; a requirement may have several."""
