"""Bounds of the scheduler. Plain data."""

from dataclasses import dataclass

from ninfer.sched.chunks import ChunkSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds of the scheduler.

    Attributes:
        chunk_sizes: prompt tokens per step.
        max_queue: requests that may wait.
        queue_timeout_s: how long one may wait.
        max_head_passes: how often a blocked head may be passed.
        first_rung_tokens: where the ladder of resume points inside long prompts begins; whole pages. Computing so many
            tokens again costs about as much as the room for one more state image is worth.
    """

    chunk_sizes: ChunkSizes
    max_queue: int
    queue_timeout_s: float
    max_head_passes: int
    first_rung_tokens: int = 1024
