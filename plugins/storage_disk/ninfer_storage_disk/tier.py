"""The disk tier: batches of the contract on top of a store. Knows nothing about pages, models or eviction."""

import logging
from collections.abc import Iterator, Sequence
from operator import itemgetter
from threading import Condition, Lock
from typing import Final

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
    TierUnavailable,
    TierUsage,
)
from ninfer_storage_disk.about import About
from ninfer_storage_disk.checksum import checksum, compiled_sums
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.directory import Directory
from ninfer_storage_disk.entry import Entry, NewImage
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.journal import JournalHead
from ninfer_storage_disk.space import choose_block_bytes
from ninfer_storage_disk.store import Store

_log = logging.getLogger(__name__)

_MISSING: Final = ReadResult(status=ReadStatus.MISSING)
_STORED: Final = PutResult(status=PutStatus.STORED)
_ORDER: Final = itemgetter(0)
"""Images in the order of the file."""

_CAPABILITIES: Final = TierCapabilities(durable=True, enumerable=True, addressable=False)


class DiskTier(StorageTier):
    """Images on a disk.

    Puts and deletes go one after another; reads run beside them and beside each other. `close` waits for
    reads that have begun.

    Locks: the store's `write_lock`; `_state_lock` for flags and the number of readers, never while taking another.
    """

    def __init__(self, context: TierContext, config: DiskConfig, files: Files) -> None:
        """Open the store of `context.fingerprint`, or create it.

        Args:
            context: names and fingerprint.
            config: settings.
            files: the file layer.

        Raises:
            TierUnavailable: the store is in use elsewhere, or its files cannot be opened.
        """
        root = config.path or context.cache_dir / "disk" / context.tier_name
        head = JournalHead(
            choose_block_bytes(context.page_image_bytes), context.fingerprint.ljust(32, b"\0")[:32]
        )
        self._state_lock = Lock()
        self._readers_done = Condition(self._state_lock)
        self._num_readers = 0
        self._is_closed = False
        try:
            self._directory = Directory(files, root, int(config.capacity))
            if config.reclaim_other_models:
                own = self._directory.store_path(head.fingerprint)
                for name in self._directory.reclaim(own, int(config.capacity) // 2):
                    _log.warning("disk_store_reclaimed tier=%s store=%s", context.tier_name, name)
            self._store = Store(
                files,
                self._directory,
                head,
                sync=config.sync == "batch",
                about=About(context.model_name, context.page_image_bytes),
                by_value=context.by_value,
            )
        except OSError as error:
            raise TierUnavailable(
                f"disk tier {context.tier_name!r} cannot open {root}: {error}"
            ) from error

    @classmethod
    def open(cls, context: TierContext, config: DiskConfig) -> "DiskTier":
        """Open a tier. Reads the journal, no payloads."""
        compiled_sums()  # now, and not while the first image waits for it
        return cls(context, config, Files())

    @property
    @override
    def capabilities(self) -> TierCapabilities:
        return _CAPABILITIES

    @override
    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        with self._store.write_lock:
            self._require_open()
            results: list[PutResult] = []
            if error := self._ensure_present():
                return [PutResult(status=PutStatus.FAILED, message=str(error))] * len(items)
            for group in _groups_of_different_keys(items):
                results += self._put_group(group)
            return results

    @override
    def read_into(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        with self._state_lock:
            self._require_open()
            self._num_readers += 1
        try:
            return self._read_all(items)
        finally:
            with self._state_lock:
                self._num_readers -= 1
                self._readers_done.notify_all()

    @override
    def contains(self, keys: Sequence[ImageKey]) -> list[bool]:
        self._require_open()
        return [self._store.find(key) is not None for key in keys]

    @override
    def delete(self, keys: Sequence[ImageKey]) -> list[bool]:
        with self._store.write_lock:
            self._require_open()
            return [
                entry is not None and self._store.drop(entry)
                for entry in map(self._store.find, keys)
            ]

    @override
    def usage(self) -> TierUsage:
        self._require_open()
        return TierUsage(
            capacity_bytes=self._store.capacity_bytes,
            used_bytes=self._store.used_bytes,
            num_images=self._store.num_images,
            events=dict(self._store.events),
        )

    @override
    def stored_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        return self._store.image_bytes(header_bytes, payload_bytes)

    @override
    def check(self) -> list[str]:
        with self._store.write_lock:
            self._require_open()
            return [*self._store.check(), *self._directory.check()]

    @override
    def records(self) -> Iterator[ImageRecord]:
        self._require_open()
        return iter([entry.record for entry in self._store.entries()])

    @override
    def close(self) -> None:
        with self._state_lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._readers_done.wait_for(lambda: self._num_readers == 0)
        with self._store.write_lock:
            self._store.close()
            self._directory.close()

    def _put_group(self, items: Sequence[PutItem]) -> list[PutResult]:
        images = [NewImage(item.key, bytes(item.header), _flat(item.payload)) for item in items]
        entries = self._store.find_all([item.key for item in items])
        is_held = list(map(_holds, entries, images))
        new = [image for image, held in zip(images, is_held, strict=True) if not held]
        written = iter(self._store.write(new))
        return [_STORED if held else next(written) for held in is_held]

    def _read_all(self, items: Sequence[ReadItem]) -> list[ReadResult]:
        if self._store.is_deleted():
            with self._store.write_lock:
                if error := self._ensure_present():
                    return [ReadResult(status=ReadStatus.FAILED, message=str(error))] * len(items)
        entries = self._store.find_all([item.key for item in items])
        results = [_MISSING] * len(items)
        found: list[tuple[int, int, Entry, memoryview]] = []
        for number, (entry, item) in enumerate(zip(entries, items, strict=True)):
            if entry is None:
                continue
            buffer = _flat(item.buffer)
            if len(buffer) == entry.num_bytes:
                found.append((entry.start, number, entry, buffer))
            else:
                message = f"buffer of {len(buffer)} bytes for an image of {entry.num_bytes} bytes"
                results[number] = ReadResult(status=ReadStatus.FAILED, message=message)
        found.sort(key=_ORDER)
        statuses = self._store.read([(entry, buffer) for _, _, entry, buffer in found])
        for (_, number, entry, _), status in zip(found, statuses, strict=True):
            if status is ReadStatus.READ:
                results[number] = ReadResult(status=ReadStatus.READ, header=entry.header)
            else:
                results[number] = self._no_result(entry, status)
        return results

    def _no_result(self, entry: Entry, status: ReadStatus | OSError) -> ReadResult:
        if isinstance(status, OSError):
            return ReadResult(status=ReadStatus.FAILED, message=str(status))
        if status is ReadStatus.CORRUPT:
            with self._store.write_lock:
                self._store.events.quarantined(self._store.drop(entry))
        return ReadResult(
            status=status, message=f"{entry.key.text}: the stored bytes are not those that were put"
        )

    def _ensure_present(self) -> OSError | None:
        """Repair files that were deleted under us. Needs `write_lock`."""
        try:
            self._store.restore_files()
        except OSError as error:
            return error
        return None

    def _require_open(self) -> None:
        if self._is_closed:
            raise TierClosed("the disk tier is closed")


def _holds(entry: Entry | None, image: NewImage) -> bool:
    return (
        entry is not None
        and entry.num_bytes == len(image.payload)
        and entry.header == image.header
        and entry.checksum == checksum(image.payload)
    )


def _flat(buffer: memoryview) -> memoryview:
    """Return a buffer as bytes in one dimension (`cast` refuses empty buffers)."""
    if buffer.format == "B" and buffer.ndim == 1:
        return buffer
    return buffer.cast("B") if buffer.nbytes else memoryview(b"")


def _groups_of_different_keys(items: Sequence[PutItem]) -> Iterator[Sequence[PutItem]]:
    """Cut a batch so that no group names a key twice."""
    if len({item.key for item in items}) == len(items):
        yield items
        return
    group: list[PutItem] = []
    keys: set[ImageKey] = set()
    for item in items:
        if item.key in keys:
            yield group
            group, keys = [], set()
        group.append(item)
        keys.add(item.key)
    if group:
        yield group
