"""Tiers that break one requirement on restarts, damage, faults or threads each."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    TierCapabilities,
    TierContext,
)
from ninfer.testing.mutants.file_tier import DIGEST_BYTES, FileTier, StoredImage

OVERLAP_S: Final = 2.0
"""How long a mutant that breaks in threads waits for another thread; if none came, it never waits again."""


class ForgetsStates(FileTier):
    """Finds no state images that are longer than 1,000 bytes when it opens again."""

    @override
    def load(self) -> None:
        super().load()
        for key, image in list(self.images.items()):
            if key.kind is ImageKind.STATE and image.payload_bytes > 1000:
                self.forget(key)


class RemembersSecretly(FileTier):
    """Does not promise to be durable, and is."""

    promises = TierCapabilities(durable=False, enumerable=True, addressable=True)


class KeepsTheNewest(FileTier):
    """Keeps the newest images when it opens with less capacity, not the most valuable."""

    @override
    def fit(self, context: TierContext) -> None:
        for record in list(self.records()):
            if self.used_bytes() > self.capacity_bytes:
                self.forget(record.key)


class ShortFingerprint(FileTier):
    """Tells models apart by the first half of the fingerprint."""

    @override
    def folder_name(self, fingerprint: bytes) -> str:
        return fingerprint[:16].hex()


class CleansUp(FileTier):
    """Deletes everything in its folder that ends like a temporary file."""

    @override
    def load(self) -> None:
        for path in self.folder.glob("*.tmp"):
            path.unlink()
        super().load()


class NothingIsAlwaysAllowed(FileTier):
    """Answers an empty batch of deletions before it looks whether it is closed."""

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        return super().delete(keys) if keys else []


class ChecksWhenOpening(FileTier):
    """Verifies checksums when it opens, and not when it reads."""

    @override
    def read_one(self, item: ReadItem) -> ReadResult:
        image = self.visible(item.key)
        if image is None or item.buffer.nbytes != image.payload_bytes:
            return super().read_one(item)
        body = self.path_of(item.key).read_bytes()[DIGEST_BYTES + 12 :]
        item.buffer[:] = body[len(image.header) :]
        return ReadResult(status=ReadStatus.READ, header=body[: len(image.header)])


class PayloadChecksumOnly(FileTier):
    """Protects the payload with a checksum, and not the header."""

    @override
    def encode(self, number: int, header: bytes, payload: bytes) -> bytes:
        whole = super().encode(number, header, payload)
        return hashlib.sha256(payload).digest() + whole[DIGEST_BYTES:]

    @override
    def decode(self, stored: bytes) -> tuple[int, bytes, bytes] | None:
        body = stored[DIGEST_BYTES:]
        end = 12 + int.from_bytes(body[8:12], "big")
        whole = hashlib.sha256(body).digest() + body
        if hashlib.sha256(body[end:]).digest() != stored[:DIGEST_BYTES]:
            return None
        return super().decode(whole)


class ReplacesInTwoSteps(FileTier):
    """Writes header and payload of a replacement one after the other, each with a checksum of its own."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        old = self.visible(item.key)
        if old and old.payload_bytes == item.payload.nbytes:
            kept = memoryview(bytearray(old.payload_bytes))
            self.read_one(ReadItem(key=item.key, buffer=kept))
            mixed = self.encode(old.number, item.header, bytes(kept))
            try:
                self.write(item.key, mixed)
            except OSError as error:
                self.path_of(item.key).write_bytes(self.encode(old.number, old.header, bytes(kept)))
                return PutResult(status=PutStatus.FAILED, message=str(error))
            result = super().put_one(item)
            if result.status is PutStatus.FAILED:
                self.path_of(item.key).write_bytes(self.encode(old.number, old.header, bytes(kept)))
            return result
        return super().put_one(item)


class IndexBeforeFile(FileTier):
    """Enters an image into the index before its file is written, and leaves it there when that fails."""

    @override
    def put_one(self, item: PutItem) -> PutResult:
        result = super().put_one(item)
        if result.status is PutStatus.FAILED and item.key not in self.images:
            self.images[item.key] = StoredImage(
                header=item.header, payload_bytes=item.payload.nbytes, number=self.next_number()
            )
        return result


class _WaitsForAnother(FileTier):
    """Lets a put in one thread wait shortly for a put in another, so that a race is lost every time."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Nobody waits yet."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.waiting: list[PutItem] = []
        self.is_alone = False
        self.second_came = threading.Event()
        self.first_put = threading.Event()

    def overlaps(self, item: PutItem) -> PutItem | None:
        """Return the put of another thread that waits for this one; None after waiting for another."""
        if self.is_alone or threading.current_thread() is threading.main_thread():
            return None
        with self.lock:
            other = self.waiting.pop() if self.waiting else None
            if other is None:
                self.waiting.append(item)
                self.second_came.clear()
        if other is None:
            self.is_alone = not self.second_came.wait(OVERLAP_S)
            return None
        self.first_put.clear()
        self.second_came.set()
        return other


class MixesWriters(_WaitsForAnother):
    """Two threads that put one key leave the header of one and the payload of the other."""

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        other = self.overlaps(items[0]) if items else None
        results = super().put(items)
        if other is None:
            self.first_put.set()
        elif other.key == items[0].key:
            self.first_put.wait(OVERLAP_S)
            with self.lock:
                image = self.images[other.key]
                image.header = other.header
                self.write(
                    other.key, self.encode(image.number, other.header, bytes(items[0].payload))
                )
        return results


class LosesUpdates(_WaitsForAnother):
    """Two threads that put different keys count only one of them."""

    lost = 0

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        other = self.overlaps(items[0]) if items else None
        if other and other.key != items[0].key:
            self.lost += 1
        return super().put(items)

    @override
    def used_bytes(self) -> int:
        return super().used_bytes() - self.lost


class LooksBeforeItLocks(_WaitsForAnother):
    """Looks for room, and takes the lock for storing later: two threads are given the same room."""

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        with self.lock:
            fitting = {
                item.key: FileTier.has_room(self, item.key, item.header, item.payload.nbytes)
                for item in items
            }
        if items:
            self.overlaps(items[0])
        with self.lock:
            self.fitting = fitting
            return super().put(items)

    @override
    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        fitting: dict[ImageKey, bool] = vars(self).get("fitting", {})
        return fitting.pop(key, False) or super().has_room(key, header, payload_bytes)


class ComplainsWithoutReason(FileTier):
    """`check` finds fault with images that were replaced."""

    @override
    def check(self) -> list[str]:
        first = min((image.number for image in self.images.values()), default=0)
        return super().check() + (["the first images were replaced"] if first > 5 else [])


class DeletesWhatCameBack(FileTier):
    """Takes a key for gone that was deleted, put and deleted again: the second deletion does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Nothing is deleted yet."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.deleted: set[ImageKey] = set()

    @override
    def delete_one(self, key: ImageKey) -> bool:
        image = self.visible(key)
        if image and image.payload_bytes <= 64 and key in self.deleted:
            return True
        if image:
            self.deleted.add(key)
        return super().delete_one(key)


LIFETIME_MUTANTS: Final[Mapping[type[FileTier], str]] = MappingProxyType({
    ForgetsStates: "TIER-25",
    RemembersSecretly: "TIER-26",
    KeepsTheNewest: "TIER-27",
    ShortFingerprint: "TIER-28",
    CleansUp: "TIER-29",
    NothingIsAlwaysAllowed: "TIER-30",
    ChecksWhenOpening: "TIER-31",
    PayloadChecksumOnly: "TIER-32",
    ReplacesInTwoSteps: "TIER-33",
    IndexBeforeFile: "TIER-34",
    MixesWriters: "TIER-35",
    LosesUpdates: "TIER-36",
    LooksBeforeItLocks: "TIER-18",
    ComplainsWithoutReason: "TIER-37",
    DeletesWhatCameBack: "TIER-38",
})
"""Each mutant with the one requirement that it breaks."""
