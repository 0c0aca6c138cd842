"""Who may start: first in, first out, with passing that is proven not to hold the head up. No look at contents.

A later request may pass a blocked head only if the head would still fit with the passer's whole reservation held for
ever, together with those of earlier passers that still run; and only a bounded number of times.
"""

from collections.abc import Callable
from typing import Final

from ninfer.cache.lane_context import ContextStatus, LaneContext
from ninfer.cache.manager import Blocked, CacheManager
from ninfer.sched.waiting import Waiting, WaitingQueue

MAX_SCANNED: Final = 32
"""Requests behind a blocked head that are looked at in one step."""

MAX_WAITS: Final = 256
"""Looks at one request that may end in waiting for copies; after that it starts with what room there is."""


class Admission:
    """Gives lanes to waiting requests.

    Args:
        manager: plans contexts.
        num_lanes: requests that can run at once.
        max_head_passes: how often a blocked head may be passed.
        is_held_back: tells whether a request has to wait for another (a fork for its leader).
    """

    def __init__(
        self,
        manager: CacheManager,
        *,
        num_lanes: int,
        max_head_passes: int,
        is_held_back: Callable[[Waiting], bool],
    ) -> None:
        """Start with all lanes free."""
        self.queue = WaitingQueue()
        self.parked: list[Waiting] = []
        self.num_lanes = num_lanes
        self._manager = manager
        self._max_head_passes = max_head_passes
        self._is_held_back = is_held_back
        self._free_lanes = list(range(num_lanes))[::-1]
        self._passers: dict[str, int] = {}

    @property
    def num_free_lanes(self) -> int:
        """Lanes that nobody holds."""
        return len(self._free_lanes)

    def give_lane_back(self, number: int, request_id: str) -> None:
        """A request ended."""
        self._free_lanes.append(number)
        self._passers.pop(request_id, None)

    def step(self) -> list[Waiting]:
        """Start what can start; return requests whose context is ready, in order."""
        ready = self._collect_parked()
        while self._free_lanes:
            started = self._start_next()
            if started is None:
                break
            if started.context is not None and started.context.status is ContextStatus.READY:
                ready.append(started)
            else:
                self.parked.append(started)
        return ready

    def _collect_parked(self) -> list[Waiting]:
        ready, still = [], []
        for waiting in self.parked:
            context = waiting.context
            if context is None or context.status is ContextStatus.LOST:
                self._requeue(waiting)
            elif context.status is ContextStatus.READY:
                ready.append(waiting)
            else:
                still.append(waiting)
        self.parked = still
        return ready

    def _requeue(self, waiting: Waiting) -> None:
        waiting.context = None
        waiting.blocked_revision = None
        self.give_lane_back(waiting.lane, waiting.request.request_id)
        self.queue.put_first(waiting)

    def _start_next(self) -> Waiting | None:
        head: Waiting | None = None
        for scanned, waiting in enumerate(self.queue):
            if scanned >= MAX_SCANNED:
                break
            if self._is_held_back(waiting):
                continue
            if head is not None and not self._may_pass(head, waiting):
                continue
            context = self._try(waiting)
            if context is not None:
                return self._started(waiting, context, head)
            head = head or waiting
        return None

    def _try(self, waiting: Waiting) -> LaneContext | None:
        revision = self._manager.store.revision
        if waiting.blocked_revision == revision:
            return None
        may_wait = waiting.num_waits < MAX_WAITS
        result = self._manager.admit(waiting.request, may_wait=may_wait)
        if isinstance(result, Blocked):
            waiting.num_waits += result is Blocked.TRANSFER
            waiting.blocked_revision = self._manager.store.revision
            return None
        return result

    def _started(self, waiting: Waiting, context: LaneContext, head: Waiting | None) -> Waiting:
        self.queue.remove(waiting)
        waiting.context = context
        waiting.lane = self._free_lanes.pop()
        if head is None:
            self._passers.clear()
        else:
            head.num_passed += 1
            need = self._manager.need_of(waiting.request)
            self._passers[waiting.request.request_id] = need.num_pages
        return waiting

    def _may_pass(self, head: Waiting, passer: Waiting) -> bool:
        if head.num_passed >= self._max_head_passes:
            return False
        layout = self._manager.store.layout
        num_slots = layout.num_state_slots if self._manager.store.has_state else self.num_lanes
        if len(self._passers) + 2 > min(self.num_lanes, num_slots):
            return False
        held_pages = sum(self._passers.values())
        held_pages += self._manager.need_of(passer.request).num_pages
        head_pages = self._manager.need_of(head.request).num_pages
        return head_pages + held_pages <= layout.num_pages
