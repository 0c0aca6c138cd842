"""Carries out what requests ask of the time their contexts stay reusable. Decides no order of victims."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ninfer.cache.copies_down import CopiesDown
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.core.retention import Retention, RetentionMode

_log = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """What the configuration says.

    Attributes:
        default_s: for requests that ask for nothing; 0.0 for none.
        max_s: longest that is granted.
    """

    default_s: float = 0.0
    max_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A copy that a strict retention needs; its source is leased until it is there."""

    stored: StoredObject
    source: int


class Retaining:
    """Grants retentions when requests end, and copies what was promised strictly.

    Args:
        store: the context store.
        copies_down: does the copies.
        limits: of the configuration.
        is_usable: tells whether a lower tier takes copies now.
    """

    def __init__(
        self,
        store: ContextStore,
        copies_down: CopiesDown,
        limits: RetentionLimits,
        is_usable: Callable[[int], bool],
    ) -> None:
        """Start with nothing promised."""
        self._store = store
        self._copies_down = copies_down
        self._limits = limits
        self._is_usable = is_usable
        self._pending: deque[_Pending] = deque()
        self._num_copying = 0

    def wish_of(self, asked: Retention | None) -> Retention | None:
        """Return what a request gets at most, None for nothing."""
        if asked is None:
            seconds = min(self._limits.default_s, self._limits.max_s)
            return Retention(seconds=seconds) if seconds > 0 else None
        seconds = min(asked.seconds, self._limits.max_s)
        return Retention(seconds=seconds, mode=asked.mode) if seconds > 0 else None

    def grant(self, context: LaneContext) -> None:
        """Retain what a request leaves, if it asked for that. Cost: one walk along its path.

        Changes: deadlines, values, and `retained_s` of the context.
        """
        wish = context.retention
        path = self._path_of(context) if wish is not None else []
        if wish is None or not path:
            return
        end = next(stored for stored in reversed(path) if isinstance(stored, PageNode))
        now_s = self._store.clock.monotonic_s()
        if wish.mode is RetentionMode.STRICT:
            is_granted = self._grant_strictly(path, end, wish.seconds, now_s)
        else:
            is_granted = self._store.retentions.retain(path, end, seconds=wish.seconds, now_s=now_s)
        for stored in path:
            self._store.revalue(stored)
        if is_granted:
            context.retained_s = wish.seconds
            context.retain_until_unix_s = self._store.clock.unix_s() + wish.seconds
        else:
            _log.info("retention_refused mode=%s seconds=%g", wish.mode, wish.seconds)

    def _path_of(self, context: LaneContext) -> list[StoredObject]:
        """Return the pages and the image of the deepest resume point that a request left."""
        path: list[StoredObject] = [*context.path]
        end = context.end
        if end is not None and end.is_tail:
            path.append(end)
        if not self._store.has_state:
            return path
        while path and (not isinstance(path[-1], PageNode) or path[-1].image is None):
            path.pop()
        last = path[-1] if path else None
        if isinstance(last, PageNode) and last.image is not None:
            path.append(last.image)
        return path

    def _grant_strictly(
        self, path: list[StoredObject], end: PageNode, seconds: float, now_s: float
    ) -> bool:
        tiers = [
            tier
            for tier in range(1, self._store.num_tiers)
            if self._is_usable(tier) and self._copies_down.can_write(path, tier)
        ]
        tier = self._store.retentions.retain_strictly(
            path, end, seconds=seconds, now_s=now_s, tiers=tiers
        )
        if tier is None:
            return False
        for stored in path:
            source = stored.fastest_tier(self._store.stalled)
            if stored.valid_on(tier) is None and source is not None:
                self._store.lease(stored, source)
                self._pending.append(_Pending(stored, source))
        self.pump()
        return True

    def pump(self) -> bool:
        """Start copies that were promised; make contexts ordinary whose time is over. Tell whether anything changed."""
        expired = self._store.retentions.expired(self._store.clock.monotonic_s())
        for stored in expired:
            if not stored.is_gone:
                self._store.revalue(stored)
        is_changed = bool(expired)
        while self._pending and self._num_copying < MAX_IN_FLIGHT:
            if not self._start(self._pending[0]):
                break
            self._pending.popleft()
            is_changed = True
        return is_changed

    def _start(self, pending: _Pending) -> bool:
        """Start a copy; one that is not needed any more, or not possible, gives up its lease. False to try again."""
        stored, tier = pending.stored, pending.stored.strict_tier
        is_needed = not stored.is_gone and tier != DEVICE and stored.valid_on(tier) is None
        if is_needed and self._copies_down.copy(
            stored,
            pending.source,
            tier,
            lambda move: self._copied(pending, move),
            is_promised=True,
        ):
            self._num_copying += 1
            return True
        if is_needed and self._copies_down.num_in_flight:
            return False
        self._store.release(stored, pending.source)
        if is_needed:
            self._break_promise(stored, "there is no room after all")
        return True

    def _copied(self, pending: _Pending, move: Move) -> None:
        self._num_copying -= 1
        self._store.release(pending.stored, pending.source)
        if move.status is not MoveStatus.DONE and not pending.stored.is_gone:
            self._break_promise(pending.stored, f"the copy ended with {move.status}")

    def _break_promise(self, stored: StoredObject, reason: str) -> None:
        """A tier failed: what was promised strictly is kept softly."""
        if stored.strict_tier != DEVICE:
            _log.warning("retention_broken tier=%d reason=%s", stored.strict_tier, reason)
            self._store.retentions.release_strict(stored)
            self._store.revalue(stored)

    @property
    def is_idle(self) -> bool:
        """True if no promised copy is waiting or under way."""
        return not self._pending and not self._num_copying
