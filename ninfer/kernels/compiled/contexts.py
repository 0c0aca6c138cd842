"""Which tokens the rows of a step look at, as compiled attention reads it. Needs no numba."""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.header import PART_TOKENS, ROW_SIZE
from ninfer.kernels.segment import Segment


class Contexts:
    """What rows look at, as the program reads it.

    Attributes:
        pages: int64 page numbers, lane after lane.
        rows: int64 `[num_rows, ROW_SIZE]`.
        lanes: of each segment first row, number of rows, position of the first one, first position looked at, where the lane's
            pages begin.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Lay it out.

        Raises:
            ValueError: the runs of a segment do not hold its tokens.
        """
        pages: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        self.lanes: list[tuple[int, int, int, int, int]] = []
        num_parts = 0
        for segment in segments:
            first_page = len(pages)
            pages.extend(chain.from_iterable(range(at, at + count) for at, count in segment.runs))
            num_tokens = (len(pages) - first_page) * PAGE_SIZE_TOKENS
            if num_tokens < segment.position_end:
                msg = f"page runs hold {num_tokens} tokens, {segment.position_end} are needed"
                raise ValueError(msg)
            start = segment.context_start
            first = segment.position_start
            self.lanes.append((len(rows), segment.num_rows, first, start, first_page))
            for position in range(first, segment.position_end):
                rows.append((position, start, first_page, num_parts))
                num_parts += position // PART_TOKENS - start // PART_TOKENS + 1
        self.pages = np.array(pages, np.int64)
        self.rows = np.array(rows, np.int64).reshape(-1, ROW_SIZE)

    @cached_property
    def parts(self) -> np.ndarray:
        """Int64 `[num_parts, 2]`: row, number of the part within its context."""
        parts = []
        for row, (position, start, *_) in enumerate(self.rows.tolist()):
            first, last = start // PART_TOKENS, position // PART_TOKENS
            own = np.empty((last - first + 1, 2), np.int64)
            own[:, 0] = row
            own[:, 1] = np.arange(first, last + 1)
            parts.append(own)
        return np.concatenate(parts)
