"""Order in which replicas of one resource are given up. Knows nothing about what giving up means.

A heap with stale entries: an entry counts only while its replica carries the stamp it was pushed with. Pushing and
popping cost the logarithm of the number of entries; stale ones are swept when they outnumber the live ones.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from ninfer.cache.node import Replica, StoredObject

_MIN_SWEEP: Final = 64

Entry = tuple[float, int, StoredObject, Replica, int]
"""(value, running number, object, replica, stamp)"""


class VictimHeap:
    """Replicas that may be evicted, least valuable first; equal values go oldest entry first.

    Args:
        is_eligible: tells whether the replica in question may be evicted now.
    """

    def __init__(self, is_eligible: Callable[[StoredObject], bool]) -> None:
        """Start empty."""
        self._is_eligible = is_eligible
        self._entries: list[Entry] = []
        self._pushed = 0
        self._sweep_at = _MIN_SWEEP

    def push(self, stored: StoredObject, replica: Replica, value: float) -> None:
        """Add or re-value a replica; an older entry of it becomes stale."""
        replica.stamp += 1
        self._pushed += 1
        heappush(self._entries, (value, self._pushed, stored, replica, replica.stamp))
        if len(self._entries) > self._sweep_at:
            self._entries = [entry for entry in self._entries if self._is_live(entry)]
            heapify(self._entries)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._entries))

    def pop(self) -> Entry | None:
        """Take out the least valuable eligible entry, None if there is none."""
        while self._entries:
            entry = heappop(self._entries)
            if self._is_live(entry):
                return entry
        return None

    def put_back(self, entry: Entry) -> None:
        """Return an entry that was popped and not used."""
        heappush(self._entries, entry)

    def _is_live(self, entry: Entry) -> bool:
        _, _, stored, replica, stamp = entry
        return replica.stamp == stamp and self._is_eligible(stored)
