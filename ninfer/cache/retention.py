"""Which objects are protected until when, and how many bytes of each tier that may be. Moves and values nothing.

An object is *retained* while its deadline lies ahead. A replica of it is *protected* if the budget of its tier had room
when it became so: then it outranks what is not. A strictly retained object has room set aside on one tier below the
device, whether a replica is there yet or not. A page is retained at least as long as what continues it, because only
whole paths are retained; so what expires is found by walking up from the end of a path.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from ninfer.cache.node import DEVICE, PageNode, StoredObject, is_protected, page_of

_SCALE: Final = 1e100
_SMALL: Final = 1e-30
"""Values of policies are seconds, bytes or counts: between these two, above 0."""


_CLOCK_JITTER_S: Final = 1.0
"""Deadlines that were written down together come back as different as two readings of two clocks are."""


def outranking(value: float) -> float:
    """Return a value above that of everything unprotected; keeps the order among protected ones."""
    return (max(value, 0.0) + _SMALL) * _SCALE


def is_outranking(value: float) -> bool:
    """Tell whether a value was made by `outranking`."""
    return value >= _SMALL * _SCALE


def ordinary(value: float) -> float:
    """Return the value that `outranking` was given, or the value itself."""
    return value / _SCALE - _SMALL if is_outranking(value) else value


class Retentions:
    """Deadlines and budgets.

    Invariants (see `check`): `promised_bytes` = sum over all retained objects; for every tier, protected_bytes = sum of `protected_bytes` of its replicas + sum of
    `strict_bytes` of the objects that have room set aside there, and is at most its budget.

    Args:
        capacities: bytes of each tier, device first.
        bytes_on: what an object takes of a tier, the device included.
        share: part of each tier that may be protected, 0..1.
    """

    def __init__(
        self,
        capacities: Sequence[int],
        bytes_on: Callable[[StoredObject, int], int],
        *,
        share: float,
    ) -> None:
        """Start with nothing retained."""
        self.budgets = tuple(int(share * capacity) for capacity in capacities)
        self.protected_bytes = [0] * len(self.budgets)
        self.promised_bytes = 0
        self._home = self.budgets.index(max(self.budgets))
        self.num_granted = 0
        self.num_refused = 0
        self.num_expired = 0
        """Contexts, not objects."""
        self._bytes_on = bytes_on
        self._ends: list[tuple[float, int, PageNode]] = []
        self._numbers = count()

    # ---- asking -------------------------------------------------------------------------------------

    def would_be_protected(self, stored: StoredObject, tier: int, now_s: float) -> bool:
        """Tell whether a copy on a tier would outrank others there."""
        if stored.retain_until_s <= now_s:
            return False
        return is_protected(stored, tier) or self._fits(tier, self._bytes_on(stored, tier))

    def has_room(self, objects: Sequence[StoredObject], tier: int) -> bool:
        """Tell whether all objects could be protected on a tier together."""
        missing = sum(
            self._bytes_on(stored, tier) for stored in objects if not is_protected(stored, tier)
        )
        return self._fits(tier, missing)

    def _fits(self, tier: int, num_bytes: int) -> bool:
        return self.protected_bytes[tier] + num_bytes <= self.budgets[tier]

    # ---- granting -----------------------------------------------------------------------------------

    def retain(
        self, path: Sequence[StoredObject], end: PageNode, *, seconds: float, now_s: float
    ) -> bool:
        """Retain everything a context needs, softly.

        Args:
            path: its pages and images, shallow to deep.
            end: its last page.
            seconds: how long; a later deadline that is set already stays.
            now_s: monotonic seconds.

        Returns:
            False if that is more than can be promised. Then only what was retained before is retained for longer.
        """
        is_granted = self._can_promise(path)
        for stored in path:
            if is_granted:
                self._promise(stored)
            if not stored.promised_bytes:
                continue
            stored.retain_s = max(stored.retain_s, seconds)
            stored.retain_until_s = max(stored.retain_until_s, now_s + seconds)
            for tier in range(len(self.budgets)):
                self.settle(stored, tier)
            if isinstance(stored, PageNode):
                end = stored
        if end.promised_bytes:
            heappush(self._ends, (end.retain_until_s, next(self._numbers), end))
        self.num_granted += is_granted
        self.num_refused += not is_granted
        return is_granted

    def _can_promise(self, path: Sequence[StoredObject]) -> bool:
        missing = sum(self._bytes_on(s, self._home) for s in path if not s.promised_bytes)
        return self.promised_bytes + missing <= self.budgets[self._home]

    def _promise(self, stored: StoredObject) -> None:
        if not stored.promised_bytes:
            stored.promised_bytes = self._bytes_on(stored, self._home)
            self.promised_bytes += stored.promised_bytes

    def retain_strictly(
        self,
        path: Sequence[StoredObject],
        end: PageNode,
        *,
        seconds: float,
        now_s: float,
        tiers: Sequence[int],
    ) -> int | None:
        """Set room aside for all of a context on the first tier that has the budget.

        Args:
            path: its pages and images, shallow to deep.
            end: its last page.
            seconds: how long; a later deadline that is set already stays.
            now_s: monotonic seconds.
            tiers: lower tiers that work, in order of preference.

        Returns:
            The tier; None if none has the room: then nothing was changed.
        """
        bytes_there = {tier: [self._bytes_on(s, tier) for s in path] for tier in tiers}
        tier = next((t for t in tiers if self._can_set_aside(path, t, bytes_there[t])), None)
        if tier is None or not self.has_room(path, DEVICE) or not self._can_promise(path):
            self.num_refused += 1
            return None
        self.retain(path, end, seconds=seconds, now_s=now_s)
        for stored, num_bytes in zip(path, bytes_there[tier], strict=True):
            if stored.strict_tier == DEVICE:
                self.release(stored, tier)
                stored.strict_tier, stored.strict_bytes = tier, num_bytes
                self.protected_bytes[tier] += num_bytes
        return tier

    def _can_set_aside(self, path: Sequence[StoredObject], tier: int, sizes: Sequence[int]) -> bool:
        missing = 0
        for stored, num_bytes in zip(path, sizes, strict=True):
            if stored.strict_tier not in {DEVICE, tier}:
                return False
            if not is_protected(stored, tier):
                missing += num_bytes
        return self._fits(tier, missing)

    def adopt(self, stored: StoredObject) -> None:
        """Go on with the deadline that an object of an earlier process has; its head is retained as long."""
        if not stored.retain_s:
            return
        self._promise(stored)
        end = page_of(stored)
        at: PageNode | None = end if end is not stored else end.parent
        while at is not None and not at.is_root:
            if at.retain_until_s >= stored.retain_until_s - _CLOCK_JITTER_S:
                break
            self._promise(at)
            at.retain_s = max(at.retain_s, stored.retain_s)
            at.retain_until_s = stored.retain_until_s
            for tier in range(len(self.budgets)):
                self.settle(at, tier)
            at = at.parent
        heappush(self._ends, (stored.retain_until_s, next(self._numbers), end))

    def inherit(self, node: PageNode, tail: PageNode) -> None:
        """A longer page takes the place of a retained tail."""
        if tail.retain_s:
            self._promise(node)
            node.retain_s = max(node.retain_s, tail.retain_s)
            node.retain_until_s = max(node.retain_until_s, tail.retain_until_s)
            for tier in range(len(self.budgets)):
                self.settle(node, tier)
            heappush(self._ends, (node.retain_until_s, next(self._numbers), node))

    def refresh(self, stored: StoredObject, now_s: float) -> None:
        """An object was used: its deadline is as far away as at first."""
        if stored.retain_s and stored.retain_until_s > now_s:
            stored.retain_until_s = max(stored.retain_until_s, now_s + stored.retain_s)

    def settle(self, stored: StoredObject, tier: int) -> None:
        """A replica of a retained object appeared, or its deadline did: protect it if the budget has room."""
        replica = stored.replicas[tier]
        if replica is None or is_protected(stored, tier):
            return
        num_bytes = self._bytes_on(stored, tier)
        if self._fits(tier, num_bytes):
            replica.protected_bytes = num_bytes
            self.protected_bytes[tier] += num_bytes

    # ---- taking back --------------------------------------------------------------------------------

    def release(self, stored: StoredObject, tier: int) -> None:
        """A replica is no longer protected: it is about to go, or its deadline passed."""
        replica = stored.replicas[tier]
        if replica is not None and replica.protected_bytes:
            self.protected_bytes[tier] -= replica.protected_bytes
            replica.protected_bytes = 0

    def release_strict(self, stored: StoredObject) -> None:
        """Give back what is set aside for an object; it stays retained softly."""
        if stored.strict_tier != DEVICE:
            self.protected_bytes[stored.strict_tier] -= stored.strict_bytes
            stored.strict_tier, stored.strict_bytes = DEVICE, 0

    def forget(self, stored: StoredObject) -> None:
        """Give back what is set aside and promised for an object: it is gone, or its deadline passed."""
        self.release_strict(stored)
        self.promised_bytes -= stored.promised_bytes
        stored.promised_bytes = 0

    def expired(self, now_s: float) -> list[StoredObject]:
        """Return the objects whose deadline passed, ordinary again; the store values them anew.

        Cost: a logarithm of the number of contexts retained for each that ends, and its own part of the path.
        """
        ordinary_again: list[StoredObject] = []
        while self._ends and self._ends[0][0] <= now_s:
            _, _, end = heappop(self._ends)
            if end.retain_until_s > now_s:
                heappush(self._ends, (end.retain_until_s, next(self._numbers), end))
                continue
            self.num_expired += end.retain_s > 0
            at: PageNode | None = end
            while at is not None and at.retain_until_s <= now_s and at.retain_s > 0:
                for stored in (at, at.image):
                    if stored is not None and stored.retain_until_s <= now_s:
                        self._end(stored)
                        ordinary_again.append(stored)
                at = at.parent
        return ordinary_again

    def _end(self, stored: StoredObject) -> None:
        stored.retain_s, stored.retain_until_s = 0.0, 0.0
        self.forget(stored)
        for tier in range(len(self.budgets)):
            self.release(stored, tier)

    # ---- checking -----------------------------------------------------------------------------------

    def check(self, objects: Sequence[StoredObject]) -> list[str]:
        """Return a sentence for each equation that does not hold, given everything in the tree or leased."""
        sums = [0] * len(self.budgets)
        promised = 0
        for stored in objects:
            promised += stored.promised_bytes
            if stored.strict_tier != DEVICE:
                sums[stored.strict_tier] += stored.strict_bytes
            for tier, replica in enumerate(stored.replicas):
                sums[tier] += replica.protected_bytes if replica is not None else 0
        problems = [
            f"tier {tier}: {counted} bytes count as protected, objects sum to {summed}"
            for tier, (counted, summed) in enumerate(zip(self.protected_bytes, sums, strict=True))
            if counted != summed
        ]
        problems += [
            f"tier {tier}: {counted} protected bytes, the budget is {budget}"
            for tier, (counted, budget) in enumerate(
                zip(self.protected_bytes, self.budgets, strict=True)
            )
            if counted > budget
        ]
        if promised != self.promised_bytes:
            problems.append(
                f"{self.promised_bytes} bytes count as promised, objects sum to {promised}"
            )
        return problems
