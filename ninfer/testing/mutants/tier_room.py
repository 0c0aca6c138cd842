"""Tiers that break one requirement on room or capabilities each. The first line of each class says what is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageRecord,
    PutItem,
    PutResult,
    PutStatus,
    TierCapabilities,
    TierUsage,
)
from ninfer.testing.mutants.file_tier import FileTier


class CountsOneMore(FileTier):
    """Counts a payload of exactly 4,096 bytes one byte longer than `stored_bytes` says."""

    @override
    def used_bytes(self) -> int:
        return super().used_bytes() + sum(
            image.payload_bytes == 4096 for image in self.images.values()
        )


class LearnsItsRatio(FileTier):
    """`stored_bytes` of large images depends on how full the tier is."""

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        learned = len(self.images) if payload_bytes > 1 << 20 else 0
        return super().stored_bytes(header_bytes, payload_bytes) - learned


class EvictsByItself(FileTier):
    """Makes room for later when it is full: drops the oldest image."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.FULL and len(self.images) > 10:
            self.forget(min(self.images, key=lambda key: self.images[key].number))
        return result


class DropsWhatItCannotReplace(FileTier):
    """Drops the old image, then finds that the new one does not fit."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.FULL and item.key in self.images:
            self.forget(item.key)
        return result


class LeaksRoom(FileTier):
    """Room of deleted images of more than 10,000 bytes is not used again."""

    leaked_bytes = 0

    @override
    def delete_one(self, key: ImageKey) -> bool:
        image = self.visible(key)
        if image and image.payload_bytes > 10_000:
            self.leaked_bytes += image.payload_bytes
        return super().delete_one(key)

    @override
    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        return super().has_room(key, header, payload_bytes + self.leaked_bytes)


class OneAlwaysFits(FileTier):
    """Takes any image while it is empty, even one larger than itself."""

    @override
    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        return not self.images or super().has_room(key, header, payload_bytes)


class PromisesLess(FileTier):
    """Stops promising `addressable` once it is empty again."""

    was_used = False

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        self.was_used = self.was_used or len(self.images) > 1
        if self.was_used and not self.images:
            return TierCapabilities(durable=True, enumerable=True)
        return super().capabilities


class DoesMoreThanPromised(FileTier):
    """Does not promise direct access, and gives it."""

    promises = TierCapabilities(durable=True, enumerable=True)

    @override
    def require(self, *, is_promised: bool) -> None:
        pass


class CutsListedHeaders(FileTier):
    """Lists headers of at most 255 bytes."""

    @override
    def records(self) -> Iterator[ImageRecord]:
        for record in super().records():
            yield ImageRecord(
                key=record.key, header=record.header[:255], num_bytes=record.num_bytes
            )


class ListsWhatIsChanging(FileTier):
    """Lists images one by one out of the index that puts and deletions change meanwhile."""

    @override
    def records(self) -> Iterator[ImageRecord]:
        self.require_open()
        for key, image in self.images.items():
            if image.is_committed:
                yield ImageRecord(key=key, header=image.header, num_bytes=image.payload_bytes)


class OneViewAtATime(FileTier):
    """Gives every view in the same memory."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take the memory."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.scratch = bytearray(1 << 16)

    @override
    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        seen = super().view(key)
        if seen is None:
            return None
        header, payload = seen
        self.scratch[: len(payload)] = payload
        return header, memoryview(self.scratch)[: len(payload)]


class ShowsWhatLiesBehind(FileTier):
    """Shows in a run what was stored after the first image, whatever was asked for."""

    @override
    def view_run(self, keys: Sequence[ImageKey]) -> tuple[Sequence[bytes], memoryview] | None:
        first = self.view(keys[0])
        if first is None:
            return None
        stored = list(self.images)
        behind = stored[stored.index(keys[0]) + 1 :][: len(keys) - 1]
        seen = [first, *(view for view in map(self.view, behind) if view is not None)]
        return [header for header, _ in seen], memoryview(b"".join(part for _, part in seen))


class VisibleAtOnce(FileTier):
    """Lists an image in `records` as soon as it is allocated."""

    @override
    def records(self) -> Iterator[ImageRecord]:
        yield from super().records()
        for key, image in self.images.items():
            if not image.is_committed:
                yield ImageRecord(key=key, header=image.header, num_bytes=image.payload_bytes)


class AllocatesForFree(FileTier):
    """Counts allocated images only when they are committed."""

    @override
    def usage(self) -> TierUsage:
        usage = super().usage()
        unseen = sum(
            self.stored_bytes(len(image.header), image.payload_bytes)
            for image in self.images.values()
            if not image.is_committed
        )
        return TierUsage(
            capacity_bytes=usage.capacity_bytes,
            used_bytes=usage.used_bytes - unseen,
            num_images=usage.num_images,
        )


ROOM_MUTANTS: Final[Mapping[type[FileTier], str]] = MappingProxyType({
    CountsOneMore: "TIER-14",
    LearnsItsRatio: "TIER-15",
    EvictsByItself: "TIER-16",
    DropsWhatItCannotReplace: "TIER-16",
    LeaksRoom: "TIER-17",
    OneAlwaysFits: "TIER-18",
    PromisesLess: "TIER-19",
    DoesMoreThanPromised: "TIER-20",
    CutsListedHeaders: "TIER-21",
    ListsWhatIsChanging: "TIER-21",
    OneViewAtATime: "TIER-22",
    ShowsWhatLiesBehind: "TIER-42",
    VisibleAtOnce: "TIER-23",
    AllocatesForFree: "TIER-24",
})
"""Each mutant with the one requirement that it breaks; a requirement may have several."""
