"""How the rows of a step are grouped for attention. Knows nothing about how attention is computed."""

from collections.abc import Iterator, Sequence
from typing import Final

from ninfer.kernels.kv_pool import KvLayout
from ninfer.kernels.paged_attention import SegmentKernel
from ninfer.kernels.segment import Segment

MAX_SINGLE_ROWS: Final = 4
LEAST_ROWS: Final = 128
MAX_ROWS: Final = 512
"""Rows of a long segment that attend together: among themselves half of all scores are computed for nothing. Where heads are
many or wide, fewer rows are work enough for a call (measured: SmolLM2 prefills 15 % faster with 128 than with 512, tiny-hybrid slower)."""
ROWS_TIMES_WIDTH: Final = 32_768
"""Work enough: rows times elements of a token's keys."""
MAX_SINGLE_BYTES: Final = 256 << 10
"""KV of one layer that every row of a segment may read for itself: it stays in a cache. A call for one row takes about
12 us; one for several rows needs a second call for the rows among themselves, and merging, together about 100 us."""


def attending_segments(
    segments: Sequence[Segment], layout: KvLayout, kernel: SegmentKernel | None = None
) -> tuple[Segment, ...]:
    """Split segments for torch's kernel: short ones over short contexts into single rows, with the bits of a plain step.

    Long segments are split where their positions are multiples of `rows_together`; a part reads the KV of earlier ones.

    Args:
        segments: of a step; only where their KV is and what rows look at counts in the result.
        layout: of the pool.
        kernel: takes segments as they are, if it takes the layout at all.

    Returns:
        Segments that cover the same rows in the same order.
    """
    if kernel is not None and kernel.takes(layout):
        return tuple(segments)
    max_rows = rows_together(layout)
    layer_bytes = layout.token_bytes // layout.num_layers
    attending: list[Segment] = []
    for segment in segments:
        is_short = segment.position_end * layer_bytes <= MAX_SINGLE_BYTES
        if segment.num_rows > max_rows:
            attending.extend(_parts(segment, max_rows))
        elif segment.num_rows > MAX_SINGLE_ROWS or not is_short:
            attending.append(segment)
        else:
            attending.extend(_parts(segment, 1))
    return tuple(attending)


def rows_together(layout: KvLayout) -> int:
    """Return how many rows of a long segment attend together: a power of two."""
    rows = MAX_ROWS
    while rows > LEAST_ROWS and rows * layout.num_kv_heads * layout.head_dim > ROWS_TIMES_WIDTH:
        rows //= 2
    return rows


def _parts(segment: Segment, max_rows: int) -> Iterator[Segment]:
    """Cut a segment at positions that are multiples of a number of rows."""
    start = segment.position_start
    while start < segment.position_end:
        end = min(segment.position_end, (start // max_rows + 1) * max_rows)
        yield Segment(
            segment.row_start + start - segment.position_start,
            end - start,
            start,
            segment.runs,
            context_start=segment.context_start,
        )
        start = end
