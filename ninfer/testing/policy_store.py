"""A small store of plain dicts that a policy drives: who is on which tier. Shares no code with the real one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ninfer.api import ImageFacts, ImageKind, PlacementPolicy
from ninfer.testing.clock import FakeClock
from ninfer.testing.policy_facts import PAGE_BYTES


@dataclass(slots=True, kw_only=True)
class _Object:
    position_tokens: int
    created_s: float
    last_use_s: float = 0.0
    last_use_index: int = 0
    num_uses: int = 0


class SimulatedStore:
    """Pages of one size on tiers of some pages each. Every page is taken for reachable and for independent.

    A page is valued when it is stored or used and when its other replicas come or go, as the contract says; the
    least valuable goes first. A victim without another replica is moved to the next tier that has room or holds
    something worth less. Pages that became idle are copied down where the policy wants it and room is free.

    Args:
        policy: decides.
        clock: moved by whoever drives the store.
        capacities: pages per tier, fastest first.

    Attributes:
        num_moves: copies made and pages computed so far.
    """

    def __init__(
        self, policy: PlacementPolicy, clock: FakeClock, capacities: Sequence[int]
    ) -> None:
        """Start empty."""
        self._policy = policy
        self._clock = clock
        self._capacities = capacities
        self._objects: dict[str, _Object] = {}
        self._values: list[dict[str, float]] = [{} for _ in capacities]
        self._num_uses = 0
        self.num_moves = 0

    def names_on(self, tier: int) -> set[str]:
        """Return which pages have a replica on a tier."""
        return set(self._values[tier])

    def use(self, name: str, position_tokens: int) -> None:
        """Have a request use a page: bring it to the device, or compute it.

        Args:
            name: which page.
            position_tokens: where it ends.
        """
        now_s = self._clock.monotonic_s()
        self._num_uses += 1
        if not self._tiers_of(name):
            self._objects[name] = _Object(position_tokens=position_tokens, created_s=now_s)
        known = self._objects[name]
        known.num_uses += 1
        known.last_use_s, known.last_use_index = now_s, self._num_uses
        if name not in self._values[0]:
            while len(self._values[0]) >= self._capacities[0]:
                self._evict_from_device()
            self._put(name, 0)
        self._value(name)
        self._copy_down(name)

    def _evict_from_device(self) -> None:
        name = self._cheapest(0)
        value = self._values[0][name]
        self._policy.evicted(value)
        if not self._tiers_of(name)[1:]:
            self._move_down(name, value, range(1, len(self._capacities)))
        self._drop(name, 0)

    def _move_down(self, name: str, value: float, tiers: Iterable[int]) -> None:
        for tier in tiers:
            if len(self._values[tier]) >= self._capacities[tier]:
                cheapest = self._cheapest(tier)
                if self._values[tier][cheapest] >= value:
                    continue
                self._policy.evicted(self._values[tier][cheapest])
                self._drop(cheapest, tier)
            self._put(name, tier)
            return

    def _copy_down(self, name: str) -> None:
        for tier in range(1, len(self._capacities)):
            has_room = len(self._values[tier]) < self._capacities[tier]
            if name in self._values[tier] or not has_room:
                continue
            if self._policy.wants_copy(self._facts(name, self._tiers_of(name)[0]), tier):
                self._put(name, tier)

    def _cheapest(self, tier: int) -> str:
        values = self._values[tier]
        return min(values, key=lambda name: (values[name], name))

    def _put(self, name: str, tier: int) -> None:
        self._values[tier][name] = 0.0
        self.num_moves += 1
        self._value(name)

    def _drop(self, name: str, tier: int) -> None:
        del self._values[tier][name]
        self._value(name)

    def _value(self, name: str) -> None:
        for tier in self._tiers_of(name):
            self._values[tier][name] = self._policy.keep_value(self._facts(name, tier))

    def _tiers_of(self, name: str) -> list[int]:
        return [tier for tier, values in enumerate(self._values) if name in values]

    def _facts(self, name: str, tier: int) -> ImageFacts:
        known = self._objects[name]
        tiers = self._tiers_of(name)
        return ImageFacts(
            kind=ImageKind.PAGE,
            tier_index=tier,
            num_bytes=PAGE_BYTES,
            position_tokens=known.position_tokens,
            lost_tokens=64,
            num_uses=known.num_uses,
            created_s=known.created_s,
            last_use_s=known.last_use_s,
            last_use_index=known.last_use_index,
            has_lower_replica=any(other > tier for other in tiers),
            is_reachable=True,
            has_device_replica=tier > 0 and 0 in tiers,
        )
