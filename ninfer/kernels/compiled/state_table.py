"""Where the rows of a step and their states are, as numbers for compiled functions. Needs no numba."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ninfer.kernels.segment import Segment

ROW_START: Final = 0
SEGMENT_ROWS: Final = 1
SLOT: Final = 2
FIRST_KEPT: Final = 3
"""Where the segment's slots begin among those kept, one per row; -1 for none."""
SEGMENT_SIZE: Final = 4


class StateTable:
    """The segments of a step; the same for all layers.

    Attributes:
        segments: int64 `[num_segments, SEGMENT_SIZE]`.
        kept: int64 slots that get the state after a row.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Write the tables; every segment has a state slot."""
        kept: list[int] = []
        rows = []
        for segment in segments:
            first = len(kept) if segment.state_slots_after else -1
            kept.extend(segment.state_slots_after)
            rows.append((segment.row_start, segment.num_rows, segment.state_slot, first))
        self.segments = np.array(rows, np.int64)
        self.kept = np.array(kept, np.int64)
