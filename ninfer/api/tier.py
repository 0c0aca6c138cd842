"""The contract of a storage tier. Knows nothing about pages, models or who decides what is stored.

A tier is synchronous and thread-safe. The core calls it from its own worker threads only, never from the
token path, and adds queues, leases, deadlines, metrics and error translation around it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ninfer.api.clock import Clock
from ninfer.api.errors import Unsupported
from ninfer.api.image import ImageKey, ImageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCapabilities:
    """Promises of an implementation. Each is tested both ways."""

    durable: bool = False
    """Images survive `close` and reopening on the same place, also in a new process."""
    enumerable: bool = False
    """`records` lists every stored image. Without it, `records` raises Unsupported."""
    addressable: bool = False
    """`view`, `allocate` and `commit` give direct access to the bytes in host memory, so that the core copies
    once between device and tier. Without it they raise Unsupported."""
    shared: bool = False
    """Other processes may store and delete images here while the tier is open; `changes` tells what they did. Without
    it, `changes` raises Unsupported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierUsage:
    """Bytes of a tier: `used_bytes <= capacity_bytes` at every moment.

    Attributes:
        capacity_bytes: bytes the tier may hold, overhead included.
        used_bytes: bytes taken now, overhead included: the sum of `stored_bytes` over all images, allocated ones
            included.
        num_images: stored images.
        events: what the tier counted since it was opened, for metrics: names in snake_case, numbers that never go down.
            "no_space" is a write that the storage had no room for although the capacity had; "quarantined" is
            something damaged that was put aside or given up.
    """

    capacity_bytes: int
    used_bytes: int
    num_images: int
    events: Mapping[str, int] = field(default_factory=dict)


class HostAllocator(Protocol):
    """Gives host memory that the device can copy to and from fast (pinned where that exists)."""

    def allocate_host(self, num_bytes: int) -> memoryview:
        """Return writable, zero-filled memory of `num_bytes`; freed when no view refers to it any more."""
        ...


def newest_first(records: Sequence[ImageRecord]) -> list[ImageRecord]:
    """Order records given oldest first: the default of `TierContext.by_value`."""
    return list(reversed(records))


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContext:
    """What the core hands to a tier when it opens it. Grows by fields with defaults.

    Attributes:
        tier_name: name of the instance in the configuration.
        fingerprint: 32 bytes that name everything which must match for stored images to be usable: weights,
            tokenizer, KV dtype, page layout, state layout, drafter, format version. Images of another
            fingerprint must never be returned, and need not be deleted.
        model_name: for people; part of no identity.
        page_image_bytes: payload length of a full page image; most images have it.
        state_image_bytes: payload length of a state image, 0 for models without state.
        clock: source of time.
        host_allocator: for tiers in host memory.
        cache_dir: folder for files of ninfer on this machine; created private to the user.
        by_value: orders stored images, given oldest first, most valuable first: for a durable tier that finds
            more than its capacity when it opens and must choose what to keep. No image comes before one that it
            is of no use without. Pure; called while opening.
    """

    tier_name: str
    fingerprint: bytes
    clock: Clock
    host_allocator: HostAllocator
    model_name: str = ""
    page_image_bytes: int = 0
    state_image_bytes: int = 0
    cache_dir: Path = field(default_factory=Path)
    by_value: Callable[[Sequence[ImageRecord]], Sequence[ImageRecord]] = newest_first


class PutStatus(StrEnum):
    """What became of one image given to `put`."""

    STORED = "stored"
    """The image is stored (also if it was there before with the same key)."""
    FULL = "full"
    """No room; nothing changed. The tier never evicts by itself."""
    FAILED = "failed"
    """An I/O error; nothing is visible under the key that was not there before."""


class ReadStatus(StrEnum):
    """What became of one image asked of `read_into`."""

    READ = "read"
    MISSING = "missing"
    CORRUPT = "corrupt"
    """Stored bytes are not what was given; the tier no longer reports the image as contained."""
    FAILED = "failed"
    """An I/O error; the image may be readable later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutItem:
    """One image to store.

    Attributes:
        key: its name.
        header: at most 4,096 bytes, returned unchanged by `read_into` and `records`.
        payload: the bytes, borrowed until the call returns.
    """

    key: ImageKey
    header: bytes
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """Answer to one `PutItem`. `message` says what went wrong, for the log."""

    status: PutStatus
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadItem:
    """One image to read.

    Attributes:
        key: its name.
        buffer: writable, exactly as long as the payload, borrowed until the call returns. For one of another
            length the status is FAILED.
    """

    key: ImageKey
    buffer: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Answer to one `ReadItem`. On any status but READ the buffer's content is undefined.

    Attributes:
        status: what happened.
        header: the stored header, empty unless READ.
        message: what went wrong, for the log.
    """

    status: ReadStatus
    header: bytes = b""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierChanges:
    """What other processes did to a shared tier since a place in time.

    Attributes:
        records: images they stored and that are there now; may repeat what is known, and own ones.
        removed: images they deleted; may be incomplete, for a read of such an image is MISSING anyway.
        cursor: the place after these changes, for the next call; opaque, never empty.
    """

    records: Sequence[ImageRecord] = ()
    removed: Sequence[ImageKey] = ()
    cursor: bytes = b""


class StorageTier(ABC):
    """One storage level for byte images.

    Thread-safe; every call may block on I/O. Results come one per item and in order. A tier never drops an
    image by itself: room is made by `delete`, and what is too much is refused with FULL.
    """

    @property
    @abstractmethod
    def capabilities(self) -> TierCapabilities:
        """The promises of this tier; constant over its life."""

    @abstractmethod
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        """Store images, each all-or-nothing, in order.

        Args:
            items: images; putting a stored key again with the same content answers STORED and changes nothing;
                other content replaces header and payload as one.

        Returns:
            One result per item, in order.

        Raises:
            TierClosed: after `close`.
        """

    @abstractmethod
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        """Read images into the caller's buffers.

        Args:
            items: what to read and where to.

        Returns:
            One result per item, in order. Bytes are exactly those that were put, or the status is not READ.

        Raises:
            TierClosed: after `close`.
        """

    @abstractmethod
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        """Tell for each key whether an image is stored. Changes nothing, reads no payload.

        Raises:
            TierClosed: after `close`.
        """

    @abstractmethod
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        """Remove images; for each key, tell whether it was there. Room is free on return.

        Raises:
            TierClosed: after `close`.
        """

    @abstractmethod
    def usage(self) -> TierUsage:
        """Return bytes and images stored now. Cheap; does not touch storage."""

    @abstractmethod
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        """Return how many bytes of capacity one image takes, overhead included. Used by the ledger.

        Pure, and never less for a longer header or payload.

        Args:
            header_bytes: length of the header.
            payload_bytes: length of the payload.
        """

    @abstractmethod
    def check(self) -> list[str]:
        """Verify the tier's own invariants; return a sentence for each broken one. May be slow."""

    @abstractmethod
    def close(self) -> None:
        """Flush and release everything. Later calls raise TierClosed; closing twice is allowed."""

    def records(self) -> Iterator[ImageRecord]:
        """List stored images. Order: least valuable first if the tier knows, else any.

        Raises:
            Unsupported: without the capability `enumerable`.
            TierClosed: after `close`.
        """
        raise Unsupported(f"{type(self).__name__} is not enumerable")

    def changes(self, cursor: bytes, limit: int) -> TierChanges:
        """Tell what other processes stored and deleted. Reads no payload; may block on I/O.

        A tier that cannot tell any more (its log was cut, everything was deleted, own deletions could not be carried
        out) lists everything stored, over as many calls as that takes. While the storage does not answer, there are
        no changes and the cursor stays.

        Args:
            cursor: of the last answer. Empty asks for the present place only, without changes: to be taken before
                `records` is called, so that nothing falls between the two.
            limit: how many images to tell of, about; >= 1.

        Raises:
            Unsupported: without the capability `shared`.
            TierClosed: after `close`.
        """
        raise Unsupported(f"{type(self).__name__} is not shared")

    def view(self, key: ImageKey) -> tuple[bytes, memoryview] | None:
        """Give direct read access: (header, payload), or None if the key is not stored, or not in one piece.

        Whoever gets None asks `read_into`. The view stays valid until the image is deleted; the core leases it so that nobody does.

        Raises:
            Unsupported: without the capability `addressable`.
            TierClosed: after `close`.
        """
        raise Unsupported(f"{type(self).__name__} is not addressable")

    def view_run(self, keys: Sequence[ImageKey]) -> tuple[Sequence[bytes], memoryview] | None:
        """Give direct read access to the first of some images, and to those after it that lie right behind it.

        All of them are as long as the first: whoever reads can only compare the length of the whole.

        Models with short pages have many small images, and asking for each costs more than its bytes. The default shows one
        image, as `view` does.

        Args:
            keys: at least one.

        Returns:
            Headers of the first images, at least one of them, and their payloads, one behind the other. None if `view` of
            the first is None. Valid as long as a view of each of them.

        Raises:
            Unsupported: without the capability `addressable`.
            TierClosed: after `close`.
        """
        found = self.view(keys[0])
        return None if found is None else ([found[0]], found[1])

    def allocate(self, key: ImageKey, header: bytes, payload_bytes: int) -> memoryview | None:
        """Take room for an image and give write access; None if there is no room in one piece or the key is taken.

        Whoever gets None asks `put`. The image is invisible until `commit`; `delete` gives the room back.

        Raises:
            Unsupported: without the capability `addressable`.
            TierClosed: after `close`.
        """
        raise Unsupported(f"{type(self).__name__} is not addressable")

    def commit(self, key: ImageKey) -> None:
        """Make an allocated image visible.

        Raises:
            Unsupported: without the capability `addressable`.
            TierClosed: after `close`.
            TierError: the key was not allocated.
        """
        raise Unsupported(f"{type(self).__name__} is not addressable")
