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
    """

    chunk_sizes: ChunkSizes
    max_queue: int
    queue_timeout_s: float
    max_head_passes: int
