"""Requests that wait, in order. Knows nothing about what they wait for."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ninfer.cache.lane_context import LaneContext
from ninfer.core.request import GenerationRequest


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting:
    """A request without a lane.

    Attributes:
        request: what was asked.
        submitted_s: when it was queued.
        deadline_s: when it gives up, monotonic seconds.
        blocked_revision: revision of the store at which it could not start; looked at again when that changed.
        num_passed: later requests that started before it while it was the head.
        num_waits: times it had to wait for copies that make room.
        was_retried: it could not be placed on an idle engine once.
        context: what it holds while its transfers run, None in the queue.
        lane: lane number it got, with a context.
    """

    request: GenerationRequest
    submitted_s: float
    deadline_s: float
    blocked_revision: int | None = None
    num_passed: int = 0
    num_waits: int = 0
    was_retried: bool = False
    context: LaneContext | None = None
    lane: int = -1


class WaitingQueue:
    """First in, first out, with removal by id."""

    def __init__(self) -> None:
        """Start empty."""
        self._entries: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def append(self, waiting: Waiting) -> None:
        """Queue behind all others."""
        self._entries.append(waiting)

    def put_first(self, waiting: Waiting) -> None:
        """Queue before all others: it was there before."""
        self._entries.appendleft(waiting)

    def remove(self, waiting: Waiting) -> None:
        """Take an entry out."""
        self._entries.remove(waiting)

    def find(self, request_id: str) -> Waiting | None:
        """Return the entry of a request."""
        return next((w for w in self._entries if w.request.request_id == request_id), None)

    def expired(self, now_s: float) -> list[Waiting]:
        """Return entries past their deadline."""
        return [waiting for waiting in self._entries if waiting.deadline_s <= now_s]

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline."""
        return min((waiting.deadline_s for waiting in self._entries), default=None)
