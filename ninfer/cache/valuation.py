"""What each replica is worth and in which order replicas are given up. Changes no replica."""

from collections.abc import Callable
from dataclasses import replace

from ninfer.api import ImageFacts, ImageKind
from ninfer.cache.node import (
    DEVICE,
    PageNode,
    Replica,
    StateImage,
    StoredObject,
    is_protected,
    page_of,
)
from ninfer.cache.retention import outranking
from ninfer.cache.victims import VictimHeap
from ninfer.core.step import DeviceLayout


def is_evictable(stored: StoredObject, tier: int) -> bool:
    """Tell whether a replica may be given up now: whole, not leased or leaving, and nothing after it on its tier."""
    replica = stored.replicas[tier]
    if replica is None or replica.leases or replica.is_leaving or not replica.is_valid:
        return False
    return not isinstance(stored, PageNode) or stored.child_replicas[tier] == 0


class Valuation:
    """Victim orders of all tiers, filled with the policy's values.

    A replica is valued when it becomes evictable and when it is used, so the order costs a logarithm per change
    and nothing per decision.

    Args:
        layout: sizes of the device.
        num_tiers: tiers including the device.
        keep_value: the policy's value of a replica.
    """

    def __init__(
        self, layout: DeviceLayout, num_tiers: int, keep_value: Callable[[ImageFacts], float]
    ) -> None:
        """Start with empty orders."""
        self._keep_value = keep_value
        self._page_bytes = layout.page_image_bytes
        self._state_bytes = layout.state_image_bytes
        self._has_state = layout.state_image_bytes > 0
        self._device_pages = VictimHeap(lambda stored: is_evictable(stored, DEVICE))
        self._device_slots = VictimHeap(lambda stored: is_evictable(stored, DEVICE))
        self._lower = [self._lower_order(tier) for tier in range(1, num_tiers)]

    @staticmethod
    def _lower_order(tier: int) -> VictimHeap:
        return VictimHeap(lambda stored: is_evictable(stored, tier))

    def order_of(self, kind: ImageKind, tier: int) -> VictimHeap:
        """Return the victim order that objects of a kind stand in on a tier."""
        if tier != DEVICE:
            return self._lower[tier - 1]
        return self._device_pages if kind is ImageKind.PAGE else self._device_slots

    def offer(self, stored: StoredObject, tier: int) -> None:
        """Put a replica into the victim order with its present value, if it may be given up."""
        replica = stored.replicas[tier]
        if replica is not None and is_evictable(stored, tier):
            self._push(stored, tier, replica)

    def offer_all(self, stored: StoredObject) -> None:
        """Do what `offer` does for the replicas on all tiers; nearly always none of them may be given up."""
        covered = stored.child_replicas if isinstance(stored, PageNode) else None
        for tier, replica in enumerate(stored.replicas):
            if replica is None or replica.leases or replica.is_leaving or not replica.is_valid:
                continue
            if covered is None or not covered[tier]:
                self._push(stored, tier, replica)

    def _push(self, stored: StoredObject, tier: int, replica: Replica) -> None:
        value = self.value_of(stored, tier)
        self.order_of(stored.kind, tier).push(stored, replica, value)

    def value_of(self, stored: StoredObject, tier: int) -> float:
        """Return the policy's value of a replica, above all others if it is protected."""
        return self.value_by(stored, self.facts_of(stored, tier))

    def value_by(self, stored: StoredObject, facts: ImageFacts) -> float:
        """Return what `value_of` does, by facts that are known."""
        value = self._keep_value(facts)
        return outranking(value) if is_protected(stored, facts.tier_index) else value

    def facts_of(self, stored: StoredObject, tier: int) -> ImageFacts:
        """Describe a replica, present or planned, to the policy."""
        if isinstance(stored, StateImage):
            node, num_bytes = stored.node, self._state_bytes
            lost_tokens = _tokens_since_image(node)
            is_rung = stored.is_rung and stored.num_uses == 1
            is_reachable = not stored.is_superseded
        else:
            node, num_bytes = page_of(stored), self._page_bytes
            # A state is worth nothing without the page at whose end it is, however few tokens that has.
            lost_tokens = node.num_tokens if node.image is None else _tokens_since_image(node)
            is_rung = False
            is_reachable = self._is_page_reachable(node)
        replica = stored.replicas[tier]
        if replica is not None and replica.num_bytes:
            num_bytes = replica.num_bytes
        return ImageFacts(
            kind=stored.kind,
            tier_index=tier,
            num_bytes=num_bytes,
            position_tokens=node.end_tokens,
            lost_tokens=lost_tokens,
            num_uses=stored.num_uses,
            created_s=stored.created_s,
            last_use_s=stored.last_use_s,
            last_use_index=stored.last_use_index,
            has_lower_replica=stored.has_valid_below(tier),
            is_reachable=is_reachable,
            has_device_replica=tier != DEVICE and stored.valid_on(DEVICE) is not None,
            is_rung=is_rung,
        )

    def value_if_last(self, stored: StoredObject, tier: int) -> float:
        """Return the policy's value of a replica if it were the only one left."""
        facts = self.facts_of(stored, tier)
        value = self._keep_value(replace(facts, has_lower_replica=False, has_device_replica=False))
        return outranking(value) if is_protected(stored, tier) else value

    def value_if_idle(
        self, stored: StoredObject, tier: int, *, idle_s: float, last_use_index: int
    ) -> float:
        """Return the policy's value of an object's only replica if it had been idle for longer.

        Args:
            stored: the object.
            tier: where the replica would be.
            idle_s: so much longer.
            last_use_index: of its last use, if that is earlier.
        """
        facts = self.facts_of(stored, tier)
        earlier = replace(
            facts,
            has_lower_replica=False,
            has_device_replica=False,
            created_s=facts.created_s - idle_s,
            last_use_s=facts.last_use_s - idle_s,
            last_use_index=min(facts.last_use_index, last_use_index),
        )
        return self._keep_value(earlier)

    def value_of_new_image(
        self,
        position_tokens: int,
        lost_tokens: int,
        *,
        is_rung: bool,
        now_s: float,
        use_index: int,
    ) -> float:
        """Return the policy's value of a state image that does not exist yet."""
        return self._keep_value(
            ImageFacts(
                kind=ImageKind.STATE,
                tier_index=DEVICE,
                num_bytes=self._state_bytes,
                position_tokens=position_tokens,
                lost_tokens=lost_tokens,
                num_uses=1,
                created_s=now_s,
                last_use_s=now_s,
                last_use_index=use_index,
                has_lower_replica=False,
                is_reachable=True,
                is_rung=is_rung,
            )
        )

    def is_reachable(self, stored: StoredObject) -> bool:
        """Tell whether a resume point needs an object; what none needs is worth nothing."""
        if isinstance(stored, StateImage):
            return not stored.is_superseded
        return self._is_page_reachable(page_of(stored))

    def _is_page_reachable(self, node: PageNode) -> bool:
        if node.image is not None and node.is_tail:
            return not node.image.is_superseded
        return node.live_images > 0 or not self._has_state


def _tokens_since_image(node: PageNode) -> int:
    at = node.parent
    while at is not None and at.image is None:
        at = at.parent
    return node.end_tokens - (at.end_tokens if at is not None else 0)
