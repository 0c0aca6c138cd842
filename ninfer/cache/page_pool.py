"""Free device pages as extents, so that a context gets consecutive pages. Knows nothing about contents."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ninfer.api.errors import InvariantBroken
from ninfer.core.step import PageRun


class PagePool:
    """Allocator of device page ids.

    Consecutive pages let attention read a context through a view. A request is therefore served from the
    smallest extent that holds it whole, else from the largest ones. Cost grows with the number of free
    extents, not with the number of pages.

    Invariants:
        num_free + pages handed out == num_pages; extents are disjoint, sorted and never adjacent.

    Args:
        num_pages: pages 0..num_pages-1 are free at first.
    """

    def __init__(self, num_pages: int) -> None:
        """Start with every page free."""
        self.num_pages = num_pages
        self.num_free = num_pages
        self._extents: list[tuple[int, int]] = [(0, num_pages)] if num_pages else []
        self._held: list[int] | None = None

    def allocate(self, num_pages: int) -> list[int]:
        """Hand out pages, consecutive where possible.

        Args:
            num_pages: at most `num_free`.

        Returns:
            Page ids in block-table order.

        Raises:
            InvariantBroken: fewer are free; the caller must have asked first.
        """
        if num_pages > self.num_free:
            msg = f"asked for {num_pages} pages, {self.num_free} are free"
            raise InvariantBroken(msg)
        pages: list[int] = []
        while len(pages) < num_pages:
            first, length = self._best_extent(num_pages - len(pages))
            taken = min(length, num_pages - len(pages))
            at = bisect_left(self._extents, (first, length))
            if taken == length:
                del self._extents[at]
            else:
                self._extents[at] = (first + taken, length - taken)
            pages.extend(range(first, first + taken))
        self.num_free -= num_pages
        return pages

    def _best_extent(self, wanted: int) -> tuple[int, int]:
        fitting = [extent for extent in self._extents if extent[1] >= wanted]
        if fitting:
            return min(fitting, key=lambda extent: (extent[1], extent[0]))
        return max(self._extents, key=lambda extent: (extent[1], -extent[0]))

    def free(self, pages: Iterable[int]) -> None:
        """Take pages back.

        Raises:
            InvariantBroken: a page is free already or does not exist.
        """
        if self._held is not None:
            self._held.extend(pages)
            return
        for first, length in to_runs(sorted(pages)):
            self._free_run(first, length)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Take back all at once what is freed inside: neighbours then cost one search. Nothing may be asked meanwhile."""
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            self.free(held)

    def _free_run(self, first: int, length: int) -> None:
        end = first + length
        if first < 0 or end > self.num_pages:
            msg = f"pages {first} to {end - 1} do not all exist"
            raise InvariantBroken(msg)
        at = bisect_left(self._extents, (end, 0))
        num_freed = length
        if at > 0:
            left_first, left_length = self._extents[at - 1]
            if left_first + left_length > first:
                msg = f"one of pages {first} to {end - 1} was freed twice"
                raise InvariantBroken(msg)
            if left_first + left_length == first:
                first, length = left_first, left_length + length
                at -= 1
                del self._extents[at]
        if at < len(self._extents) and self._extents[at][0] == end:
            length += self._extents[at][1]
            del self._extents[at]
        insort(self._extents, (first, length))
        self.num_free += num_freed

    def check(self) -> list[str]:
        """Return a sentence for each broken invariant."""
        problems = []
        if sum(length for _, length in self._extents) != self.num_free:
            problems.append(f"free extents {self._extents} do not sum to num_free={self.num_free}")
        for (first, length), (following, _) in zip(self._extents, self._extents[1:], strict=False):
            if first + length >= following:
                problems.append(f"extents ({first}, {length}) and {following} touch")
        return problems

    def is_free(self, page: int) -> bool:
        """Tell whether a page is free (for checks)."""
        at = bisect_left(self._extents, (page + 1, 0))
        return at > 0 and self._extents[at - 1][0] + self._extents[at - 1][1] > page


def to_runs(pages: Iterable[int]) -> tuple[PageRun, ...]:
    """Compress page ids in order to runs of consecutive ids."""
    runs: list[PageRun] = []
    for page in pages:
        if runs and runs[-1][0] + runs[-1][1] == page:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((page, 1))
    return tuple(runs)
