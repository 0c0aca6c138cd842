"""Brings a store under a cap that was lowered. Knows nothing about keys or what makes an image valuable.

Order, so that a crash at any point leaves each kept image whole:

    what does not fit marked, marks durable -> blocks behind the new end copied into free ones, durable
    -> journal with the new places replaces the old one -> (by the caller) data file cut
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ninfer.api import ImageRecord
from ninfer_storage_disk.blocks import Blocks, Run, joined
from ninfer_storage_disk.entry import Entry, entry_bytes
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.journal import FILE_HEAD_BYTES, Journal
from ninfer_storage_disk.space import Space

_log = logging.getLogger(__name__)

ByValue = Callable[[Sequence[ImageRecord]], Sequence[ImageRecord]]
"""Orders images, given oldest first, most valuable first."""

_COPY_BYTES: Final = 1 << 20


class Fitting:
    """Chooses images that fit and moves them into the part of the data file that stays.

    Args:
        files: the file layer.
        data: handle of the data file.
        journal: the journal, all live entries in it.
        space: room under the cap.
        block_bytes: length of a block.
        sync: make each step durable before the next.
    """

    def __init__(
        self,
        files: Files,
        data: int,
        journal: Journal,
        space: Space,
        *,
        block_bytes: int,
        sync: bool,
    ) -> None:
        """Borrow the parts of a store that is being opened."""
        self._files = files
        self._data = data
        self._journal = journal
        self._space = space
        self._block_bytes = block_bytes
        self._sync = sync

    def fit(
        self, live: Sequence[Entry], by_value: ByValue, image_bytes: Callable[[Entry], int]
    ) -> list[Entry]:
        """Keep the most valuable images that fit, where they fit; forget all others.

        Args:
            live: entries by sequence.
            by_value: order of value; images it leaves out count least.
            image_bytes: what an image is charged.

        Returns:
            The entries kept, by sequence. All lie below the longest data file allowed.

        Raises:
            OSError: a mark could not be written; what was visible before is still there.
        """
        num_used = sum(image_bytes(entry) for entry in live)
        limit = self._space.max_blocks(self._journal.size_bytes)
        if num_used <= self._space.capacity_bytes and not _beyond(live, limit):
            return list(live)
        ordered = _most_valuable_first(live, by_value)
        kept = _fitting_prefix(ordered, self._space.capacity_bytes, image_bytes)
        dropped = ordered[len(kept) :]
        self._forget(dropped)
        num_moved = 0
        if _beyond(kept, self._space.max_blocks(self._journal.size_bytes)):
            kept, num_moved = self._move(kept)
        _log.warning(
            "disk_cap_lowered num_kept=%d num_dropped=%d num_moved=%d",
            len(kept),
            len(live) - len(kept),
            num_moved,
        )
        return sorted(kept, key=lambda entry: entry.sequence)

    def _forget(self, ordered: Sequence[Entry]) -> None:
        """Mark entries, the least valuable first, so that a crash in between leaves the same choice."""
        for entry in reversed(ordered):
            self._journal.mark_dead(entry)
        if self._sync and self._journal.has_unsynced_marks:
            self._journal.sync()

    def _move(self, kept: list[Entry]) -> tuple[list[Entry], int]:
        """Move what lies beyond the new end; images that cannot be moved are forgotten."""
        journal_bytes = FILE_HEAD_BYTES + sum(self._most_entry_bytes(entry) for entry in kept)
        limit = self._space.max_blocks(journal_bytes)
        blocks = Blocks(limit, _below(kept, limit))
        moved: list[Entry] = []
        for entry in kept:
            new = self._move_one(entry, blocks, limit)
            if new is not None:
                moved.append(new)
        try:
            if self._sync:
                self._files.sync(self._data)
            self._journal.rewrite(sorted(moved, key=lambda e: e.sequence), sync=self._sync)
        except OSError as error:
            _log.warning("disk_move_failed error=%s", error)
            moved = [
                entry
                for entry in kept
                if not _beyond([entry], self._space.max_blocks(self._journal.size_bytes))
            ]
            stays = {id(entry) for entry in moved}
            self._forget([entry for entry in kept if id(entry) not in stays])
        before = {id(entry) for entry in kept}
        return moved, sum(id(entry) not in before for entry in moved)

    def _move_one(self, entry: Entry, blocks: Blocks, limit: int) -> Entry | None:
        """Copy the blocks beyond `limit` into free ones; None if that fails."""
        sources = [part for run in entry.runs for part in _split(run, limit)]
        count = sum(part.count for part in sources if part.start >= limit)
        if not count:
            return entry
        whole = blocks.take_run(count)
        free = [whole] if whole is not None else blocks.take_scattered(count)
        if free is None:
            return None
        runs: list[Run] = []
        try:
            for part in sources:
                if part.start < limit:
                    runs.append(part)
                    continue
                targets = list(_take_front(free, part.count))
                self._copy(part.start, targets)
                runs += targets
        except OSError as error:
            _log.warning("disk_move_failed key=%s error=%s", entry.key.text, error)
            return None
        return replace(entry, runs=joined(runs), offset=-1)

    def _copy(self, source: int, targets: Sequence[Run]) -> None:
        step = max(_COPY_BYTES // self._block_bytes, 1)
        buffer = memoryview(bytearray(step * self._block_bytes))
        for target in targets:
            for done in range(0, target.count, step):
                part = buffer[: min(step, target.count - done) * self._block_bytes]
                self._files.read_at(self._data, part, (source + done) * self._block_bytes)
                self._files.write_at(self._data, part, (target.start + done) * self._block_bytes)
            source += target.count

    def _most_entry_bytes(self, entry: Entry) -> int:
        count = -(-entry.num_bytes // self._block_bytes)
        return entry_bytes(len(entry.key.digest), len(entry.header), count)


def _most_valuable_first(live: Sequence[Entry], by_value: ByValue) -> list[Entry]:
    """Order entries as `by_value` orders their records."""
    rest = {entry.key: entry for entry in live}
    ordered = [
        rest.pop(record.key)
        for record in by_value([entry.record for entry in live])
        if record.key in rest
    ]
    return ordered + list(rest.values())[::-1]


def _fitting_prefix(
    ordered: Sequence[Entry], capacity_bytes: int, image_bytes: Callable[[Entry], int]
) -> list[Entry]:
    kept: list[Entry] = []
    for entry in ordered:
        capacity_bytes -= image_bytes(entry)
        if capacity_bytes < 0:
            break
        kept.append(entry)
    return kept


def _beyond(entries: Sequence[Entry], limit: int) -> bool:
    return any(run.end > limit for entry in entries for run in entry.runs)


def _below(entries: Sequence[Entry], limit: int) -> Iterator[Run]:
    for entry in entries:
        for run in entry.runs:
            yield from (part for part in _split(run, limit) if part.start < limit)


def _split(run: Run, limit: int) -> Iterator[Run]:
    """Cut a run in two where it crosses `limit`."""
    if run.start < limit < run.end:
        yield Run(run.start, limit - run.start)
        yield Run(limit, run.end - limit)
    else:
        yield run


def _take_front(free: list[Run], count: int) -> Iterator[Run]:
    """Remove `count` blocks from the front of `free`."""
    while count:
        first = free.pop(0)
        taken = min(first.count, count)
        if taken < first.count:
            free.insert(0, Run(first.start + taken, first.count - taken))
        yield Run(first.start, taken)
        count -= taken
