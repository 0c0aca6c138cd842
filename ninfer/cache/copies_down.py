"""Copies objects to slower tiers: ahead of pressure, to make victims cheap, and all of them at shutdown."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ninfer.api import PlacementPolicy
from ninfer.cache.eviction import Evictor
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.node import DEVICE, StoredObject, page_of
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_writes import Admission
from ninfer.cache.transfers import Transfers

MAX_IN_FLIGHT: Final = 64
IN_FLIGHT_BYTES: Final = 8 << 20
"""Of small images more are under way at once, up to this: those that wait for the same tier share its flushes."""
MAX_OFFERED: Final = 65_536
MAX_TRIES: Final = 4
AHEAD_IMAGES: Final = 32
"""Images of a nearly full tier that are copied further down before room is needed."""


class CopiesDown:
    """Starts copies to slower tiers and books their results.

    Args:
        store: the context store.
        evictor: makes room for copies.
        transfers: does them.
        policy: says what is worth copying.
    """

    def __init__(
        self,
        store: ContextStore,
        evictor: Evictor,
        transfers: Transfers,
        policy: PlacementPolicy,
    ) -> None:
        """Start with nothing offered."""
        self._store = store
        self._evictor = evictor
        self._transfers = transfers
        self._policy = policy
        self._offered: deque[tuple[StoredObject, int]] = deque(maxlen=MAX_OFFERED)
        self._deferred: list[tuple[StoredObject, int]] = []
        self._ahead_revision = -1
        self.num_in_flight = 0
        self._in_flight_bytes = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing is offered or under way."""
        return not self._offered and self.num_in_flight == 0

    def offer(self, objects: Iterable[StoredObject]) -> None:
        """Consider objects, parents first, for copies ahead of pressure, into room that nobody needs.

        A copy of what a faster tier holds anyway must not displace the only copy of something else.
        """
        if self._store.num_tiers > 1:
            self._offered.extend((stored, 0) for stored in objects)

    def pump(self) -> None:
        """Start offered copies, as many as may be under way at once."""
        while self._offered and not self._is_busy:
            stored, num_tries = self._offered.popleft()
            if not stored.is_gone:
                self._copy_where_wanted(stored, num_tries)
        self._keep_ahead()
        now_s = self._store.clock.monotonic_s()
        self._store.revision += sum(ledger.try_again(now_s) for ledger in self._store.ledgers)

    @property
    def _is_busy(self) -> bool:
        return self.num_in_flight >= MAX_IN_FLIGHT and self._in_flight_bytes >= IN_FLIGHT_BYTES

    def _keep_ahead(self) -> None:
        """Copy the next victims of a tier that is nearly full further down, so that giving them up is a mere drop.

        Done when nothing else is under way, and again only after something changed.
        """
        if self.num_in_flight or self._ahead_revision == self._store.revision:
            return
        self._ahead_revision = self._store.revision
        for tier in range(1, self._store.num_tiers - 1):
            ledger = self._store.ledgers[tier - 1]
            reserve = min(AHEAD_IMAGES * self._largest_bytes, ledger.capacity_bytes // 8)
            if ledger.free_bytes < reserve:
                room = self._evictor.plan_room(tier, reserve, below_value=math.inf)
                self.clean(room.dirty)

    @property
    def _largest_bytes(self) -> int:
        layout = self._store.layout
        return max(layout.page_image_bytes, layout.state_image_bytes)

    def _copy_where_wanted(self, stored: StoredObject, num_tries: int) -> None:
        """Start the copies a policy wants; what has to wait for others is tried again when one ended."""
        source = stored.fastest_tier(self._store.stalled)
        if source is None:
            return
        facts = self._store.values.facts_of(stored, source)
        for target in range(source + 1, self._store.num_tiers):
            if stored.replicas[target] is not None or self._transfers.is_stalled(target):
                continue
            has_room = (
                self._store.bytes_on(stored, target) <= self._store.ledgers[target - 1].free_bytes
            )
            if not has_room or not self._policy.wants_copy(facts, target):
                continue
            if self._admission(stored, target).is_refusal:
                continue
            is_started = self.copy(stored, source, target, is_ahead=True)
            if not is_started and self.num_in_flight and num_tries < MAX_TRIES:
                self._deferred.append((stored, num_tries + 1))

    def copy(
        self,
        stored: StoredObject,
        source: int,
        target: int,
        done: Callable[[Move], None] | None = None,
        *,
        is_promised: bool = False,
        is_ahead: bool = False,
        is_retry: bool = False,
    ) -> bool:
        """Start one copy if the tier lets it in and there is room, or less valuable objects make room.

        Args:
            stored: what.
            source: tier with a valid replica.
            target: slower tier without one.
            done: told when it ended, after the books are right.
            is_promised: to be written whatever else was written lately.
            is_ahead: of pressure, so nothing is given up for it if the tier turns out to be full.
            is_retry: the tier was full once already.

        Returns:
            False if it was not started.
        """
        if stored.valid_on(source) is None or stored.replicas[target] is not None:
            return False
        num_bytes = self._store.bytes_on(stored, target)
        admission = Admission.ORDINARY if is_promised else self._admission(stored, target)
        if admission.is_refusal:
            self._evictor.count_unwritten(stored, target, admission)
            return False
        if self._store.ledgers[target - 1].free_bytes < num_bytes:
            bid = self._evictor.bid(stored, target, admission)
            self._store.lease(stored, source)
            room = self._evictor.plan_room(target, num_bytes, below_value=bid, leaving=source)
            if room.is_enough and room.dirty:
                self.clean(room.dirty)
            elif room.is_enough:
                self._evictor.apply_drops(room)
            self._store.release(stored, source)
            if not room.is_enough and admission is not Admission.ORDINARY:
                self._evictor.count_unwritten(stored, target, admission)
            if not room.is_enough or room.dirty or stored.is_gone:
                return False
        self.start(stored, source, target, done, may_retry=not (is_ahead or is_retry))
        return True

    def can_write(self, objects: Iterable[StoredObject], target: int) -> bool:
        """Tell whether the write budget of a tier has room for all of these objects now."""
        num_bytes = sum(self._store.bytes_on(stored, target) for stored in objects)
        return self._evictor.writes[target - 1].budget.allows(num_bytes)

    def _admission(self, stored: StoredObject, target: int) -> Admission:
        num_bytes = self._store.bytes_on(stored, target)
        return self._evictor.writes[target - 1].admission(stored, num_bytes)

    def start(
        self,
        stored: StoredObject,
        source: int,
        target: int,
        done: Callable[[Move], None] | None = None,
        *,
        may_retry: bool = True,
    ) -> Move:
        """Start a copy whose room is free; if the tier is full all the same, once more in place of what is worth less."""
        reserved = self._store.reserve_replica(stored, target)
        self._evictor.writes[target - 1].budget.take(reserved.num_bytes)
        replica = self._store.lease(stored, source)
        move = Move(
            key=self._store.names.key_of(stored),
            header=self._store.names.header_of(stored),
            num_bytes=self._store.payload_bytes(stored),
            source=source,
            target=target,
            location=replica.location if source == DEVICE else -1,
            tag=lambda ended: self._ended(stored, ended, done, may_retry=may_retry),
        )
        self.num_in_flight += 1
        self._in_flight_bytes += move.num_bytes
        self._transfers.start([move])
        return move

    def clean(self, dirty: Iterable[tuple[StoredObject, int, int]]) -> None:
        """Start the copies that a plan needs before it can be carried out."""
        for stored, source, target in dirty:
            self.copy(stored, source, target)

    def _ended(
        self,
        stored: StoredObject,
        move: Move,
        done: Callable[[Move], None] | None,
        *,
        may_retry: bool,
    ) -> None:
        self.num_in_flight -= 1
        self._in_flight_bytes -= move.num_bytes
        self._offered.extend(self._deferred)
        self._deferred.clear()
        if not stored.is_gone:  # else its reserved replica went with it
            is_done = move.status is MoveStatus.DONE
            settle = self._store.commit_replica if is_done else self._store.drop_replica
            settle(stored, move.target)
        is_tried_again = move.is_full and self._found_full(stored, move, done, may_retry=may_retry)
        self._store.release(stored, move.source)
        if done is not None and not is_tried_again:
            done(move)
        if move.status is MoveStatus.SOURCE_LOST and move.source != DEVICE:
            self._drop_damaged(stored, move.source)

    def _found_full(
        self,
        stored: StoredObject,
        move: Move,
        done: Callable[[Move], None] | None,
        *,
        may_retry: bool,
    ) -> bool:
        """A tier has less room than the books say: believe it, make room, try once more; tell whether that is under way."""
        if self._transfers.handles[move.target - 1].capabilities.shared:
            return False
        self._store.ledgers[move.target - 1].found_full(self._store.clock.monotonic_s())
        self._store.revision += 1
        return (
            may_retry
            and not stored.is_gone
            and self.copy(stored, move.source, move.target, done, is_promised=True, is_retry=True)
        )

    def _drop_damaged(self, stored: StoredObject, tier: int) -> None:
        replica = stored.replicas[tier]
        if not stored.is_gone and replica is not None and not replica.leases:
            self._store.drop_replica(stored, tier)

    def flush(self, target: int, *, keep_going: Callable[[], bool]) -> int:
        """Copy everything worth it to a durable tier, most recently used first.

        Args:
            target: tier index.
            keep_going: called while waiting; polls transfers, False ends the flush.

        Returns:
            Number of copies started.
        """
        objects: list[StoredObject] = []
        for node in self._store.tree.nodes():
            objects.append(node)
            if node.image is not None:
                objects.append(node.image)
        objects.sort(key=lambda stored: (-stored.last_use_index, page_of(stored).end_tokens))
        num_started = 0
        for stored in objects:
            source = stored.fastest_tier(self._store.stalled)
            if stored.is_gone or source is None or source >= target:
                continue
            num_started += self.copy(stored, source, target)
            while self._is_busy:
                if not keep_going():
                    return num_started
        while self.num_in_flight and keep_going():
            pass
        return num_started
