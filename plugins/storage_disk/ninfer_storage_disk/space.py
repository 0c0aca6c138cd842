"""Room in the data file, under the cap of the directory. Knows nothing about keys or the journal's content."""

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ninfer_storage_disk.about import MAX_ABOUT_BYTES
from ninfer_storage_disk.blocks import Blocks, Run
from ninfer_storage_disk.directory import (
    DAMAGED_JOURNAL,
    STEP_BYTES,
    Directory,
    charged_journal_bytes,
)
from ninfer_storage_disk.events import Events
from ninfer_storage_disk.files import FULL_ERRORS, Files

FIXED_BYTES: Final = 4 * STEP_BYTES
"""Part of the cap that no image gets: rounding of the journal's charge to steps, and the store's small files."""

_MIN_BLOCK_BYTES: Final = 4 << 10
_MAX_BLOCK_BYTES: Final = 256 << 10


def choose_block_bytes(page_image_bytes: int) -> int:
    """Return a power of two near a sixteenth of a page, so that rounding up costs about 3% of a page at most."""
    block_bytes = _MIN_BLOCK_BYTES
    while block_bytes * 32 <= page_image_bytes and block_bytes < _MAX_BLOCK_BYTES:
        block_bytes *= 2
    return block_bytes


class Space:
    """Length and free blocks of one data file. Not thread-safe.

    Invariants:
        length of the data file = blocks.num_blocks x block_bytes
        own charge + charge of everything else in the directory <= cap, whenever a file of ours grows
    """

    def __init__(
        self,
        files: Files,
        directory: Directory,
        own: Path,
        data: int,
        *,
        block_bytes: int,
        events: Events,
    ) -> None:
        """Measure the directory.

        Args:
            files: the file layer.
            directory: where the cap is.
            own: folder of the store.
            data: handle of its data file, borrowed.
            block_bytes: length of a block.
            events: counts how often the disk had no room.
        """
        self._events = events
        self._files = files
        self._directory = directory
        self._own = own
        self._data = data
        self._block_bytes = block_bytes
        damaged = own / DAMAGED_JOURNAL
        damaged_bytes = damaged.stat().st_size if damaged.exists() else 0
        self._side_bytes = damaged_bytes + 2 * MAX_ABOUT_BYTES
        others = directory.other_bytes(own) + damaged_bytes
        self.capacity_bytes = max(directory.capacity_bytes - others - FIXED_BYTES, 0)
        self.room_bytes = max(directory.capacity_bytes - others - 2 * MAX_ABOUT_BYTES, 0)
        self.blocks = Blocks(files.size(data) // block_bytes, [])

    def max_blocks(self, journal_bytes: int) -> int:
        """Return the longest data file that the cap allows beside a journal of that length."""
        room_bytes = self.room_bytes - charged_journal_bytes(journal_bytes)
        return max(room_bytes // self._block_bytes, 0)

    def adopt(self, taken: Iterable[Run]) -> None:
        """Begin with `taken` in use and all other blocks of the file free."""
        self.blocks = Blocks(self.blocks.num_blocks, taken)

    def take(
        self, counts: Sequence[int], journal_bytes: Sequence[int]
    ) -> list[Sequence[Run] | None]:
        """Take blocks for images, one after another in the file if that is possible.

        Args:
            counts: blocks of each image.
            journal_bytes: length of the journal when the image and all before it are in it.

        Returns:
            Runs for each image, None where the cap does not allow it.
        """
        if not counts:
            return []
        whole = self._take_run(sum(counts), journal_bytes[-1])
        if whole is None:
            return [self._take_one(*pair) for pair in zip(counts, journal_bytes, strict=True)]
        placed: list[Sequence[Run] | None] = []
        start = whole.start
        for count in counts:
            placed.append((Run(start, count),) if count else ())
            start += count
        return placed

    def shrink(self) -> None:
        """Cut the free end off the data file."""
        end = self.blocks.used_end
        if self._files.size(self._data) != end * self._block_bytes:
            self._files.truncate(self._data, end * self._block_bytes)
        self.blocks.resize(end)

    def squeeze(self, *ways: Callable[[], None]) -> None:
        """Write something in the first of several ways for which a full disk has room.

        If none has, the free end of the data file is given back and the first is tried again. Raises OSError.
        """
        for way in ways:
            with self.maybe_full():
                way()
                return
        self.shrink()
        ways[0]()

    @contextlib.contextmanager
    def maybe_full(self) -> Iterator[None]:
        """Go on behind the `with` if the disk is full."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise

    @contextlib.contextmanager
    def journal_growing(self, before: int, after: int) -> Iterator[None]:
        """Hold the directory still while the journal grows past a step.

        Raises:
            OSError: ENOSPC, the cap does not allow it.
        """
        if charged_journal_bytes(before) == charged_journal_bytes(after):
            yield
            return
        with self._directory.growing():
            if not self._admits(self.blocks.num_blocks, after):
                self.shrink()
            if not self._admits(self.blocks.num_blocks, after):
                raise OSError(errno.ENOSPC, "the cap of the disk tier is reached")
            yield

    def check(self) -> list[str]:
        """Return a sentence for each broken invariant of the file's length and the cap."""
        problems = []
        length = self._files.size(self._data)
        if length != self.blocks.num_blocks * self._block_bytes:
            problems.append(
                f"space: the data file has {length} bytes, {self.blocks.num_blocks} blocks are expected"
            )
        return problems

    def _take_one(self, count: int, journal_bytes: int) -> Sequence[Run] | None:
        if not count:
            return ()
        run = self._take_run(count, journal_bytes)
        if run is not None:
            return (run,)
        missing = count - self.blocks.num_free
        if missing > 0 and not self._grow(self.blocks.num_blocks + missing, journal_bytes):
            return None
        return self.blocks.take_scattered(count)

    def _take_run(self, count: int, journal_bytes: int) -> Run | None:
        run = self.blocks.take_run(count)
        if run is None and self._grow(self.blocks.used_end + count, journal_bytes):
            run = self.blocks.take_run(count)
        return run

    def _grow(self, num_blocks: int, journal_bytes: int) -> bool:
        """Make the data file longer if the cap allows it."""
        try:
            with self._directory.growing():
                if not self._admits(num_blocks, journal_bytes):
                    return False
                self._files.grow(self._data, num_blocks * self._block_bytes)
        except OSError as error:
            self._events.failure(error)
            return False
        self.blocks.resize(num_blocks)
        return True

    def _admits(self, num_blocks: int, journal_bytes: int) -> bool:
        own = (
            num_blocks * self._block_bytes + charged_journal_bytes(journal_bytes) + self._side_bytes
        )
        return own + self._directory.other_bytes(self._own) <= self._directory.capacity_bytes
