"""Offline access to all stores below a directory. Looking takes no lock for longer than a moment and writes nothing."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ByteSize
from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageRecord,
    PutItem,
    PutResult,
    ReadItem,
    ReadResult,
    ReadStatus,
    StoreInfo,
    TierArchive,
    TierContext,
    TierError,
    TierUnavailable,
)
from ninfer_storage_disk.about import About, read_about
from ninfer_storage_disk.checksum import checksum
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.directory import DATA, JOURNAL, LOCK, store_folders
from ninfer_storage_disk.entry import Entry
from ninfer_storage_disk.filelock import try_lock
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.journal import FILE_HEAD_BYTES, JournalHead, decode_head, scan
from ninfer_storage_disk.recovery import choose_live
from ninfer_storage_disk.tier import DiskTier

_NO_CAP: Final = sys.maxsize
"""Offline work never drops images for the cap's sake; the server does when it opens the store again."""


class DiskArchive(TierArchive):
    """Stores of a disk tier's directory.

    A store is opened like a server does, and stays so until `close`, when something is put or deleted.
    """

    def __init__(self, root: Path) -> None:
        """Look at a directory; nothing is opened yet."""
        self._root = root
        self._files = Files()
        self._opened: dict[str, DiskTier] = {}
        self._seen: dict[str, tuple[JournalHead, dict[ImageKey, Entry]]] = {}

    @classmethod
    def open(cls, root: Path) -> "DiskArchive":
        """Open the directory of a disk tier, which may be empty.

        Raises:
            TierUnavailable: there is no such directory.
        """
        if not root.is_dir():
            raise TierUnavailable(f"{root} is not a directory; give the `path` of a disk tier")
        return cls(root)

    @override
    def stores(self) -> list[StoreInfo]:
        return [self._info(folder) for folder in sorted(store_folders(self._root))]

    @override
    def records(self, store_id: str) -> Iterator[ImageRecord]:
        _, entries = self._look(store_id)
        return iter([entry.record for entry in entries.values()])

    @override
    def read_into(self, store_id: str, items: Sequence[ReadItem]) -> list[ReadResult]:
        if store_id not in self._seen:
            self._look(store_id)
        head, entries = self._seen[store_id]
        path = self._root / store_id / DATA
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise TierUnavailable(f"cannot read {path}: {error}") from error
        try:
            return [
                self._read(handle, head.block_bytes, entries.get(item.key), item.buffer)
                for item in items
            ]
        finally:
            os.close(handle)

    @override
    def delete(self, store_id: str, keys: Sequence[ImageKey]) -> list[bool]:
        head, _ = self._look(store_id)
        return self._open(store_id, head.fingerprint, read_about(self._root / store_id)).delete(
            keys
        )

    @override
    def put(self, info: StoreInfo, items: Sequence[PutItem]) -> list[PutResult]:
        about = About(info.model_name, info.page_image_bytes)
        return self._open(info.store_id, info.fingerprint, about).put(items)

    @override
    def close(self) -> None:
        while self._opened:
            _, tier = self._opened.popitem()
            tier.close()

    def _info(self, folder: Path) -> StoreInfo:
        head, entries = self._look(folder.name)
        about = read_about(folder)
        return StoreInfo(
            store_id=folder.name,
            fingerprint=head.fingerprint,
            model_name=about.model_name,
            page_image_bytes=about.page_image_bytes,
            num_images=len(entries),
            num_bytes=sum(
                run.count * head.block_bytes for entry in entries.values() for run in entry.runs
            ),
            is_in_use=folder.name not in self._opened and self._is_in_use(folder),
        )

    def _look(self, store_id: str) -> tuple[JournalHead, dict[ImageKey, Entry]]:
        """Read a journal as it is now."""
        folder = self._root / store_id
        try:
            data = (folder / JOURNAL).read_bytes()
            head = decode_head(data[:FILE_HEAD_BYTES])
            num_bytes = (folder / DATA).stat().st_size
        except FileNotFoundError:
            ids = ", ".join(path.name for path in store_folders(self._root)) or "none"
            raise TierError(f"{self._root} has no store {store_id!r}; there is {ids}") from None
        except OSError as error:
            raise TierUnavailable(f"cannot read {folder}: {error}") from error
        if head is None:
            raise TierError(f"the journal of {folder} is damaged or of another format version")
        entries, _, _ = scan(memoryview(data))
        live, _ = choose_live(entries, num_bytes // head.block_bytes, head.block_bytes)
        self._seen[store_id] = head, {entry.key: entry for entry in live}
        return self._seen[store_id]

    def _read(
        self, handle: int, block_bytes: int, entry: Entry | None, buffer: memoryview
    ) -> ReadResult:
        if entry is None:
            return ReadResult(status=ReadStatus.MISSING)
        if buffer.nbytes != entry.num_bytes:
            message = f"buffer of {buffer.nbytes} bytes for an image of {entry.num_bytes} bytes"
            return ReadResult(status=ReadStatus.FAILED, message=message)
        flat = buffer.cast("B") if buffer.nbytes else memoryview(b"")
        position = 0
        try:
            for run in entry.runs:
                part = flat[position : position + run.count * block_bytes]
                position += self._files.read_at(handle, part, run.start * block_bytes)
        except OSError as error:
            return ReadResult(status=ReadStatus.FAILED, message=str(error))
        if position == entry.num_bytes and checksum(flat) == entry.checksum:
            return ReadResult(status=ReadStatus.READ, header=entry.header)
        message = f"{entry.key.text}: the stored bytes are not those that were put"
        return ReadResult(status=ReadStatus.CORRUPT, message=message)

    def _open(self, store_id: str, fingerprint: bytes, about: About) -> DiskTier:
        """Open a store as a server does. Raises TierUnavailable if a server has it open."""
        if store_id not in self._opened:
            context = TierContext(
                tier_name=store_id,
                fingerprint=fingerprint,
                clock=_Standstill(),
                host_allocator=_PlainMemory(),
                model_name=about.model_name,
                page_image_bytes=about.page_image_bytes,
            )
            config = DiskConfig(
                path=self._root, capacity=ByteSize(_NO_CAP), reclaim_other_models=False
            )
            self._opened[store_id] = DiskTier.open(context, config)
        return self._opened[store_id]

    def _is_in_use(self, folder: Path) -> bool:
        path = folder / LOCK
        if not path.exists():
            return False
        with contextlib.suppress(OSError):
            handle = self._files.open(path)
            try:
                return not try_lock(handle)
            finally:
                self._files.close(handle)
        return False


class _Standstill:
    """Disk tiers ask for no time."""

    def monotonic_s(self) -> float:
        return 0.0

    def unix_s(self) -> float:
        return 0.0


class _PlainMemory:
    """Disk tiers ask for no host memory of their own."""

    def allocate_host(self, num_bytes: int) -> memoryview:
        return memoryview(bytearray(num_bytes))
