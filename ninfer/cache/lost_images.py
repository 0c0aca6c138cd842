"""Finds out what else is gone when a tier turns out to have lost an image. Reads no payload.

Somebody deleted a file, or a disk was swapped: then other images are gone too, and those that the device still holds
would be given up there as redundant. So one image that is missing makes the tier's thread ask for all of them.
"""

import queue
from typing import Final

from ninfer.api import Clock, ImageKey
from ninfer.cache.node import Replica, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.cache.transfers import Transfers

INTERVAL_S: Final = 1.0
"""Between two questions to a tier. Asking for 10,000 images takes about ten milliseconds of the engine thread."""

Suspect = tuple[StoredObject, Replica]


class LostImages:
    """Drops replicas that a tier no longer holds. Used on the engine thread only.

    Args:
        store: the context store.
        transfers: asks tiers on their threads.
        clock: source of time.
    """

    def __init__(self, store: ContextStore, transfers: Transfers, clock: Clock) -> None:
        """Suspect nothing."""
        self._store = store
        self._transfers = transfers
        self._clock = clock
        self._suspected: set[int] = set()
        self._asking: set[int] = set()
        self._asked_s = [-INTERVAL_S] * store.num_tiers
        self._answers: queue.SimpleQueue[tuple[int, list[Suspect], list[bool]]] = (
            queue.SimpleQueue()
        )

    def suspect(self, tier: int) -> None:
        """Ask a tier for everything it should hold, soon."""
        self._suspected.add(tier)

    def pump(self) -> bool:
        """Ask tiers that are suspected and drop what they do not hold; tell whether anything was dropped."""
        if not self._suspected and not self._asking:
            return False
        for tier in tuple(self._suspected):
            self._ask_if_due(tier)
        num_dropped = 0
        while self._asking:
            try:
                tier, suspects, is_there = self._answers.get_nowait()
            except queue.Empty:
                break
            self._asking.discard(tier)
            for (stored, replica), held in zip(suspects, is_there, strict=True):
                if not held and stored.replicas[tier] is replica and not replica.leases:
                    self._store.drop_replica(stored, tier)
                    num_dropped += 1
        return num_dropped > 0

    def _ask_if_due(self, tier: int) -> None:
        now_s = self._clock.monotonic_s()
        is_early = now_s - self._asked_s[tier] < INTERVAL_S
        if is_early or tier in self._asking or self._transfers.is_stalled(tier):
            return
        self._suspected.discard(tier)
        self._asking.add(tier)
        self._asked_s[tier] = now_s
        suspects: list[Suspect] = []
        keys: list[ImageKey] = []
        for node in self._store.tree.nodes():
            for stored in (node, node.image):
                replica = stored.valid_on(tier) if stored is not None else None
                if stored is not None and replica is not None:
                    suspects.append((stored, replica))
                    keys.append(self._store.names.key_of(stored))
        handle = self._transfers.handles[tier - 1]
        self._transfers.look(
            tier, lambda: self._answers.put((tier, suspects, handle.contains(keys)))
        )
