"""The images of one model: a data file of blocks and a journal. Knows nothing about batches of the contract.

Order of every change, so that a crash at any point leaves old or new:

    put:     marks of freed blocks durable -> payload durable -> entry durable -> visible -> old entry marked
    delete:  invisible -> entry marked -> blocks free
"""

import contextlib
import logging
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from ninfer.api import ImageKey, PutResult, PutStatus, ReadStatus
from ninfer.api.tier import newest_first
from ninfer_storage_disk.about import NOTHING_KNOWN, About, write_about
from ninfer_storage_disk.blocks import Run
from ninfer_storage_disk.directory import (
    DAMAGED_JOURNAL,
    DATA,
    JOURNAL,
    LEFTOVERS,
    LOCK,
    STEP_BYTES,
    Directory,
)
from ninfer_storage_disk.entry import Entry, NewImage, entry_bytes
from ninfer_storage_disk.events import Events
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.fitting import ByValue, Fitting
from ninfer_storage_disk.journal import Journal, JournalHead
from ninfer_storage_disk.payloads import Payloads
from ninfer_storage_disk.recovery import choose_live
from ninfer_storage_disk.space import Space

_log = logging.getLogger(__name__)

_STORED: Final = PutResult(status=PutStatus.STORED)
_FULL: Final = PutResult(status=PutStatus.FULL, message="the cap of the disk tier is reached")

JOURNAL_COPIES: Final = 4
"""A journal is rewritten when half of it is dead, and a rewrite has two of them: each live byte is charged 4."""


class Store:
    """Images of one fingerprint.

    Locks, in this order: `write_lock` (held by the callers of every method that changes files), `_index_lock`
    (never held during I/O). Reads take only the second one: a read that overlaps a delete finds the right bytes
    or a wrong checksum, and then looks whether its entry is still the current one.

    Invariants:
        used_bytes = sum of image_bytes(header, payload) over all entries
        runs of entries (those that wait to be marked included) are disjoint; blocks.num_free + blocks in runs = blocks.num_blocks
        bytes of all files below the directory <= its capacity
    """

    def __init__(
        self,
        files: Files,
        directory: Directory,
        head: JournalHead,
        *,
        sync: bool,
        about: About = NOTHING_KNOWN,
        by_value: ByValue = newest_first,
    ) -> None:
        """Open or create the store of `head.fingerprint`.

        Args:
            files: the file layer.
            directory: where the store is and what the cap is.
            head: fingerprint, and the length of blocks of a new store.
            sync: flush each batch.
            about: what to write down for people.
            by_value: orders images, most valuable first, if not all fit under the cap.

        Raises:
            TierUnavailable: another process or another tier has this store open.
            OSError: the files cannot be opened or created.
        """
        self.write_lock = Lock()
        self._index_lock = Lock()
        self._files = files
        self._sync = sync
        self._about = about
        self._by_value = by_value
        self._head = head
        self._directory = directory
        self._path = directory.store_path(head.fingerprint)
        self._index: dict[ImageKey, Entry] = {}
        self._unmarked: list[Entry] = []
        self._old_handles: list[int] = []
        self.events = Events()
        self._lock()
        try:
            self._open_files()
        except BaseException:
            self._finalizer()
            raise

    @property
    def capacity_bytes(self) -> int:
        """Bytes for images: the cap less what others take and a fixed overhead."""
        return max(self._space.capacity_bytes, self.used_bytes)

    @property
    def num_images(self) -> int:
        """Stored images."""
        return len(self._index)

    @property
    def block_bytes(self) -> int:
        """Length of a block."""
        return self._head.block_bytes

    def image_bytes(self, header_bytes: int, payload_bytes: int) -> int:
        """Return what an image is charged: its blocks, and its journal entry with the most runs it can have."""
        count = self._count(payload_bytes)
        return count * self.block_bytes + JOURNAL_COPIES * entry_bytes(32, header_bytes, count)

    def find(self, key: ImageKey) -> Entry | None:
        """Return the entry of a key."""
        with self._index_lock:
            return self._index.get(key)

    def find_all(self, keys: Iterable[ImageKey]) -> list[Entry | None]:
        """Return the entry of each key."""
        with self._index_lock:
            return list(map(self._index.get, keys))

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        with self._index_lock:
            return list(self._index.values())

    def is_deleted(self) -> bool:
        """Tell whether somebody deleted the data file."""
        return self._files.is_deleted(self._data)

    def restore_files(self) -> None:
        """Repair what somebody deleted under us. Needs `write_lock`. Raises OSError.

        A missing journal is written again; without the data file all images are forgotten.
        """
        if not self._files.is_at(self._data, self._path / DATA):
            self._start_over()
        elif not self._journal.is_present():
            self._journal.rewrite(self.entries(), sync=self._sync)

    def read(self, wanted: Sequence[tuple[Entry, memoryview]]) -> list[ReadStatus | OSError]:
        """Read and verify payloads, best in the order of the file. Needs no lock.

        Returns:
            A status for each, or what the system said.
        """
        found = self._payloads.read(self._data, wanted)
        return [
            ReadStatus.READ if answer is True else self._judge(entry, answer or None)
            for (entry, _), answer in zip(wanted, found, strict=True)
        ]

    def _judge(self, entry: Entry, problem: OSError | None) -> ReadStatus | OSError:
        is_current = self.find(entry.key) is entry
        return problem or (ReadStatus.CORRUPT if is_current else ReadStatus.MISSING)

    def write(self, images: Sequence[NewImage]) -> list[PutResult]:
        """Store images with different keys, each all-or-nothing; they become durable together.

        Needs `write_lock`.
        """
        try:
            self._prepare_journal()
        except OSError as error:
            return [self.events.failure(error)] * len(images)
        placed = self._place(images)
        results = [_FULL] * len(images)
        fitting = [at for at, runs in enumerate(placed) if runs is not None]
        payloads = [(images[at].payload, placed[at] or ()) for at in fitting]
        written: list[Entry] = []
        answers = self._payloads.write(self._data, payloads)
        for at, (_, runs), answer in zip(fitting, payloads, answers, strict=True):
            if isinstance(answer, OSError):
                self._space.blocks.give(runs)
                results[at] = self.events.failure(answer)
            else:
                written.append(self._new_entry(images[at], runs, answer))
                results[at] = _STORED
        if written:
            committed = self._commit(written)
            if committed is not _STORED:
                results = [committed if result is _STORED else result for result in results]
        return results

    def drop(self, entry: Entry) -> bool:
        """Forget an image and free its blocks; False if it is not the current one of its key.

        Needs `write_lock`.
        """
        with self._index_lock:
            if self._index.get(entry.key) is not entry:
                return False
            del self._index[entry.key]
            self.used_bytes -= self.image_bytes(len(entry.header), entry.num_bytes)
        self._free(entry)
        return True

    def check(self) -> list[str]:
        """Return a sentence for each broken invariant. Needs `write_lock`."""
        entries = self.entries()
        kept = [*entries, *self._unmarked]
        problems = self._space.blocks.check([run for entry in kept for run in entry.runs])
        used = self._charge(entries)
        if used != self.used_bytes:
            problems.append(f"disk store: used_bytes is {self.used_bytes}, images sum to {used}")
        problems += self._journal.check(kept)
        problems += self._space.check()
        return problems

    def close(self) -> None:
        """Flush, give back the free end of the data file, unlock. Needs `write_lock` and no reader."""
        with contextlib.suppress(OSError):
            self._journal.repair_tail()
            self._space.shrink()
            if self._sync:
                self._journal.sync()
        self._journal.close()
        for handle in [self._data, *self._old_handles]:
            self._files.close(handle)
        self._finalizer()

    def _lock(self) -> None:
        self._lock_handle = self._directory.lock_store(self._path)
        self._finalizer = weakref.finalize(self, self._files.close, self._lock_handle)

    def _start_over(self) -> None:
        _log.warning("disk_store_lost path=%s num_images=%d", self._path, self.num_images)
        self.events.lost(self.num_images)
        with self._index_lock:
            self._index = {}
        self._unmarked = []
        self._journal.close()
        self._old_handles.append(self._data)
        if not self._files.is_at(self._lock_handle, self._path / LOCK):
            self._finalizer()
            self._lock()
        self._open_files()

    def _open_files(self) -> None:
        """Read journal and data file; drop what does not fit together or under the cap."""
        for path in filter(Path.exists, (self._path / name for name in LEFTOVERS)):
            self._files.unlink(path)
        write_about(self._files, self._path, self._about)
        self._journal, entries = Journal.open(
            self._files,
            self._path / JOURNAL,
            self._head,
            sync=self._sync,
            damaged=self._path / DAMAGED_JOURNAL,
            events=self.events,
        )
        self._head = self._journal.head
        self._payloads = Payloads(self._files, self.block_bytes)
        is_new = not (self._path / DATA).exists()
        self._data = self._files.open(self._path / DATA)
        if self._sync and is_new:
            self._files.sync_folder(self._path)
            self._files.sync_folder(self._directory.root)
        self._space = Space(
            self._files,
            self._directory,
            self._path,
            self._data,
            block_bytes=self.block_bytes,
            events=self.events,
        )
        if self._space.blocks.num_blocks > max((r.end for e in entries for r in e.runs), default=0):
            _log.warning("disk_payload_of_no_image path=%s", self._path)
            self.events.quarantined()
        live, dead = choose_live(entries, self._space.blocks.num_blocks, self.block_bytes)
        if dead:
            _log.warning("disk_images_lost path=%s num_images=%d", self._path, len(dead))
            self.events.quarantined(len(dead))
        for entry in dead:
            self._journal.mark_dead(entry)
        fitting = Fitting(
            self._files,
            self._data,
            self._journal,
            self._space,
            block_bytes=self.block_bytes,
            sync=self._sync,
        )
        live = fitting.fit(
            live, self._by_value, lambda e: self.image_bytes(len(e.header), e.num_bytes)
        )
        self._sequence = max((entry.sequence for entry in entries), default=0)
        with self._index_lock:
            self._index = {entry.key: entry for entry in live}
        self.used_bytes = self._charge(live)
        self._space.adopt(run for entry in live for run in entry.runs)
        self._space.shrink()
        self._prepare_journal()

    def _prepare_journal(self) -> None:
        """Make marks durable before their blocks are used again, and bound the dead part. Raises OSError."""
        self._journal.repair_tail()
        while self._unmarked:
            self._journal.mark_dead(self._unmarked[-1])
            self._space.blocks.give(self._unmarked.pop().runs)
        if self._journal.dead_bytes > max(self._journal.live_bytes, STEP_BYTES):
            with self._space.maybe_full():
                self._space.squeeze(lambda: self._journal.rewrite(self.entries(), sync=self._sync))
        if self._sync and self._journal.has_unsynced_marks:
            self._journal.sync()

    def _place(self, images: Sequence[NewImage]) -> list[Sequence[Run] | None]:
        """Choose blocks for images; None for each that the ledger or the cap refuses."""
        placed: list[Sequence[Run] | None] = [None] * len(images)
        numbers: list[int] = []
        used, journal = self.used_bytes, self._journal.size_bytes
        journal_bytes: list[int] = []
        counts: list[int] = []
        costs: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        for number, (key, header, payload) in enumerate(images):
            shape = len(key.digest), len(header), len(payload)
            cost = costs.get(shape)
            if cost is None:
                cost = costs[shape] = self._cost(*shape)
            charge, count, in_journal = cost
            if used + charge <= self._space.capacity_bytes:
                used += charge
                journal += in_journal
                numbers.append(number)
                counts.append(count)
                journal_bytes.append(journal)
        for number, runs in zip(numbers, self._space.take(counts, journal_bytes), strict=True):
            placed[number] = runs
        return placed

    def _cost(
        self, digest_bytes: int, header_bytes: int, payload_bytes: int
    ) -> tuple[int, int, int]:
        """Return what an image is charged, its blocks, and the most bytes of its journal entry."""
        count = self._count(payload_bytes)
        charge = self.image_bytes(header_bytes, payload_bytes)
        return charge, count, entry_bytes(digest_bytes, header_bytes, max(count, 1))

    def _new_entry(self, image: NewImage, runs: Sequence[Run], checksum: int) -> Entry:
        self._sequence += 1
        return Entry(image.key, image.header, len(image.payload), checksum, runs, self._sequence)

    def _commit(self, entries: Sequence[Entry]) -> PutResult:
        """Make payloads durable, then their entries, then visible."""
        before = self._journal.size_bytes
        after = before + sum(entry.entry_bytes for entry in entries)
        try:
            if self._sync:
                self._files.sync(self._data)
            with self._space.journal_growing(before, after):
                self._space.squeeze(
                    lambda: self._journal.append(entries, sync=self._sync),
                    lambda: self._journal.reuse(entries, sync=self._sync),
                )
        except OSError as error:
            for entry in entries:
                self._space.blocks.give(entry.runs)
            return self.events.failure(error)
        self._publish(entries)
        return _STORED

    def _publish(self, entries: Sequence[Entry]) -> None:
        with self._index_lock:
            replaced = [self._index.pop(entry.key, None) for entry in entries]
            self._index.update({entry.key: entry for entry in entries})
            old = [entry for entry in replaced if entry is not None]
            self.used_bytes += self._charge(entries) - self._charge(old)
        for entry in old:
            self._free(entry)

    def _charge(self, entries: Iterable[Entry]) -> int:
        shapes = Counter([(len(entry.header), entry.num_bytes) for entry in entries])
        return sum(number * self.image_bytes(*shape) for shape, number in shapes.items())

    def _free(self, entry: Entry) -> None:
        """Mark an entry that is no longer visible and free its blocks; if that fails, the next write tries again."""
        try:
            self._journal.mark_dead(entry)
        except OSError as error:
            _log.warning("disk_mark_failed key=%s error=%s", entry.key.text, error)
            self._unmarked.append(entry)
        else:
            self._space.blocks.give(entry.runs)

    def _count(self, payload_bytes: int) -> int:
        return -(-payload_bytes // self.block_bytes)
