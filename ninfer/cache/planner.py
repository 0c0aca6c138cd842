"""Chooses where a request starts and what makes room for it. Plans only: changes no replica.

Cost: the direct path walks the prompt's pages once. Under pressure a handful of candidates each take as many victims
as pages are missing, a logarithm of the number of stored objects per victim.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ninfer.api import (
    CheckpointMatcher,
    Degraded,
    ImageKind,
    Match,
    OutcomeFacts,
    PlacementPolicy,
    PromptFacts,
    TransferCost,
)
from ninfer.cache.eviction import EvictionPlan, Evictor, Victim
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.resume import ROOT, Prefix, ResumePoint
from ninfer.cache.store import ContextStore

MAX_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a request takes of the device until it ends.

    Attributes:
        num_prompt_tokens: prompt length.
        num_pages: pages for prompt, completion and speculative slack.
        num_slots: state slots (0 or 1).
        session_key: the client's hint.
    """

    num_prompt_tokens: int
    num_pages: int
    num_slots: int
    session_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One complete way to start a request.

    Attributes:
        point: where it resumes.
        num_shared_pages: leading pages used in place on the device.
        restores: pages behind them, in order: to bring to the device, or to use in place behind one that has to come.
        num_new_pages: pages to take: restored ones, then the lane's own.
        eviction: what makes room.
        waits: some of its pages are just being restored for somebody else.
        revision: of the store when it was planned.
    """

    point: ResumePoint
    num_shared_pages: int
    restores: Sequence[PageNode]
    num_new_pages: int
    eviction: EvictionPlan = field(default_factory=EvictionPlan)
    waits: bool = False
    revision: int = 0


class Planner:
    """Makes outcomes and picks the cheapest.

    Args:
        store: the context store; read only.
        evictor: plans victims.
        matcher: picks candidates among proven resume points.
        policy: prices outcomes.
    """

    def __init__(
        self,
        store: ContextStore,
        evictor: Evictor,
        matcher: CheckpointMatcher,
        policy: PlacementPolicy,
    ) -> None:
        """Keep the parts."""
        self._store = store
        self._evictor = evictor
        self._matcher = matcher
        self._policy = policy
        self._page_bytes = store.layout.page_image_bytes

    def plan(self, need: Need, prefix: Prefix) -> Outcome | None:
        """Return the cheapest feasible outcome, None if there is none now or waiting for it is cheaper."""
        deepest = self._deepest(need, prefix)
        direct = self._layout(need, prefix, deepest)
        if deepest.slowest_tier == DEVICE and self._fits_free(need, direct):
            return direct
        best = self._cheapest(need, prefix, self._candidates(need, prefix, deepest))
        return None if best is None or best.waits else best

    def _cheapest(
        self, need: Need, prefix: Prefix, candidates: Sequence[ResumePoint]
    ) -> Outcome | None:
        """Return the cheapest feasible outcome, the deepest of equal ones.

        What makes room never makes an outcome cheaper (POLICY-07, POLICY-09), so a candidate that is dearer without
        it than the best so far is not looked at any further.
        """
        # Deepest first: what makes room for it spares all pages that shallower candidates read too.
        rooms: dict[int, EvictionPlan] = {}
        best: Outcome | None = None
        best_s: float | None = None
        for point in candidates:
            layout = self._layout(need, prefix, point)
            if best is not None:
                best_s = self._price_s(need, best) if best_s is None else best_s
                if self._price_s(need, layout) >= best_s:
                    continue
            outcome = self._with_room(need, prefix, layout, rooms)
            if outcome is None:
                continue
            price_s = None if best is None else self._price_s(need, outcome)
            if best_s is None or price_s is None or price_s < best_s:
                best, best_s = outcome, price_s
        return best

    def _price_s(self, need: Need, outcome: Outcome) -> float:
        return self._policy.price_s(self._facts(need, outcome, outcome.eviction))

    def _deepest(self, need: Need, prefix: Prefix) -> ResumePoint:
        """Return the deepest resume point that the request could start from on an otherwise empty device."""
        deepest = prefix.deepest()
        if self._can_fit(need, deepest):
            return deepest
        fitting = [point for point in prefix.resume_points() if self._can_fit(need, point)]
        return fitting[-1] if fitting else ROOT

    def _can_fit(self, need: Need, point: ResumePoint) -> bool:
        """Tell whether what is copied to start leaves room: it stays on the device until the copy is made."""
        num_pages, num_slots = need.num_pages, need.num_slots
        if point.partial is not None and point.partial.fastest_tier(self._store.stalled) == DEVICE:
            num_pages += 1
        if point.image is not None and point.image.fastest_tier(self._store.stalled) == DEVICE:
            num_slots += 1
        layout = self._store.layout
        return num_pages <= layout.num_pages and num_slots <= layout.num_state_slots

    def _fits_free(self, need: Need, outcome: Outcome) -> bool:
        return outcome.num_new_pages <= self._store.pages.num_free and need.num_slots <= len(
            self._store.free_slots
        )

    def _candidates(self, need: Need, prefix: Prefix, deepest: ResumePoint) -> list[ResumePoint]:
        """Return distinct candidates, deepest first: what the matcher picks, the ends of tiers, and root."""
        if deepest.slowest_tier == DEVICE:
            return [deepest]
        points = [point for point in prefix.resume_points() if self._can_fit(need, point)]
        facts = PromptFacts(num_tokens=need.num_prompt_tokens, session_key=need.session_key)
        picked = self._matcher.candidates(facts, _View(prefix))
        wanted = {match.position_tokens for match in picked}
        deepest_per_tier: dict[int, ResumePoint] = {}
        for point in points:
            deepest_per_tier[point.slowest_tier] = point
        chosen = {point.position_tokens: point for point in deepest_per_tier.values()}
        chosen |= {p.position_tokens: p for p in points if p.position_tokens in wanted}
        ordered = sorted(chosen.values(), key=lambda p: p.position_tokens, reverse=True)
        return [*ordered[: MAX_CANDIDATES - 1], ROOT]

    def _layout(self, need: Need, prefix: Prefix, point: ResumePoint) -> Outcome:
        shared = min(point.num_pages, prefix.num_device_pages)
        restores = prefix.path[shared : point.num_pages]
        there = [replica for node in restores if (replica := node.replicas[DEVICE]) is not None]
        return Outcome(
            point=point,
            num_shared_pages=shared,
            restores=restores,
            num_new_pages=need.num_pages - shared - len(there),
            waits=not all(replica.is_valid for replica in there),
            revision=self._store.revision,
        )

    def _with_room(
        self, need: Need, prefix: Prefix, layout: Outcome, rooms: dict[int, EvictionPlan]
    ) -> Outcome | None:
        """Return a layout with what makes room for it, None if nothing does."""
        shared = rooms.get(layout.num_new_pages)
        is_planned = shared is not None and shared.is_enough
        if shared is not None and is_planned and not _gives_up(shared, layout.point):
            return replace(layout, eviction=shared)
        leased = self._lease(prefix, layout.point)
        eviction = self._room_for(need, layout.num_new_pages)
        self._release(leased)
        if not is_planned:
            rooms[layout.num_new_pages] = eviction
        return replace(layout, eviction=eviction) if eviction.is_enough else None

    def _room_for(self, need: Need, num_new_pages: int) -> EvictionPlan:
        """Plan what makes room; for models with state one unit more, so that captures find theirs."""
        missing_pages = num_new_pages - self._store.pages.num_free
        missing_slots = need.num_slots - len(self._store.free_slots)
        if missing_pages > self._store.num_evictable_pages:
            return EvictionPlan()
        return self._evictor.plan_device(
            num_pages=missing_pages, num_slots=missing_slots, num_spare=int(self._store.has_state)
        )

    def _lease(self, prefix: Prefix, point: ResumePoint) -> list[tuple[StoredObject, int]]:
        """Keep what the candidate reads out of the victims while they are chosen."""
        read: list[StoredObject] = [*prefix.path[: point.num_pages]]
        read += [extra for extra in (point.partial, point.image) if extra is not None]
        leased = []
        for stored in read:
            tier = stored.fastest_tier(self._store.stalled)
            replica = stored.replicas[tier] if tier is not None else None
            if tier is not None and replica is not None:
                replica.leases += 1
                leased.append((stored, tier))
        return leased

    def _release(self, leased: list[tuple[StoredObject, int]]) -> None:
        for stored, tier in leased:
            replica = stored.replicas[tier]
            if replica is not None:
                replica.leases -= 1
            self._store.values.offer(stored, tier)

    def _facts(self, need: Need, layout: Outcome, eviction: EvictionPlan) -> OutcomeFacts:
        point, stalled = layout.point, self._store.stalled
        read: list[StoredObject] = [*layout.restores]
        read += [extra for extra in (point.partial, point.image) if extra is not None]
        moved = Counter(
            (stored.fastest_tier(stalled) or DEVICE, DEVICE, stored.kind is ImageKind.PAGE)
            for stored in read
        )
        moved.update(
            (victim.tier, victim.target, victim.stored.kind is ImageKind.PAGE)
            for victim in eviction.victims
            if victim.target is not None
        )
        return OutcomeFacts(
            resume_tokens=point.position_tokens,
            prefill_tokens=need.num_prompt_tokens - point.position_tokens,
            transfers=self._costs(moved),
            copy_bytes=self._page_bytes if point.partial_tokens else 0,
            degraded=self._degraded_by(eviction),
        )

    def _costs(self, moved: Mapping[tuple[int, int, bool], int]) -> list[TransferCost]:
        """Return what goes each way, given how many pages and states do: (source, target, whether it is a page)."""
        layout = self._store.layout
        costs: dict[tuple[int, int], TransferCost] = {}
        for (source, target, is_page), num_images in sorted(moved.items()):
            num_bytes = layout.page_image_bytes if is_page else layout.state_image_bytes
            before = costs.get((source, target))
            if source != target:
                costs[source, target] = TransferCost(
                    source_index=source,
                    target_index=target,
                    num_bytes=num_bytes * num_images + (before.num_bytes if before else 0),
                    num_images=num_images + (before.num_images if before else 0),
                )
        return list(costs.values())

    def _degraded_by(self, eviction: EvictionPlan) -> list[Degraded]:
        if eviction.degraded is None:
            eviction.degraded = [
                self._degraded(victim) for victim in (*eviction.victims, *eviction.displaced)
            ]
        return eviction.degraded

    def _degraded(self, victim: Victim) -> Degraded:
        stored, gone, left = victim.stored, victim.tier, victim.target
        for tier, replica in enumerate(stored.replicas):
            if tier != gone and replica is not None and replica.is_valid:
                left = tier if left is None else min(left, tier)
                break
        facts = victim.facts or self._store.values.facts_of(stored, gone)
        return Degraded(facts=facts, target_index=left)


def _gives_up(eviction: EvictionPlan, point: ResumePoint) -> bool:
    """Tell whether a plan gives up what only this candidate reads: its image, or the page it begins in."""
    own = {id(extra) for extra in (point.partial, point.image) if extra is not None}
    victims = (*eviction.victims, *eviction.displaced) if own else ()
    return any(id(victim.stored) in own for victim in victims)


class _View:
    """A prefix as matchers see it."""

    def __init__(self, prefix: Prefix) -> None:
        self._prefix = prefix

    def resume_points(self) -> Sequence[Match]:
        return self._prefix.matches()
