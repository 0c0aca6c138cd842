"""One walk through an order of victims, as a plan takes them. Decides nothing and changes nothing."""

from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from ninfer.api import ImageFacts
from ninfer.cache.node import PageNode, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.cache.victims import Entry, VictimHeap


class Found(NamedTuple):
    """A replica that may be given up.

    Attributes:
        value: the policy's.
        stored: whose it is.
        facts: what the policy valued, if that was now.
    """

    value: float
    stored: StoredObject
    facts: ImageFacts | None


class VictimSearch:
    """Takes victims of one order, least valuable first, and sees what becomes evictable behind them.

    Args:
        store: the context store.
        order: where they stand.
        tier: whose order it is.
    """

    def __init__(self, store: ContextStore, order: VictimHeap, tier: int) -> None:
        """Start with the least valuable."""
        self._store = store
        self._order = order
        self._tier = tier
        self._head: Entry | None = None
        self._popped: list[Entry] = []
        self._uncovered: list[tuple[float, int, StoredObject, ImageFacts]] = []
        self._removed: dict[int, int] = {}
        self._numbers = count()

    def take(self) -> Found | None:
        """Return the next one, None if there is none; `give_up` it, or it stays."""
        head = self._head = self._head or self._order.pop()
        if self._uncovered and (head is None or self._uncovered[0][0] < head[0]):
            value, _, stored, facts = heappop(self._uncovered)
            return Found(value, stored, facts)
        if head is None:
            return None
        self._popped.append(head)
        self._head = None
        return Found(head[0], head[2], None)

    def give_up(self, stored: StoredObject) -> None:
        """What was taken goes: what it covered may go next."""
        if not isinstance(stored, PageNode) or stored.parent is None or stored.parent.is_root:
            return
        parent, tier = stored.parent, self._tier
        replica = parent.replicas[tier]
        num_covering = parent.child_replicas[tier]
        if num_covering > 1:
            removed = self._removed[id(parent)] = self._removed.get(id(parent), 0) + 1
            num_covering -= removed - 1
        if num_covering > 1 or replica is None or replica.leases or not replica.is_valid:
            return
        facts = self._store.values.facts_of(parent, tier)
        value = self._store.values.value_by(parent, facts)
        heappush(self._uncovered, (value, next(self._numbers), parent, facts))

    def end(self) -> None:
        """Put everything back: the plan may not be carried out."""
        for entry in self._popped if self._head is None else (*self._popped, self._head):
            self._order.put_back(entry)
