"""The host tier: images in the arena, by key. Knows nothing about devices, pages or eviction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, Lock

import numpy as np
from typing_extensions import override

from ninfer.api import (
    ImageKey,
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
)
from ninfer_storage_host.arena import Arena, Extent, round_up
from ninfer_storage_host.config import HostConfig

_CAPABILITIES = TierCapabilities(durable=False, enumerable=True, addressable=True)
_MISSING = ReadResult(status=ReadStatus.MISSING)


@dataclass(slots=True, eq=False)
class _Image:
    """One image.

    Attributes:
        header: as given.
        extents: where the payload is; several only if the arena was in pieces.
        num_bytes: payload length.
        is_committed: visible.
        num_users: threads that are copying from or to it now.
        is_retired: replaced; the last user frees the extents.
    """

    header: bytes
    extents: tuple[Extent, ...]
    num_bytes: int
    is_committed: bool
    num_users: int = 0
    is_retired: bool = False


class HostTier(StorageTier):
    """Images in host memory.

    One lock, never held while bytes are copied. An image that is being copied keeps its extents until the copy
    ends: `delete` waits for it, a replacing `put` leaves the old ones to the last reader. An image fits if its bytes
    are free, wherever they are; one in pieces has no `view`, and `allocate` gives whole runs only.

    Invariants:
        used_bytes = sum of the extents of all images, allocated and in-flight ones included
        arena.free_bytes + used_bytes = capacity_bytes
    """

    def __init__(self, context: TierContext, capacity_bytes: int) -> None:
        """Allocate the arena.

        Args:
            context: names, image lengths and the host allocator.
            capacity_bytes: bytes to take.
        """
        self._arena = Arena(
            context.host_allocator, capacity_bytes, slot_bytes=context.page_image_bytes
        )
        self._images: dict[ImageKey, _Image] = {}
        self._loose: set[_Image] = set()
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._is_closed = False

    @classmethod
    def open(cls, context: TierContext, config: HostConfig) -> "HostTier":
        """Open a tier; takes all of its memory at once."""
        return cls(context, config.resolve_capacity_bytes())

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        return _CAPABILITIES

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        with self._lock:
            self._require_open()
        return [self._put(item) for item in items]

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        with self._lock:
            self._require_open()
            images = [self._visible(item.key) for item in items]
            results = [_read_result(*pair) for pair in zip(images, items, strict=True)]
            reading = [
                (image, item.buffer, self._arena.views(image.extents, image.num_bytes))
                for image, item, result in zip(images, items, results, strict=True)
                if image is not None and result.status is ReadStatus.READ
            ]
            for image, _, _ in reading:
                image.num_users += 1
        try:
            for _, buffer, stored in reading:
                for held, part in _parts(stored, _flat(buffer)):
                    _copy(part, held)
        finally:
            with self._lock:
                for image, _, _ in reading:
                    self._release(image)
                self._idle.notify_all()
        return results

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self._lock:
            self._require_open()
            return [self._visible(key) is not None for key in keys]

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self._lock:
            self._require_open()
            return [self._delete(key) for key in keys]

    @override
    def usage(self) -> TierUsage:
        with self._lock:
            self._require_open()
            return TierUsage(
                capacity_bytes=self._arena.capacity_bytes,
                used_bytes=self._arena.capacity_bytes - self._arena.free_bytes,
                num_images=sum(image.is_committed for image in self._images.values()),
            )

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        del header_bytes  # headers live in the index, outside the arena
        return round_up(payload_bytes)

    @override
    def check(self) -> list[str]:
        with self._lock:
            self._require_open()
            images = [*self._images.values(), *self._loose]
            problems = self._arena.check([extent for image in images for extent in image.extents])
            used = 0
            for image in images:
                length = sum(extent.length for extent in image.extents)
                used += length
                if length != round_up(image.num_bytes):
                    problems.append(
                        f"host tier: {length} bytes taken for an image of {image.num_bytes} bytes"
                    )
            if used + self._arena.free_bytes != self._arena.capacity_bytes:
                problems.append(
                    f"host tier: {used} bytes used + {self._arena.free_bytes} free is not the capacity"
                )
            return problems

    @override
    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._images.clear()
                self._arena.close()

    @override
    def records(self) -> Iterator[ImageRecord]:
        with self._lock:
            self._require_open()
            return iter([
                ImageRecord(key=key, header=image.header, num_bytes=image.num_bytes)
                for key, image in self._images.items()
                if image.is_committed
            ])

    @override
    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        with self._lock:
            self._require_open()
            image = self._visible(key)
            if image is None or len(image.extents) > 1:
                return None
            return image.header, self._arena.view(image.extents[0], image.num_bytes)

    @override
    def view_run(self, keys: Sequence[ImageKey]) -> tuple[Sequence[bytes], memoryview] | None:
        with self._lock:
            self._require_open()
            first = self._visible(keys[0])
            if first is None or len(first.extents) > 1:
                return None
            start = first.extents[0].start
            end, most = start, self._arena.chunk_end(start)
            headers: list[bytes] = []
            for key in keys:
                image = self._visible(key)
                if image is None or image.extents[0].start != end or end == most:
                    break
                if len(image.extents) > 1 or image.num_bytes != first.num_bytes:
                    break
                headers.append(image.header)
                end += image.num_bytes
            return headers, self._arena.view(Extent(start, end - start), end - start)

    @override
    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        with self._lock:
            self._require_open()
            if key in self._images:
                return None
            extent = self._arena.take(payload_bytes)
            if extent is None:
                return None
            self._images[key] = _Image(bytes(header), (extent,), payload_bytes, is_committed=False)
            return self._arena.view(extent, payload_bytes)

    @override
    def commit(self, key: ImageKey) -> None:
        with self._lock:
            self._require_open()
            image = self._images.get(key)
            if image is None or image.is_committed:
                raise TierError(f"commit of {key.text}: it was not allocated")
            image.is_committed = True

    def _put(self, item: PutItem) -> PutResult:
        payload = _flat(item.payload)
        if self._holds(item, payload):
            return PutResult(status=PutStatus.STORED)
        with self._lock:
            self._require_open()
            extents = self._arena.take_pieces(len(payload))
            if extents is None:
                return PutResult(status=PutStatus.FULL, message=self._full_message(len(payload)))
            image = _Image(
                bytes(item.header), extents, len(payload), is_committed=True, num_users=1
            )
            self._loose.add(image)
            targets = self._arena.views(extents, len(payload))
        try:
            for target, part in _parts(targets, payload):
                _copy(target, part)
        except BaseException:
            with self._lock:
                self._loose.discard(image)
                self._arena.give_pieces(extents)
            raise
        with self._lock:
            self._loose.discard(image)
            self._release(image)
            self._idle.notify_all()
            if self._is_closed:
                raise TierClosed("the tier was closed during a put")
            before = self._images.get(item.key)
            if before is not None and not before.is_committed:
                self._arena.give_pieces(extents)
                return PutResult(
                    status=PutStatus.FAILED, message="the key is allocated and not committed"
                )
            if before is not None:
                self._retire(before)
            self._images[item.key] = image
        return PutResult(status=PutStatus.STORED)

    def _holds(self, item: PutItem, payload: memoryview) -> bool:
        """Tell whether exactly this image is stored. Compares bytes without the lock."""
        with self._lock:
            self._require_open()
            image = self._visible(item.key)
            if image is None or image.header != item.header or image.num_bytes != len(payload):
                return False
            image.num_users += 1
            stored = self._arena.views(image.extents, image.num_bytes)
        try:
            return all(
                np.array_equal(np.asarray(held), np.asarray(part))
                for held, part in _parts(stored, payload)
            )
        finally:
            with self._lock:
                self._release(image)
                self._idle.notify_all()

    def _delete(self, key: ImageKey) -> bool:
        image = self._images.pop(key, None)
        if image is None:
            return False
        self._loose.add(image)
        self._idle.wait_for(lambda: image.num_users == 0)
        self._loose.discard(image)
        if not self._is_closed:
            self._arena.give_pieces(image.extents)
        return image.is_committed

    def _retire(self, image: _Image) -> None:
        """Free the extents of a replaced image, or leave that to its last user."""
        if image.num_users:
            image.is_retired = True
            self._loose.add(image)
        else:
            self._arena.give_pieces(image.extents)

    def _release(self, image: _Image) -> None:
        image.num_users -= 1
        if image.is_retired and not image.num_users:
            self._loose.discard(image)
            self._arena.give_pieces(image.extents)

    def _visible(self, key: ImageKey) -> _Image | None:
        image = self._images.get(key)
        return image if image is not None and image.is_committed else None

    def _require_open(self) -> None:
        if self._is_closed:
            raise TierClosed("the host tier is closed")

    def _full_message(self, num_bytes: int) -> str:
        return f"{round_up(num_bytes)} bytes wanted, {self._arena.free_bytes} bytes free"


def _read_result(image: _Image | None, item: ReadItem) -> ReadResult:
    """Return what reading an image, if there is one, into a buffer comes to."""
    if image is None:
        return _MISSING
    if item.buffer.nbytes != image.num_bytes:
        message = f"buffer of {item.buffer.nbytes} bytes for an image of {image.num_bytes} bytes"
        return ReadResult(status=ReadStatus.FAILED, message=message)
    return ReadResult(status=ReadStatus.READ, header=image.header)


def _parts(
    pieces: Sequence[memoryview], whole: memoryview
) -> Iterator[tuple[memoryview, memoryview]]:
    """Pair pieces of memory, in order, with the parts of `whole` that belong there."""
    at = 0
    for piece in pieces:
        yield piece, whole[at : at + len(piece)]
        at += len(piece)


def _flat(buffer: memoryview) -> memoryview:
    """Return a buffer as bytes in one dimension (`cast` refuses empty buffers)."""
    if buffer.format == "B" and buffer.ndim == 1:
        return buffer
    return buffer.cast("B") if buffer.nbytes else memoryview(b"")


def _copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes; numpy lets go of the GIL for it."""
    if len(source):
        np.copyto(np.asarray(target), np.asarray(source))
