"""Which tokens a step computes. Pure: numbers in, numbers out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ninfer.core.step import PAGE_SIZE_TOKENS, LaneChunk
from ninfer.sched.ladder import rungs_from_end, rungs_from_start
from ninfer.sched.lane import Lane

MIN_AUTO_TOKENS: Final = 512
MAX_AUTO_TOKENS: Final = 4096
"""Longer chunks gain nothing more: what a call of an operator costs has vanished."""
AUTO_S: Final = 0.1
"""Another request, or the end of this one, waits so long for a chunk of more than the least size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSizes:
    """Prompt tokens of one step.

    Attributes:
        alone_tokens: while nobody decodes.
        shared_tokens: while other lanes decode, so that their next token comes soon.
    """

    alone_tokens: int
    shared_tokens: int


def auto_chunk_tokens(tokens_per_s: float) -> int:
    """Choose the chunk size for a measured speed of prefill: a power of two."""
    tokens = MIN_AUTO_TOKENS
    while 2 * tokens <= min(MAX_AUTO_TOKENS, tokens_per_s * AUTO_S):
        tokens *= 2
    return tokens


def choose_prefills(
    lanes: Sequence[Lane], sizes: ChunkSizes, *, is_decoding: bool, step_index: int
) -> list[tuple[Lane, int]]:
    """Return (lane, end position) of the prompt chunks of one step, within the budget.

    The oldest prompt and the one with the least left take turns at being first, so that a long prompt neither
    starves nor holds up short ones. Chunks end at multiples of the chunk size and at captures, so that a resumed
    prompt is split where a cold one is.

    Args:
        lanes: lanes with prompt tokens left, oldest first.
        sizes: budgets.
        is_decoding: other lanes decode in the same step.
        step_index: number of the step, for taking turns.
    """
    size = sizes.shared_tokens if is_decoding else sizes.alone_tokens
    budget = size
    ordered = list(lanes)
    if step_index % 2:
        ordered.sort(key=lambda lane: lane.num_left)
    chosen: list[tuple[Lane, int]] = []
    for lane in ordered:
        end = chunk_end(lane, size)
        if end - lane.num_computed <= budget:
            chosen.append((lane, end))
            budget -= end - lane.num_computed
    return chosen


def chunk_end(lane: Lane, chunk_tokens: int) -> int:
    """Return where a lane's next prompt chunk ends."""
    start = lane.num_computed
    end = min(lane.num_prompt_tokens, (start // chunk_tokens + 1) * chunk_tokens)
    while lane.captures and lane.captures[0] <= start:
        lane.captures.popleft()
    if lane.captures:
        end = min(end, lane.captures[0])
    return end


def plan_captures(lane: Lane, first_rung_tokens: int) -> None:
    """Find the prompt positions whose state is worth keeping.

    These are the marks of client and template, where the prompt leaves the path of earlier ones (others will do so
    too), the rungs of the ladder, and the last position an identical prompt could resume from, unless a mark is
    within a page of it.

    Args:
        lane: just opened.
        first_rung_tokens: first rung of the ladder.

    Changes: captures and rungs of the lane, anchors of its context.
    """
    num_tokens, start, context = lane.num_prompt_tokens, lane.num_computed, lane.context
    last = num_tokens - 1
    anchors = {*lane.request.cache.marker_tokens, context.branch_tokens}
    marks = {mark for mark in anchors if start < mark <= last}
    if last > start and not any(last - mark < PAGE_SIZE_TOKENS for mark in marks):
        marks.add(last)
    rungs = rungs_from_start(num_tokens, first_rung_tokens)
    context.anchors = frozenset((*anchors, *rungs))
    rungs += rungs_from_end(num_tokens, first_rung_tokens)
    near = first_rung_tokens // 4
    lane.rungs = (
        frozenset(
            rung
            for rung in rungs
            if start < rung <= last and not any(0 <= rung - mark < near for mark in marks)
        )
        - marks
    )
    lane.captures = deque(sorted(marks | lane.rungs))


def decode_chunk(lane: Lane, draft: tuple[int, ...]) -> LaneChunk:
    """Return the chunk of a lane whose prompt is computed: its last token and guesses."""
    start, context = lane.num_computed, lane.context
    slots_after: tuple[int, ...] = ()
    if draft and context.state_slot is not None:
        slots_after = (*context.scratch_slots[: len(draft)], context.state_slot)
    return LaneChunk(
        lane=lane.number,
        start_tokens=start,
        token_ids=(*lane.token_ids[start:], *draft),
        num_draft=len(draft),
        runs=context.runs,
        state_slot=context.state_slot,
        state_slots_after=slots_after,
        samples=True,
    )


def prefill_chunk(lane: Lane, end: int, capture_slot: int | None) -> LaneChunk:
    """Return the chunk of a lane's prompt up to `end`."""
    is_last = end == lane.num_prompt_tokens
    return LaneChunk(
        lane=lane.number,
        start_tokens=lane.num_computed,
        token_ids=lane.token_ids[lane.num_computed : end],
        runs=lane.context.runs,
        state_slot=lane.context.state_slot,
        samples=is_last and lane.request.max_tokens > 0,
        capture_slot=capture_slot,
    )
