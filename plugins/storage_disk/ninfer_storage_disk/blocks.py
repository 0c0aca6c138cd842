"""Which blocks of the data file are free. Knows nothing about bytes or keys."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """Consecutive blocks: [start, start + count)."""

    start: int
    count: int  # type: ignore[assignment] # nobody counts in the two numbers

    @property
    def end(self) -> int:
        """The block after the last one."""
        return self.start + self.count


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Join runs that follow each other."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].end == run.start:
            found[-1] = Run(found[-1].start, found[-1].count + run.count)
        else:
            found.append(run)
    return tuple(found)


class Blocks:
    """Free runs below `num_blocks`, the length of the data file in blocks.

    An image may be scattered over runs, so whatever fits by count fits. Not thread-safe.

    Invariants:
        free runs are disjoint, sorted, and no two touch
        num_free = sum of free runs <= num_blocks
    """

    def __init__(self, num_blocks: int, taken: Iterable[Run]) -> None:
        """Start with everything free but `taken`, which must be disjoint and below `num_blocks`."""
        self.num_blocks = num_blocks
        self.num_free = 0
        self._starts: list[int] = []
        self._counts: dict[int, int] = {}
        self._sizes: Counter[int] = Counter()
        position = 0
        for run in sorted(taken, key=lambda run: run.start):
            self._append_free(position, run.start - position)
            position = run.end
        self._append_free(position, num_blocks - position)

    @property
    def used_end(self) -> int:
        """The block after the last one in use."""
        if self._starts and self._starts[-1] + self._counts[self._starts[-1]] == self.num_blocks:
            return self._starts[-1]
        return self.num_blocks

    def take_run(self, count: int) -> Run | None:
        """Take the first run of at least `count` blocks; None if there is none."""
        if not any(size >= count for size in self._sizes):
            return None
        start = next(start for start in self._starts if self._counts[start] >= count)
        self._cut(start, count)
        return Run(start, count)

    def take_scattered(self, count: int) -> list[Run] | None:
        """Take `count` blocks from the first free runs; None if fewer are free."""
        if count > self.num_free:
            return None
        runs: list[Run] = []
        while count:
            start = self._starts[0]
            run = Run(start, min(count, self._counts[start]))
            self._cut(start, run.count)
            runs.append(run)
            count -= run.count
        return runs

    def give(self, runs: Sequence[Run]) -> None:
        """Return runs."""
        for run in runs:
            self._give(run.start, run.end)

    def resize(self, num_blocks: int) -> None:
        """Follow the data file; blocks beyond a smaller end must be free."""
        if num_blocks > self.num_blocks:
            start, self.num_blocks = self.num_blocks, num_blocks
            self._give(start, num_blocks)
        elif num_blocks < self.num_blocks:
            last = self._starts[-1]
            count = num_blocks - last
            self.num_free -= self._counts[last]
            self._remove(last)
            self._append_free(last, count)
            self.num_blocks = num_blocks

    def check(self, taken: Sequence[Run]) -> list[str]:
        """Return a sentence for each broken invariant, given all runs in use."""
        free = [Run(start, self._counts[start]) for start in self._starts]
        problems = []
        position = 0
        for run in sorted([*taken, *free], key=lambda run: run.start):
            if run.start != position:
                problems.append(
                    f"blocks: block {position} is covered twice or not at all (next run {run})"
                )
            position = run.end
        if position != self.num_blocks:
            problems.append(
                f"blocks: runs end at {position}, the file has {self.num_blocks} blocks"
            )
        if sum(run.count for run in free) != self.num_free:
            problems.append(f"blocks: num_free is {self.num_free}, free runs sum to another number")
        return problems

    def _append_free(self, start: int, count: int) -> None:
        if count > 0:
            self._starts.append(start)
            self._counts[start] = count
            self._sizes[count] += 1
            self.num_free += count

    def _cut(self, start: int, count: int) -> None:
        left = self._counts[start] - count
        self._remove(start)
        self.num_free -= count
        if left:
            self._insert(start + count, left)

    def _give(self, start: int, end: int) -> None:
        self.num_free += end - start
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end += self._counts[end]
            self._remove(self._starts[index])
        if index > 0:
            before = self._starts[index - 1]
            if before + self._counts[before] == start:
                self._remove(before)
                start = before
        self._insert(start, end - start)

    def _insert(self, start: int, count: int) -> None:
        self._starts.insert(bisect_left(self._starts, start), start)
        self._counts[start] = count
        self._sizes[count] += 1

    def _remove(self, start: int) -> None:
        del self._starts[bisect_left(self._starts, start)]
        count = self._counts.pop(start)
        self._sizes[count] -= 1
        if not self._sizes[count]:
            del self._sizes[count]
