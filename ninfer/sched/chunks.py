"""Which tokens a step computes. Pure: numbers in, numbers out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ninfer.core.step import LaneChunk
from ninfer.sched.lane import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSizes:
    """Prompt tokens of one step.

    Attributes:
        alone_tokens: while nobody decodes.
        shared_tokens: while other lanes decode, so that their next token comes soon.
    """

    alone_tokens: int
    shared_tokens: int


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


def capture_points(lane: Lane) -> deque[int]:
    """Return the prompt positions whose state is worth keeping.

    These are the marks of client and template, where the prompt leaves the path of earlier ones (others will do so
    too), and the last position an identical prompt could resume from.
    """
    last = lane.num_prompt_tokens - 1
    marked = {*lane.request.cache.marker_tokens, lane.context.branch_tokens, last}
    return deque(sorted(p for p in marked if lane.num_computed < p <= last))


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
