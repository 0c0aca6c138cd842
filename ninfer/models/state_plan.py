"""Which rows of a step use which state slots, worked out once for all layers. Knows nothing about what a layer computes."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from ninfer.kernels.compiled.state_table import StateTable
from ninfer.kernels.segment import Segment
from ninfer.kernels.state_pool import StatePool

MAX_STEPPED_ROWS: Final = 4
"""Segments of so many rows are computed row by row, together with those of other lanes."""

Selector = slice | Tensor
"""Picks along the first axis: a slice where possible, because that copies nothing."""


def selector(indices: Sequence[int], device: torch.device) -> Selector:
    """Pick the given indices, in this order."""
    first = indices[0]
    step = indices[1] - first if len(indices) > 1 else 1
    if step > 0 and all(index == first + i * step for i, index in enumerate(indices)):
        return slice(first, indices[-1] + 1, step)
    return torch.tensor(indices, device=device)


def store(target: Tensor, where: Selector, values: Tensor) -> None:
    """Write values to the picked places of a tensor's first axis."""
    if isinstance(where, slice):
        target[where].copy_(values)
    else:
        target.index_copy_(0, where, values)


class SteppedRows:
    """Short segments, computed row by row with all lanes at once; lanes with more rows come first.

    Attributes:
        shape: (lanes, rows of the longest).
        rows: batch rows `[lanes * longest]`, lane by lane; a shorter lane repeats its last row.
        slots: state slot of each lane.
        are_plain: one row per lane, whose state goes to the lane's slot alone.
        is_in_order: `rows` are those of the whole batch in their order, if it has no other segments.
    """

    def __init__(self, segments: Sequence[Segment], device: torch.device) -> None:
        """Sort the segments; each has a state slot."""
        lanes = sorted(segments, key=lambda segment: -segment.num_rows)
        longest = lanes[0].num_rows
        self.shape = (len(lanes), longest)
        rows = [s.row_start + min(row, s.num_rows - 1) for s in lanes for row in range(longest)]
        self.rows = selector(rows, device)
        self.is_in_order = isinstance(self.rows, slice) and self.rows.step == 1
        self._places: tuple[Tensor, Tensor] | None = None
        if lanes[-1].num_rows < longest:
            real = [
                lane * longest + row for lane, s in enumerate(lanes) for row in range(s.num_rows)
            ]
            self._places = (
                torch.tensor(real, device=device),
                torch.tensor([rows[index] for index in real], device=device),
            )
        slots = [slot_of(segment) for segment in lanes]
        self.slots = selector(slots, device)
        self.are_plain = longest == 1 and not any(s.state_slots_after for s in lanes)
        if not self.are_plain:
            self._plan_keeping(lanes, device)

    def _plan_keeping(self, lanes: Sequence[Segment], device: torch.device) -> None:
        """Find (row, lane) of every state that is kept, and its slot. Short lanes' further rows are left out."""
        pairs: dict[int, int] = {}
        for lane, segment in enumerate(lanes):
            pairs[slot_of(segment)] = (segment.num_rows - 1) * len(lanes) + lane
            for row, slot in enumerate(segment.state_slots_after):
                pairs[slot] = row * len(lanes) + lane
        self._kept_slots = torch.tensor(list(pairs), device=device)
        self._kept = selector(list(pairs.values()), device)

    def keep(self, target: Tensor, after: Tensor) -> None:
        """Write what is kept of the states after several rows to their slots.

        Args:
            target: `[num_slots, ...]`.
            after: `[longest, lanes, ...]`, the states after each row; not for plain rows.
        """
        target.index_copy_(0, self._kept_slots, after.flatten(0, 1)[self._kept])

    def put(self, results: Tensor, target: Tensor) -> None:
        """Write results `[lanes, longest, ...]` to their batch rows of `target`."""
        results = results.flatten(0, 1)
        if self._places is None:
            store(target, self.rows, results)
        else:
            real, rows = self._places
            target.index_copy_(0, rows, results[real])


class StatePlan:
    """The groups of a step's rows.

    Attributes:
        states: where states are.
    """

    def __init__(self, states: StatePool, segments: Sequence[Segment]) -> None:
        """Sort the segments of a step.

        Raises:
            ValueError: a segment has no state slot, or one that is not in the pool or used by another one.
        """
        _check(states, segments)
        self.states = states
        self._segments = tuple(segments)
        pairs = {slot_of(s): s.row_start + s.num_rows - 1 for s in segments}
        for segment in segments:
            for row, slot in enumerate(segment.state_slots_after, start=segment.row_start):
                pairs[slot] = row
        self._hidden_slots = selector(list(pairs), states.device)
        self._hidden_rows = selector(list(pairs.values()), states.device)

    @cached_property
    def table(self) -> StateTable:
        """All segments, for compiled layers."""
        return StateTable(self._segments)

    @cached_property
    def stepped(self) -> SteppedRows | None:
        """Rows computed one by one; None if there are none."""
        segments = [s for s in self._segments if _is_stepped(s)]
        return SteppedRows(segments, self.states.device) if segments else None

    @cached_property
    def chunked(self) -> tuple[Segment, ...]:
        """Segments computed as chunks."""
        return tuple(s for s in self._segments if not _is_stepped(s))

    def keep_hidden(self, hidden: Tensor) -> None:
        """Store the last hidden state of every segment, and those after rows that are kept.

        Args:
            hidden: result of the forward pass, `[num_rows, hidden_size]`.
        """
        store(
            self.states.last_hidden,
            self._hidden_slots,
            hidden[self._hidden_rows].to(self.states.layout.dtype),
        )


def _is_stepped(segment: Segment) -> bool:
    return segment.num_rows <= MAX_STEPPED_ROWS or bool(segment.state_slots_after)


def slot_of(segment: Segment) -> int:
    """Return a segment's state slot.

    Raises:
        ValueError: it has none.
    """
    if segment.state_slot is None:
        raise ValueError(f"the model keeps state, but {segment} has no state slot")
    return segment.state_slot


def _check(states: StatePool, segments: Sequence[Segment]) -> None:
    used: set[int] = set()
    for segment in segments:
        own = slot_of(segment)
        slots = segment.state_slots_after
        if slots and slots[-1] == own:
            slots = slots[:-1]
        for slot in (own, *slots):
            if not 0 <= slot < states.num_slots:
                raise ValueError(f"state slot {slot} is not in a pool of {states.num_slots}")
            if slot in used:
                raise ValueError(f"state slot {slot} is used twice in one step")
            used.add(slot)
