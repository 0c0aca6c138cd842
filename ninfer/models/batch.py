"""The input of one forward pass. Knows nothing about requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ninfer.kernels.segment import Segment

__all__ = ["BatchPart", "ForwardBatch", "Segment"]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Rows of several lanes, decode steps and prefill chunks in any mix.

    Attributes:
        token_ids: int64 `[num_rows]` on the model's device.
        positions: int64 `[num_rows]`, position of each token in its lane.
        segments: one per lane, covering the rows in order without gaps.
    """

    token_ids: Tensor
    positions: Tensor
    segments: tuple[Segment, ...]

    @staticmethod
    def of(
        token_ids: Sequence[int], segments: Sequence[Segment], device: torch.device | str = "cpu"
    ) -> "ForwardBatch":
        """Build a batch from host integers.

        Args:
            token_ids: one per row.
            segments: cover the rows in order without gaps.
            device: where the tensors go.

        Raises:
            ValueError: segments and rows do not match.
        """
        next_row = 0
        for segment in segments:
            if segment.row_start != next_row or segment.num_rows < 1:
                raise ValueError(f"segment {segment} does not start at row {next_row}")
            next_row += segment.num_rows
            if len(segment.state_slots_after) not in {0, segment.num_rows}:
                raise ValueError(f"segment {segment} needs one slot after each row, or none")
        if next_row != len(token_ids):
            raise ValueError(f"segments cover {next_row} rows, there are {len(token_ids)}")
        positions = [p for s in segments for p in range(s.position_start, s.position_end)]
        return ForwardBatch(
            torch.tensor(token_ids, dtype=torch.int64, device=device),
            torch.tensor(positions, dtype=torch.int64, device=device),
            tuple(segments),
        )

    def parted(
        self, is_first: Callable[[Segment], bool]
    ) -> tuple["BatchPart | None", "BatchPart | None"]:
        """Divide the batch into segments for which `is_first` is true, and the others; None for a part without any."""
        chosen = [segment for segment in self.segments if is_first(segment)]
        if len(chosen) == len(self.segments):
            return BatchPart(self, slice(None)), None
        if not chosen:
            return None, BatchPart(self, slice(None))
        others = [segment for segment in self.segments if not is_first(segment)]
        return self._part(chosen), self._part(others)

    def _part(self, segments: Sequence[Segment]) -> "BatchPart":
        rows = torch.cat([
            torch.arange(segment.row_start, segment.row_start + segment.num_rows)
            for segment in segments
        ]).to(self.token_ids.device)
        moved, start = [], 0
        for segment in segments:
            moved.append(replace(segment, row_start=start))
            start += segment.num_rows
        part = ForwardBatch(self.token_ids[rows], self.positions[rows], tuple(moved))
        return BatchPart(part, rows)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Some segments of a batch.

    Attributes:
        batch: of these alone.
        rows: where their rows are in the whole batch: int64 indices, or all.
    """

    batch: ForwardBatch
    rows: Tensor | slice
