"""Plans which replicas make room, step by step and no more than needed. Plans only; `apply` is a few drops.

A victim is given up in the mildest way that works: its replica is redundant and goes; else it is moved one tier
down; else, with no tier left, the last replica goes. Making room below follows the same rule for less valuable
objects there. An object below that first has to be copied further down makes the plan *dirty*: the copy is started
and the plan is made again when it is done.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ninfer.api import Degraded, ImageFacts, ImageKind
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.past_uses import PastUses
from ninfer.cache.retention import ordinary, outranking
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_writes import IDLE_S, Admission, TierWrites
from ninfer.cache.victim_search import Found, VictimSearch

MAX_REFUSED: Final = 64
"""Replicas in a row that may turn out to be needed before the search for room on a tier is given up."""


class Victim(NamedTuple):
    """One replica to give up. A tuple, for a plan has one for every page it frees.

    Attributes:
        stored: whose.
        tier: where it is.
        value: the policy's value when it was chosen.
        target: tier it moves to first, None to drop it.
        facts: what the policy valued, if it was valued for this plan.
    """

    stored: StoredObject
    tier: int
    value: float
    target: int | None
    facts: ImageFacts | None = None


@dataclass(slots=True, kw_only=True)
class EvictionPlan:
    """Victims in the order they are given up.

    Attributes:
        victims: replicas that make the room asked for.
        displaced: drops on lower tiers that make room for those that move.
        dirty: (object, tier, target) copies to make first; if any, the rest must not be applied.
        unwritten: (object, tier, why) of what a slower tier would have had room for, but is not written there.
        is_enough: the room asked for is reached.
        degraded: what it costs, as a policy sees it; described once, when several outcomes share the plan.
    """

    victims: list[Victim] = field(default_factory=list)
    displaced: list[Victim] = field(default_factory=list)
    dirty: list[tuple[StoredObject, int, int]] = field(default_factory=list)
    unwritten: list[tuple[StoredObject, int, Admission]] = field(default_factory=list)
    is_enough: bool = False
    degraded: list[Degraded] | None = None


class Evictor:
    """Plans and applies evictions.

    Args:
        store: the context store.
        is_usable: tells whether a lower tier takes copies now.
        evicted: told the value of each victim.

    Attributes:
        writes: what each lower tier lets in, fastest first.
    """

    def __init__(
        self,
        store: ContextStore,
        is_usable: Callable[[int], bool],
        evicted: Callable[[float], None],
    ) -> None:
        """Keep the store."""
        self._store = store
        self._is_usable = is_usable
        self._evicted = evicted
        self._past_uses = PastUses(IDLE_S)
        layout = store.layout
        largest = max(layout.page_image_bytes, layout.state_image_bytes)
        self.writes = [
            TierWrites(space.rules, store.clock, largest_bytes=2 * largest)
            for space in store.spaces
        ]

    def plan_device(
        self, *, num_pages: int, num_slots: int = 0, num_spare: int = 0
    ) -> EvictionPlan:
        """Plan to free device pages and state slots beyond those free now.

        Args:
            num_pages: so many.
            num_slots: so many.
            num_spare: so many more of each if there are; enough without them.
        """
        plan = EvictionPlan()
        rooms = _Rooms(self, self._store, plan)
        searches = [
            (self._search_device(kind), num_wanted)
            for kind, num_wanted in ((ImageKind.PAGE, num_pages), (ImageKind.STATE, num_slots))
        ]
        is_enough = [
            self._take_device(plan, rooms, search, num_wanted) for search, num_wanted in searches
        ]
        plan.is_enough = all(is_enough)
        if plan.is_enough and num_spare:
            for search, num_wanted in searches:
                num_free = max(0, -num_wanted)
                self._take_device(plan, rooms, search, num_spare - num_free)
        for search, _ in searches:
            search.end()
        rooms.end()
        return plan

    def _search_device(self, kind: ImageKind) -> VictimSearch:
        return VictimSearch(self._store, self._store.values.order_of(kind, DEVICE), DEVICE)

    def _take_device(
        self, plan: EvictionPlan, rooms: "_Rooms", search: VictimSearch, num_wanted: int
    ) -> bool:
        while num_wanted > 0 and (found := search.take()) is not None:
            search.give_up(found.stored)
            plan.victims.append(self._fate(found, DEVICE, rooms))
            num_wanted -= 1
        return num_wanted <= 0

    def plan_room(
        self, tier: int, num_bytes: int, *, below_value: float, leaving: int = DEVICE
    ) -> EvictionPlan:
        """Plan to make room on a lower tier.

        Args:
            tier: where.
            num_bytes: how much.
            below_value: only what is worth less is given up.
            leaving: a lower tier whose replicas do not count: room is made to give them up.
        """
        plan = EvictionPlan()
        rooms = _Rooms(self, self._store, plan, leaving=leaving)
        plan.is_enough = rooms.make(tier, num_bytes, below_value)
        rooms.end()
        return plan

    def _fate(self, found: Found, tier: int, rooms: "_Rooms") -> Victim:
        stored, target = found.stored, None
        rooms.plan_gone(stored, tier)
        is_last = not rooms.remains(stored) and self._store.values.is_reachable(stored)
        if is_last and not rooms.take_back(stored):
            target = self.target_below(stored, tier, rooms)
        victim = Victim(
            stored=stored, tier=tier, value=found.value, target=target, facts=found.facts
        )
        rooms.plan_move(victim)
        return victim

    def target_below(self, stored: StoredObject, tier: int, rooms: "_Rooms") -> int | None:
        """Return the next tier down that has or makes room for an object, None if none does."""
        for target in range(tier + 1, self._store.num_tiers):
            if stored.replicas[target] is not None or not self._is_usable(target):
                continue
            num_bytes = self._store.bytes_on(stored, target)
            admission = rooms.admission(stored, target, num_bytes)
            bid = self.bid(stored, target, admission)
            if not admission.is_refusal and rooms.make(target, num_bytes, bid):
                rooms.plan_write(stored, target, num_bytes)
                return target
            if admission is not Admission.ORDINARY:
                rooms.plan_unwritten(stored, target, admission)
        return None

    def bid(self, stored: StoredObject, target: int, admission: Admission) -> float:
        """Return the value up to which an object displaces others on a slower tier: its own value there, at most.

        So it is not the next victim there, and two objects cannot displace each other in turns.
        """
        if admission is Admission.IF_FREE:
            return -math.inf
        if admission is Admission.ORDINARY:
            return self.value_there(stored, target)
        now_s = self._store.clock.monotonic_s()
        self._past_uses.note(now_s, self._store.use_index)
        last_use_index = self._past_uses.index_at(now_s - IDLE_S)
        return self._store.values.value_if_idle(
            stored, target, idle_s=IDLE_S, last_use_index=last_use_index
        )

    def count_unwritten(self, stored: StoredObject, tier: int, admission: Admission) -> None:
        """Count an object that is not written to a tier because of what the tier lets in."""
        self.writes[tier - 1].count_refused(admission, self._store.bytes_on(stored, tier))

    def value_there(self, stored: StoredObject, target: int) -> float:
        """Return what an object would be worth on a slower tier as its only replica, protected there or not."""
        plain = ordinary(self._store.values.value_if_last(stored, target))
        now_s = self._store.clock.monotonic_s() if stored.retain_s else 0.0
        if stored.retain_s and self._store.retentions.would_be_protected(stored, target, now_s):
            return outranking(plain)
        return plain

    def apply_drops(self, plan: EvictionPlan) -> None:
        """Carry out what needs no copy: displaced objects and victims that are dropped.

        Displaced objects that should have been copied further down first are dropped too: a plan with such ones is
        only carried out when the copies could not be started.
        """
        for stored, tier, admission in plan.unwritten:
            self.count_unwritten(stored, tier, admission)
        for victim in (*plan.displaced, *plan.victims):
            self._evicted(ordinary(victim.value))
        self._drop([*plan.displaced, *(each for each in plan.victims if each.target is None)])

    def _drop(self, victims: Sequence[Victim]) -> None:
        """Drop replicas; what one of them covered is not valued as the next victim if it is one of them too."""
        leaving = []
        for victim in victims:
            replica = victim.stored.replicas[victim.tier]
            if replica is not None and not replica.leases:
                replica.is_leaving = True
                leaving.append(victim)
        with self._store.pages.together():
            for victim in leaving:
                if not victim.stored.is_gone:
                    self._store.drop_replica(victim.stored, victim.tier)


class _Rooms:
    """Room on lower tiers, and which replicas are left, as a plan changes them."""

    def __init__(
        self, evictor: Evictor, store: ContextStore, plan: EvictionPlan, *, leaving: int = DEVICE
    ) -> None:
        self._leaving = leaving
        self._evictor = evictor
        self._store = store
        self._plan = plan
        self._free = [ledger.free_bytes for ledger in store.ledgers]
        self._searches: dict[int, VictimSearch] = {}
        self._next: dict[int, Found | None] = {}
        self._gone: set[tuple[int, int]] = set()
        self._moved: set[int] = set()
        self._write_bytes = [0] * len(store.ledgers)
        self._displaced: dict[tuple[int, int], Victim] = {}
        self._moves: dict[int, deque[tuple[int, Victim, float]]] = {}

    def plan_gone(self, stored: StoredObject, tier: int) -> None:
        """Remember that the plan gives a replica up."""
        self._gone.add((id(stored), tier))

    def plan_write(self, stored: StoredObject, tier: int, num_bytes: int) -> None:
        """Remember that the plan moves an object to a slower tier."""
        self._moved.add(id(stored))
        self._write_bytes[tier - 1] += num_bytes

    def plan_unwritten(self, stored: StoredObject, tier: int, admission: Admission) -> None:
        """Remember what the plan does not move to a slower tier because of what that lets in."""
        self._plan.unwritten.append((stored, tier, admission))

    def admission(self, stored: StoredObject, tier: int, num_bytes: int) -> Admission:
        """Tell what a tier lets an object do, after all that the plan writes there."""
        planned_bytes = self._write_bytes[tier - 1]
        return self._evictor.writes[tier - 1].admission(stored, planned_bytes + num_bytes)

    def plan_move(self, victim: Victim) -> None:
        """Remember the victim that the plan takes next, so that a more valuable one can have its room below."""
        if victim.target is not None:
            moves = self._moves.setdefault(victim.target, deque())
            writes = self._evictor.writes[victim.target - 1]
            admission = writes.admission(victim.stored, 0)
            there = self._evictor.bid(victim.stored, victim.target, admission)
            moves.append((len(self._plan.victims), victim, there))

    def remains(self, stored: StoredObject) -> bool:
        """Tell whether a valid replica is left that the plan does not give up."""
        for tier, replica in enumerate(stored.replicas):
            is_there = replica is not None and replica.is_valid and tier != (self._leaving or -1)
            if is_there and (id(stored), tier) not in self._gone:
                return True
        return False

    def make(self, tier: int, num_bytes: int, below_value: float) -> bool:
        """Take room on a tier, displacing what is worth less; False if that is not enough."""
        if num_bytes > self._store.ledgers[tier - 1].capacity_bytes:
            return False
        while self._free[tier - 1] < num_bytes:
            if not self._unmove_one(tier, below_value) and not self._displace_one(
                tier, below_value
            ):
                return False
        self._free[tier - 1] -= num_bytes
        return True

    def _unmove_one(self, tier: int, below_value: float) -> bool:
        """Drop a victim instead of moving it to a tier whose room a more valuable one needs."""
        moves = self._moves.get(tier)
        stored_there = self._cheapest(tier)
        while moves and moves[0][2] < below_value:
            if stored_there is not None and stored_there.value < moves[0][2]:
                return False
            at, victim, _ = moves.popleft()
            if self._has_followers(victim.stored):
                continue
            self._moved.discard(id(victim.stored))
            num_bytes = self._store.bytes_on(victim.stored, tier)
            self._free[tier - 1] += num_bytes
            self._write_bytes[tier - 1] -= num_bytes
            target = self._evictor.target_below(victim.stored, tier, self)
            self._plan.victims[at] = victim._replace(target=target)
            return True
        return False

    def _cheapest(self, tier: int) -> Found | None:
        if tier not in self._searches:
            order = self._store.values.order_of(ImageKind.PAGE, tier)
            self._searches[tier] = VictimSearch(self._store, order, tier)
            self._next[tier] = self._searches[tier].take()
        return self._next[tier]

    def take_back(self, stored: StoredObject) -> bool:
        """Keep a replica that was to go because a faster tier held it too: now that one goes.

        Returns:
            False if there is none, or if no room can be made for it again.
        """
        for tier, replica in enumerate(stored.replicas):
            victim = self._displaced.get((id(stored), tier))
            if victim is None or victim.target is not None or replica is None:
                continue
            if self.make(tier, replica.num_bytes, self._evictor.value_there(stored, tier)):
                del self._displaced[id(stored), tier]
                self._gone.discard((id(stored), tier))
                return True
        return False

    def _displace_one(self, tier: int, below_value: float) -> bool:
        for _ in range(MAX_REFUSED):
            found = self._cheapest(tier)
            if found is None or found.value >= below_value:
                return False
            is_displaced = self._displace(found.stored, tier, found.value, below_value)
            if is_displaced:
                self._searches[tier].give_up(found.stored)
            self._next[tier] = self._searches[tier].take()
            if is_displaced:
                return True
        return False

    def _displace(self, stored: StoredObject, tier: int, value: float, below_value: float) -> bool:
        """Plan to give up one replica; False if something that stays needs it, or if it is worth too much.

        What is cheap because the device holds it too is not, once the plan takes its place on the device.
        """
        if stored.strict_tier == tier:
            return False
        self.plan_gone(stored, tier)
        target = None
        if not self.remains(stored):
            value = self._store.values.value_if_last(stored, tier)
            if value < below_value:
                target = self._evictor.target_below(stored, tier, self)
            if target is None and (value >= below_value or self._has_followers(stored)):
                self._gone.discard((id(stored), tier))
                return False
        if target is not None:
            self._plan.dirty.append((stored, tier, target))
        replica = stored.replicas[tier]
        self._free[tier - 1] += replica.num_bytes if replica is not None else 0
        victim = Victim(stored=stored, tier=tier, value=value, target=target)
        self._displaced[id(stored), tier] = victim
        return True

    def _has_followers(self, stored: StoredObject) -> bool:
        """Tell whether something that the plan keeps somewhere needs this object."""
        return isinstance(stored, PageNode) and any(
            id(follower) in self._moved or self.remains(follower) for follower in stored.followers()
        )

    def end(self) -> None:
        """Put everything back; the plan has what is displaced."""
        self._plan.displaced = list(self._displaced.values())
        for search in self._searches.values():
            search.end()
