"""The journal: which images a data file holds. Knows nothing about payloads or the byte cap."""

import contextlib
import errno
import logging
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer_storage_disk.entry import ALIGN_BYTES, DEAD_MAGIC, MAGIC_PREFIX, Entry, decode, encode
from ninfer_storage_disk.events import Events
from ninfer_storage_disk.files import Files

_log = logging.getLogger(__name__)

FORMAT_VERSION: Final = 1
MAGIC: Final = b"NINFERJ\n"

_FILE_HEAD: Final = struct.Struct("<8sHHI32s")
"""magic, format version, zero, block length, fingerprint; then its CRC-32, zeros up to 64 bytes."""

FILE_HEAD_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class JournalHead:
    """What the first bytes of a journal say."""

    block_bytes: int
    fingerprint: bytes


def encode_head(head: JournalHead) -> bytes:
    """Return the first bytes of a journal."""
    data = _FILE_HEAD.pack(MAGIC, FORMAT_VERSION, 0, head.block_bytes, head.fingerprint)
    return (data + zlib.crc32(data).to_bytes(4, "little")).ljust(FILE_HEAD_BYTES, b"\0")


def decode_head(data: bytes) -> JournalHead | None:
    """Return what the first bytes of a journal say, None if they are damaged, foreign or of another format."""
    if len(data) < FILE_HEAD_BYTES:
        return None
    magic, version, _, block_bytes, fingerprint = _FILE_HEAD.unpack_from(data)
    crc = int.from_bytes(data[_FILE_HEAD.size : _FILE_HEAD.size + 4], "little")
    if magic != MAGIC or version != FORMAT_VERSION or crc != zlib.crc32(data[: _FILE_HEAD.size]):
        return None
    return JournalHead(block_bytes, fingerprint) if block_bytes else None


class Journal:
    """Appended entries; deleting overwrites four bytes of an entry in place. Not thread-safe.

    Invariants:
        size_bytes = FILE_HEAD_BYTES + live_bytes + dead_bytes
    """

    def __init__(self, files: Files, path: Path, head: JournalHead) -> None:
        """Use `load` or `create`."""
        self._files = files
        self._path = path
        self._handle = -1
        self.head = head
        self.size_bytes = FILE_HEAD_BYTES
        self.live_bytes = 0
        self.has_unsynced_marks = False
        self._has_torn_tail = False
        self._dead_places: dict[int, list[int]] = {}

    @property
    def dead_bytes(self) -> int:
        """Bytes that a rewrite would free."""
        return self.size_bytes - FILE_HEAD_BYTES - self.live_bytes

    @classmethod
    def open(
        cls,
        files: Files,
        path: Path,
        head: JournalHead,
        *,
        sync: bool,
        damaged: Path,
        events: Events,
    ) -> tuple["Journal", list[Entry]]:
        """Read a journal, or write an empty one; one that is unreadable, foreign or of another format is put aside.

        Args:
            files: the file layer.
            path: the journal.
            head: what a new one begins with; an old one must have the same fingerprint.
            sync: make a new one durable.
            damaged: where to put one aside.
            events: counts damage.

        Returns:
            (journal, its entries in the order they were written).
        """
        loaded = cls.load(files, path, head.fingerprint, events)
        if loaded is not None:
            return loaded
        if path.exists():
            _log.warning("disk_journal_quarantined path=%s", path)
            events.quarantined()
            files.replace(path, damaged)
        return cls.create(files, path, head, sync=sync), []

    @classmethod
    def create(cls, files: Files, path: Path, head: JournalHead, *, sync: bool) -> "Journal":
        """Write an empty journal beside `path` and rename it there."""
        journal = cls(files, path, head)
        journal.rewrite([], sync=sync)
        return journal

    @classmethod
    def load(
        cls, files: Files, path: Path, fingerprint: bytes, events: Events
    ) -> tuple["Journal", list[Entry]] | None:
        """Read a journal: its entries in the order they were written, damaged ones left out.

        Returns:
            None if there is no journal, or one whose head is damaged or of another fingerprint.
        """
        if not path.is_file():
            return None
        handle = files.open(path)
        data = memoryview(bytearray(files.size(handle)))
        num_read = files.read_at(handle, data, 0)
        head = decode_head(bytes(data[:FILE_HEAD_BYTES]))
        if head is None or head.fingerprint != fingerprint:
            files.close(handle)
            return None
        journal = cls(files, path, head)
        journal._handle = handle
        entries, journal.size_bytes, num_damaged = scan(data[:num_read])
        if num_damaged:
            _log.warning("disk_journal_damaged path=%s num_bytes=%d", path, num_damaged)
            events.quarantined()
        journal.live_bytes = sum(entry.entry_bytes for entry in entries)
        return journal, entries

    def is_present(self) -> bool:
        """Tell whether the file is still where it was opened."""
        return self._files.is_at(self._handle, self._path)

    def append(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Write entries behind the last one; visible after a restart from here on.

        Raises:
            OSError: nothing was appended.
        """
        encoded = [encode(entry) for entry in entries]
        try:
            self._files.write_at(self._handle, memoryview(b"".join(encoded)), self.size_bytes)
            if sync:
                self.sync()
        except OSError:
            self._has_torn_tail = True
            with contextlib.suppress(OSError):
                self.repair_tail()
            raise
        before = self.size_bytes
        for entry, data in zip(entries, encoded, strict=True):
            entry.offset = self.size_bytes
            self.size_bytes += len(data)
        self.live_bytes += self.size_bytes - before

    def reuse(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Write entries over dead ones of the same length, for a disk without room to append.

        Raises:
            OSError: ENOSPC if there are too few; or what the disk says. An entry that was written all the same loses
                against whatever later takes its blocks.
        """
        taken: list[int] = []
        left = {length: list(places) for length, places in self._dead_places.items()}
        for entry in entries:
            places = left.get(entry.entry_bytes)
            if not places:
                raise OSError(errno.ENOSPC, "no room for the journal to grow")
            taken.append(places.pop())
        for entry, offset in zip(entries, taken, strict=True):
            self._files.write_at(self._handle, memoryview(encode(entry)), offset)
        if sync:
            self.sync()
        self._dead_places = left
        for entry, offset in zip(entries, taken, strict=True):
            entry.offset = offset
            self.live_bytes += entry.entry_bytes

    def repair_tail(self) -> None:
        """Cut off what a failed `append` left. Raises OSError; then no freed block may be used again yet."""
        if self._has_torn_tail:
            self._files.truncate(self._handle, self.size_bytes)
            self._has_torn_tail = False

    def mark_dead(self, entry: Entry) -> None:
        """Make a restart forget an entry. Raises OSError if that cannot be written."""
        self._files.write_at(self._handle, memoryview(DEAD_MAGIC), entry.offset)
        self.live_bytes -= entry.entry_bytes
        self._dead_places.setdefault(entry.entry_bytes, []).append(entry.offset)
        self.has_unsynced_marks = True

    def sync(self) -> None:
        """Flush entries and marks."""
        self._files.sync(self._handle)
        self.has_unsynced_marks = False

    def rewrite(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Write a journal of `entries` alone beside this one and rename it over this one.

        Raises:
            OSError: the old journal is unchanged and in use.
        """
        beside = self._path.with_name(self._path.name + ".new")
        data = encode_head(self.head) + b"".join(encode(entry) for entry in entries)
        try:
            handle = self._files.open(beside, is_new=True)
            try:
                self._files.write_at(handle, memoryview(data), 0)
                if sync:
                    self._files.sync(handle)
            finally:
                self._files.close(handle)
            self.close()
            self._files.replace(beside, self._path)
            if sync:
                self._files.sync_folder(self._path.parent)
        except OSError:
            self._files.unlink(beside)
            raise
        finally:
            if self._handle == -1 and self._path.exists():
                self._handle = self._files.open(self._path)
        self.has_unsynced_marks = False
        self._has_torn_tail = False
        self._dead_places = {}
        self.size_bytes = FILE_HEAD_BYTES
        for entry in entries:
            entry.offset = self.size_bytes
            self.size_bytes += entry.entry_bytes
        self.live_bytes = self.size_bytes - FILE_HEAD_BYTES

    def check(self, entries: Sequence[Entry]) -> list[str]:
        """Return a sentence for each difference between `entries` and what the file says. Reads the whole file."""
        data = memoryview(bytearray(self._files.size(self._handle)))
        self._files.read_at(self._handle, data, 0)
        written, end, _ = scan(data)
        problems = []
        if {entry.offset for entry in written} != {entry.offset for entry in entries}:
            problems.append(
                f"journal: {len(written)} live entries on disk, {len(entries)} in memory, or not the same"
            )
        if end > self.size_bytes:
            problems.append(f"journal: entries end at {end}, size_bytes is {self.size_bytes}")
        live = sum(entry.entry_bytes for entry in entries)
        if live != self.live_bytes:
            problems.append(f"journal: live_bytes is {self.live_bytes}, entries sum to {live}")
        return problems

    def close(self) -> None:
        """Close the file."""
        if self._handle != -1:
            self._files.close(self._handle)
            self._handle = -1


def scan(data: memoryview) -> tuple[list[Entry], int, int]:
    """Find the entries of a journal's bytes; skips what is damaged.

    Returns:
        (live entries by sequence, end of the last whole entry, number of damaged bytes).
    """
    entries: list[Entry] = []
    raw = bytes(data)
    offset = end = FILE_HEAD_BYTES
    num_damaged = 0
    while offset < len(data):
        found = decode(data, offset)
        if found is None:
            start, offset = offset, _next_magic(raw, offset + 1)
            num_damaged += offset - start
            continue
        entry, offset = found
        end = offset
        if entry is not None:
            entries.append(entry)
    entries.sort(key=lambda entry: entry.sequence)
    return entries, end, num_damaged


def _next_magic(raw: bytes, offset: int) -> int:
    """Return the next aligned place from `offset` on where an entry may begin, or the end."""
    while (offset := raw.find(MAGIC_PREFIX, offset)) != -1:
        if offset % ALIGN_BYTES == 0:
            return offset
        offset += 1
    return len(raw)
