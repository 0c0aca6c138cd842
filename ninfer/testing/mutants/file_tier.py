"""A correct tier in the plainest way: one file per image. Every mutant of a tier is this one with one mistake."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import ClassVar, Final

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageKind,
    ImageRecord,
    PutItem,
    PutResult,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierCapabilities,
    TierClosed,
    TierContext,
    TierError,
    TierUsage,
    Unsupported,
)
from ninfer.testing.faults import StorageFaults

OVERHEAD_BYTES: Final = 64
"""Counted per image for the checksum and the lengths."""
DIGEST_BYTES: Final = 32
NAME: Final = re.compile(r"(page|state)-([0-9a-f]{64})(\.new)?")


@dataclass(slots=True, kw_only=True)
class StoredImage:
    """One image of the index.

    Attributes:
        header: as given.
        payload_bytes: length of the payload.
        number: counts up with every image put: the order in which they came.
        memory: the payload, for images that were allocated or viewed.
        is_committed: visible.
    """

    header: bytes
    payload_bytes: int
    number: int
    memory: bytearray | None = None
    is_committed: bool = True


class FileTier(StorageTier):
    """Images in files `<root>/<fingerprint>/<kind>-<digest>`: checksum, number, header length, header, payload.

    The checksum covers all that follows it. A file is written under another name and renamed. One lock is held
    during every call.
    """

    promises: ClassVar[TierCapabilities] = TierCapabilities(
        durable=True, enumerable=True, addressable=True
    )

    def __init__(
        self,
        context: TierContext,
        root: Path,
        capacity_bytes: int = 256 << 10,
        *,
        faults: StorageFaults | None = None,
    ) -> None:
        """Open; reads all files.

        Args:
            context: fingerprint and order of value.
            root: folder.
            capacity_bytes: what the tier may hold.
            faults: what goes wrong with writes.
        """
        self.folder = root / self.folder_name(context.fingerprint)
        self.capacity_bytes = capacity_bytes
        self.faults = faults or StorageFaults()
        self.images: dict[ImageKey, StoredImage] = {}
        self.lock = RLock()
        self.is_closed = False
        self.folder.mkdir(exist_ok=True)
        self.load()
        self.fit(context)

    def folder_name(self, fingerprint: bytes) -> str:
        """Return the folder of a model."""
        return fingerprint.hex()

    def path_of(self, key: ImageKey) -> Path:
        """Return the file of a key."""
        return self.folder / key.text

    def load(self) -> None:
        """Read all files of this tier; delete its own that are unfinished or damaged, ignore all others."""
        found: list[tuple[int, ImageKey, StoredImage]] = []
        for path in self.folder.iterdir():
            name = NAME.fullmatch(path.name)
            if name is None:
                continue
            key = ImageKey(digest=bytes.fromhex(name[2]), kind=ImageKind(name[1]))
            decoded = None if name[3] else self.decode(path.read_bytes())
            if decoded is None:
                path.unlink()
            else:
                number, header, payload = decoded
                image = StoredImage(header=header, payload_bytes=len(payload), number=number)
                found.append((number, key, image))
        self.images = {key: image for _, key, image in sorted(found, key=lambda item: item[0])}

    def fit(self, context: TierContext) -> None:
        """Keep the most valuable images that fit."""
        if self.used_bytes() <= self.capacity_bytes:
            return
        room = self.capacity_bytes
        for record in context.by_value(list(self.records())):
            room -= self.stored_bytes(len(record.header), record.num_bytes)
            if room < 0:
                self.forget(record.key)

    def encode(self, number: int, header: bytes, payload: bytes) -> bytes:
        """Return the bytes of a file."""
        body = number.to_bytes(8, "big") + len(header).to_bytes(4, "big") + header + payload
        return hashlib.sha256(body).digest() + body

    def decode(self, stored: bytes) -> tuple[int, bytes, bytes] | None:
        """Return (number, header, payload) of a file, None if it is damaged."""
        body = stored[DIGEST_BYTES:]
        if len(body) < 12 or hashlib.sha256(body).digest() != stored[:DIGEST_BYTES]:
            return None
        end = 12 + int.from_bytes(body[8:12], "big")
        return int.from_bytes(body[:8], "big"), body[12:end], body[end:]

    def write(self, key: ImageKey, stored: bytes) -> None:
        """Write a file whole or not at all.

        Raises:
            OSError: the file system refused.
        """
        path = self.path_of(key)
        new = path.with_name(path.name + ".new")
        self.faults.change(lambda: new.write_bytes(stored[: len(stored) // 2]))
        new.write_bytes(stored)
        self.faults.change()
        new.replace(path)

    def forget(self, key: ImageKey) -> None:
        """Remove an image from index and folder."""
        self.faults.change()
        self.path_of(key).unlink(missing_ok=True)
        del self.images[key]

    def used_bytes(self) -> int:
        """Return the bytes that all images take."""
        return sum(
            self.stored_bytes(len(image.header), image.payload_bytes)
            for image in self.images.values()
        )

    def has_room(self, key: ImageKey, header: bytes, payload_bytes: int) -> bool:
        """Tell whether an image fits, beside what it would replace."""
        old = self.images.get(key)
        freed = self.stored_bytes(len(old.header), old.payload_bytes) if old else 0
        wanted = self.stored_bytes(len(header), payload_bytes)
        return self.used_bytes() - freed + wanted <= self.capacity_bytes

    def next_number(self) -> int:
        """Return the number of the next image."""
        return 1 + max((image.number for image in self.images.values()), default=0)

    def require_open(self) -> None:
        """Refuse work after close.

        Raises:
            TierClosed: the tier is closed.
        """
        if self.is_closed:
            raise TierClosed("the tier is closed")

    def visible(self, key: ImageKey) -> StoredImage | None:
        """Return a committed image."""
        image = self.images.get(key)
        return image if image and image.is_committed else None

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        return self.promises

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        with self.lock:
            self.require_open()
            return [self.put_one(item) for item in items]

    def put_one(self, item: PutItem) -> PutResult:
        """Store one image."""
        payload = bytes(item.payload)
        if not self.has_room(item.key, item.header, len(payload)):
            return PutResult(status=PutStatus.FULL)
        old = self.images.get(item.key)
        if old and not old.is_committed:
            return PutResult(status=PutStatus.FAILED, message="allocated and not committed")
        number = self.next_number()
        try:
            self.write(item.key, self.encode(number, item.header, payload))
        except OSError as error:
            return PutResult(status=PutStatus.FAILED, message=str(error))
        self.images[item.key] = StoredImage(
            header=item.header, payload_bytes=len(payload), number=number
        )
        return PutResult(status=PutStatus.STORED)

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        with self.lock:
            self.require_open()
            return [self.read_one(item) for item in items]

    def read_one(self, item: ReadItem) -> ReadResult:
        """Read one image."""
        image = self.visible(item.key)
        if image is None:
            return ReadResult(status=ReadStatus.MISSING)
        if item.buffer.nbytes != image.payload_bytes:
            return ReadResult(status=ReadStatus.FAILED, message="buffer of another length")
        try:
            decoded = self.decode(self.path_of(item.key).read_bytes())
        except OSError as error:
            return ReadResult(status=ReadStatus.FAILED, message=str(error))
        if decoded is None:
            self.forget(item.key)
            return ReadResult(status=ReadStatus.CORRUPT)
        item.buffer[:] = decoded[2]
        return ReadResult(status=ReadStatus.READ, header=decoded[1])

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self.lock:
            self.require_open()
            return [self.visible(key) is not None for key in keys]

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self.lock:
            self.require_open()
            return [self.delete_one(key) for key in keys]

    def delete_one(self, key: ImageKey) -> bool:
        """Remove one image; tell whether it was visible."""
        was_visible = self.visible(key) is not None
        if key in self.images:
            self.forget(key)
        return was_visible

    @override
    def usage(self) -> TierUsage:
        with self.lock:
            self.require_open()
            return TierUsage(
                capacity_bytes=self.capacity_bytes,
                used_bytes=self.used_bytes(),
                num_images=sum(image.is_committed for image in self.images.values()),
            )

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        return OVERHEAD_BYTES + header_bytes + payload_bytes

    @override
    def check(self) -> list[str]:
        with self.lock:
            self.require_open()
            return [
                f"{key.text} is in the index and has no file"
                for key, image in self.images.items()
                if image.is_committed and not self.path_of(key).exists()
            ]

    @override
    def close(self) -> None:
        with self.lock:
            self.is_closed = True

    @override
    def records(self) -> Iterator[ImageRecord]:
        with self.lock:
            self.require_open()
            self.require(is_promised=self.promises.enumerable)
            return iter([
                ImageRecord(key=key, header=image.header, num_bytes=image.payload_bytes)
                for key, image in self.images.items()
                if image.is_committed
            ])

    def require(self, *, is_promised: bool) -> None:
        """Refuse what the tier does not promise.

        Raises:
            Unsupported: it is not promised.
        """
        if not is_promised:
            raise Unsupported(f"{type(self).__name__} does not promise this")

    @override
    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        with self.lock:
            self.require_open()
            self.require(is_promised=self.promises.addressable)
            image = self.visible(key)
            if image is None:
                return None
            if image.memory is None:
                image.memory = bytearray(image.payload_bytes)
                self.read_one(ReadItem(key=key, buffer=memoryview(image.memory)))
            return image.header, memoryview(image.memory).toreadonly()

    @override
    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        with self.lock:
            self.require_open()
            self.require(is_promised=self.promises.addressable)
            if key in self.images or not self.has_room(key, header, payload_bytes):
                return None
            image = StoredImage(
                header=header,
                payload_bytes=payload_bytes,
                number=self.next_number(),
                memory=bytearray(payload_bytes),
                is_committed=False,
            )
            self.images[key] = image
            return memoryview(image.memory or bytearray())

    @override
    def commit(self, key: ImageKey) -> None:
        with self.lock:
            self.require_open()
            self.require(is_promised=self.promises.addressable)
            image = self.images.get(key)
            if image is None or image.is_committed or image.memory is None:
                raise TierError(f"{key.text} was not allocated")
            self.write(key, self.encode(image.number, image.header, bytes(image.memory)))
            image.is_committed = True
