"""Carries a plan out: leases, drops, spills, restores, and unwinding them. Decides nothing.

A sealed plan holds everything it needs from the first moment: what it will read is leased, free pages are taken, and
pages of victims that are still being copied down pass to it the moment they are free. If anything it counted on is
lost, all of it is given back and the request is planned again; what was restored by then stays on the device.
"""

from collections.abc import Callable
from functools import partial

from ninfer.api.errors import InvariantBroken
from ninfer.cache.copies_down import CopiesDown
from ninfer.cache.eviction import Evictor, Victim
from ninfer.cache.lane_context import ContextStatus, LaneContext
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.node import DEVICE, PageNode, StateImage, StoredObject
from ninfer.cache.page_pool import to_runs
from ninfer.cache.resume import Prefix
from ninfer.cache.store import ContextStore
from ninfer.cache.transfers import Transfers
from ninfer.cache.valuation import is_evictable
from ninfer.core.step import PageCopy, StateCopy


class Sealer:
    """Turns outcomes into running transfers and ready contexts.

    Args:
        store: the context store.
        evictor: applies drops.
        transfers: moves bytes.
        copies_down: moves victims down.
    """

    def __init__(
        self,
        store: ContextStore,
        evictor: Evictor,
        transfers: Transfers,
        copies_down: CopiesDown,
    ) -> None:
        """Keep the parts."""
        self._store = store
        self._evictor = evictor
        self._transfers = transfers
        self._copies_down = copies_down

    def seal(self, context: LaneContext, prefix: Prefix) -> None:
        """Take and start everything a plan says.

        Raises:
            InvariantBroken: the store changed since the plan was made. Nothing was changed.
        """
        outcome = context.outcome
        if outcome.revision != self._store.revision:
            msg = f"a plan of revision {outcome.revision} is sealed at {self._store.revision}"
            raise InvariantBroken(msg)
        for node in prefix.path[: outcome.num_shared_pages]:
            self._store.lease(node, DEVICE)
            context.path.append(node)
            context.pages.append(_location_of(node))
        sources: list[StoredObject] = [*outcome.restores]
        sources += [e for e in (outcome.point.partial, outcome.point.image) if e is not None]
        for stored in sources:
            tier = stored.fastest_tier(self._store.stalled) or DEVICE
            self._store.lease(stored, tier)
            context.leases.append((stored, tier))
        self._evictor.apply_drops(outcome.eviction)
        context.num_missing_pages = outcome.num_new_pages
        self._claim(context)
        for victim in outcome.eviction.victims:
            if victim.target is not None and victim.stored.valid_on(DEVICE) is not None:
                self._spill(context, victim)
        self._proceed(context)

    def _claim(self, context: LaneContext) -> None:
        """Take free pages and a slot, as far as they are missing."""
        num_pages = min(context.num_missing_pages, self._store.pages.num_free)
        pages = self._store.take_pages(num_pages)
        context.pages.extend(pages)
        context.owned.update(pages)
        context.num_missing_pages -= num_pages
        if self._store.has_state and context.state_slot is None:
            context.state_slot = self._store.take_slot()

    def _spill(self, context: LaneContext, victim: Victim) -> None:
        target = victim.target or DEVICE
        context.num_waiting += 1
        self._copies_down.start(
            victim.stored,
            DEVICE,
            target,
            lambda move: self._spilled(context, victim.stored, move),
        )

    def _spilled(self, context: LaneContext, stored: StoredObject, move: Move) -> None:
        """A victim was copied down, or could not be: either way its place on the device is wanted."""
        context.num_waiting -= 1
        if context.status is not ContextStatus.PARKED:
            return
        if move.status is MoveStatus.TARGET_REFUSED and self._spill_further(context, stored, move):
            return
        if not stored.is_gone and is_evictable(stored, DEVICE):
            self._store.drop_replica(stored, DEVICE)
        self._claim(context)
        self._proceed(context)

    def _spill_further(self, context: LaneContext, stored: StoredObject, refused: Move) -> bool:
        """A tier refused a victim although the books had room (it may be in pieces): try the tiers below it."""
        if stored.is_gone or stored.has_valid_below(DEVICE):
            return False
        for target in range(refused.target + 1, self._store.num_tiers):
            if not self._transfers.is_stalled(target) and self._copies_down.copy(
                stored, DEVICE, target, lambda move: self._spilled(context, stored, move)
            ):
                context.num_waiting += 1
                return True
        return False

    def _proceed(self, context: LaneContext) -> None:
        """Go on as far as possible: wait for victims, then restore, then be ready."""
        if context.num_waiting or context.status is not ContextStatus.PARKED:
            return
        has_slot = not self._store.has_state or context.state_slot is not None
        is_taken = any(
            node.replicas[DEVICE] is not None and _source_of(context, node) != DEVICE
            for node in context.outcome.restores
        )
        if context.num_missing_pages or not has_slot or is_taken:
            self.unwind(context)
            context.status = ContextStatus.LOST
            return
        moves = self._restores(context)
        if moves:
            self._start(context, moves)
        else:
            self._make_ready(context)

    def _restores(self, context: LaneContext) -> list[Move]:
        """Return the moves that bring to the device what is not there yet."""
        outcome = context.outcome
        sources = {id(stored): tier for stored, tier in reversed(context.leases)}
        moves, on_end = [], partial(self._restored, context)
        for node in outcome.restores:
            at, source = len(context.path), sources[id(node)]
            if source == DEVICE:
                context.pages.insert(at, _location_of(node))
            else:
                page = context.pages[at]
                context.owned.remove(page)
                self._store.device_pending(node, page)
                moves.append(self._move_to_device(node, source, page, on_end))
            self._store.lease(node, DEVICE)
            context.path.append(node)
        point = outcome.point
        slot = context.state_slot if context.state_slot is not None else -1
        if point.partial is not None and sources[id(point.partial)] != DEVICE:
            page = context.pages[point.num_pages]
            source = sources[id(point.partial)]
            moves.append(self._move_to_device(point.partial, source, page, on_end))
        if point.image is not None and sources[id(point.image)] != DEVICE:
            source = sources[id(point.image)]
            moves.append(self._move_to_device(point.image, source, slot, on_end))
        return moves

    def _move_to_device(
        self,
        stored: StoredObject,
        source: int,
        location: int,
        on_end: Callable[[Move], None],
    ) -> Move:
        return Move(
            key=self._store.names.key_of(stored),
            header=self._store.names.header_of(stored),
            num_bytes=self._store.payload_bytes(stored),
            source=source,
            target=DEVICE,
            location=location,
            tag=on_end,
            subject=stored,
        )

    def _start(self, context: LaneContext, moves: list[Move]) -> None:
        context.num_waiting += len(moves)
        for source in sorted({move.source for move in moves}):
            same = [move for move in moves if move.source == source]
            context.batches.extend(self._transfers.start(same))

    def _restored(self, context: LaneContext, move: Move) -> None:
        stored = move.subject
        assert isinstance(stored, PageNode | StateImage)  # noqa: S101 - what `_restores` began
        context.num_waiting -= 1
        is_done = move.status is MoveStatus.DONE
        pending = stored.replicas[DEVICE]
        is_target = (
            isinstance(stored, PageNode)
            and pending is not None
            and not pending.is_valid
            and pending.location == move.location
        )
        if is_done:
            restored = context.restored_bytes
            restored[move.source] = restored.get(move.source, 0) + move.num_bytes
            if isinstance(stored, PageNode):
                used = min(stored.end_tokens, context.resume_tokens)
                used -= stored.end_tokens - stored.num_tokens
                counts = context.restored_tokens
                counts[move.source] = counts.get(move.source, 0) + used
        if is_done and is_target and not stored.is_gone:
            self._store.commit_replica(stored, DEVICE)
        if context.status is ContextStatus.PARKED and not is_done:
            context.status = ContextStatus.LOST
        if move.status in {MoveStatus.SOURCE_LOST, MoveStatus.GIVEN_UP} and not stored.is_gone:
            self._forget_damaged(context, stored, move)
        if context.num_waiting == 0:
            self._settle(context)

    def _forget_damaged(self, context: LaneContext, stored: StoredObject, move: Move) -> None:
        """A read that failed is a miss from there on: the replica is given up when its leases end."""
        if context.status is ContextStatus.ENDED:
            return
        lease = (stored, move.source)
        if lease in context.leases:
            context.leases.remove(lease)
            self._store.release(stored, move.source)
        replica = stored.replicas[move.source]
        if replica is not None and replica.leases == 0 and not stored.is_gone:
            self._store.drop_replica(stored, move.source)

    def _settle(self, context: LaneContext) -> None:
        """The last transfer of a context ended."""
        if context.status is ContextStatus.PARKED:
            self._make_ready(context)
        else:
            self._give_back(context)

    def _make_ready(self, context: LaneContext) -> None:
        _keep_overtaken(context)
        outcome = context.outcome
        point = outcome.point
        context.runs = to_runs(context.pages)
        if point.partial is not None and _source_of(context, point.partial) == DEVICE:
            context.start_page_copy = PageCopy(
                source=_location_of(point.partial),
                target=context.pages[point.num_pages],
                num_tokens=point.partial_tokens,
            )
        if context.state_slot is not None:
            if point.image is None:
                context.start_state_copy = StateCopy(source=None, target=context.state_slot)
            elif _source_of(context, point.image) == DEVICE:
                source = _location_of(point.image)
                context.start_state_copy = StateCopy(source=source, target=context.state_slot)
        context.status = ContextStatus.READY

    def release_sources(self, context: LaneContext) -> None:
        """Give back leases on what was read to start."""
        leases, context.leases = context.leases, []
        for stored, tier in leases:
            self._store.release(stored, tier)

    def unwind(self, context: LaneContext) -> None:
        """Give back everything a context holds that has not started; running transfers first let go of it."""
        self._transfers.cancel(context.batches)
        context.status = ContextStatus.ENDED
        if not any(not batch.is_reported for batch in context.batches):
            self._give_back(context)

    def _give_back(self, context: LaneContext) -> None:
        _keep_overtaken(context)
        path, context.path = context.path, []
        for node in reversed(path):
            replica = node.replicas[DEVICE]
            self._store.release(node, DEVICE)
            if replica is not None and not replica.is_valid and not node.is_gone:
                self._store.drop_replica(node, DEVICE)
        self.release_sources(context)
        owned, context.owned = context.owned, set()
        self._store.give_pages(owned)
        if context.state_slot is not None:
            self._store.give_slot(context.state_slot)
            context.state_slot = None


def _keep_overtaken(context: LaneContext) -> None:
    """Own the pages of restores that somebody else finished first with a page of their own."""
    for node, page in zip(context.path, context.pages, strict=False):
        if _location_of(node) != page:
            context.owned.add(page)


def _source_of(context: LaneContext, stored: StoredObject) -> int:
    """Return the tier an object is read from to start: the one it is leased on."""
    return next(tier for leased, tier in context.leases if leased is stored)


def _location_of(stored: StoredObject) -> int:
    replica = stored.replicas[DEVICE]
    if replica is None:
        msg = "a leased device replica is gone"
        raise InvariantBroken(msg)
    return replica.location
