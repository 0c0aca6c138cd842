"""Remembers how often evicted objects were used, so that content that comes back is not taken for new.

A set-associative table in fixed arrays: a digest has one row, a row has a few places, the longest unused entry of the
row makes room. So its size never changes and every call costs the same. A key is eight bytes of the digest of the
exact path; two paths that share a key share a use count, which can change an order of victims and nothing else.

Source: the ghost lists of 2Q (Johnson, Shasha 1994) and ARC (Megiddo, Modha 2003), here with counts instead of order.
"""

from array import array
from typing import Final

from ninfer.api import ImageKind
from ninfer.cache.names import Names
from ninfer.cache.node import StoredObject, page_of

MAX_ENTRIES: Final = 262_144
"""At 12,000 tokens of prefill per second, all pages that were given up in the last 23 minutes."""
MAX_BYTES: Final = 8 << 20
FORGET_AFTER_S: Final = 600.0
"""Idle time after which the uses before it say nothing about the time to come. Chosen on public traces, like the
constants of the policy `costmodel`; its README has the figures."""
_PLACES: Final = 8
_ENTRY_BYTES: Final = 28
_KEY_BYTES: Final = 8


class Ghosts:
    """Use counts of objects that left the tree.

    Args:
        names: makes digests of exact paths.
        max_entries: bound on objects remembered.
        max_bytes: bound on memory.
        forget_after_s: entries of objects that had been idle for longer are of no use.
    """

    def __init__(
        self,
        names: Names,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        forget_after_s: float = FORGET_AFTER_S,
    ) -> None:
        """Reserve all memory, filled with nothing."""
        self._names = names
        self._forget_after_s = forget_after_s
        self._num_rows = min(max_entries, max_bytes // _ENTRY_BYTES) // _PLACES
        num_entries = self._num_rows * _PLACES
        self._keys = array("Q", bytes(8 * num_entries))
        self._num_uses = array("I", bytes(4 * num_entries))
        self._created_s = array("d", bytes(8 * num_entries))
        self._last_use_s = array("d", bytes(8 * num_entries))

    @property
    def num_bytes(self) -> int:
        """Memory of the table; never changes."""
        columns = (self._keys, self._num_uses, self._created_s, self._last_use_s)
        return sum(len(column) * column.itemsize for column in columns)

    def remember(self, stored: StoredObject) -> None:
        """Keep the uses of an object that is given up; the longest unused one of its row may go for it."""
        if not self._num_rows:
            return
        key = self._key_of(stored)
        first = key % self._num_rows * _PLACES
        places = range(first, first + _PLACES)
        at = self._find(key, places)
        if at is None:
            at = min(places, key=self._age_rank)
            if self._num_uses[at] and self._last_use_s[at] > stored.last_use_s:
                return
        self._keys[at] = key
        self._num_uses[at] = min(stored.num_uses, 0xFFFF_FFFF)
        self._created_s[at] = stored.created_s
        self._last_use_s[at] = stored.last_use_s

    def revive(self, stored: StoredObject) -> None:
        """Let a new object continue the uses of its predecessor, which is forgotten here.

        To compute a page again is one more use of it. A state is captured again wherever a prompt passes, so only
        requests that resumed from it count.
        """
        if not self._num_rows:
            return
        key = self._key_of(stored)
        first = key % self._num_rows * _PLACES
        at = self._find(key, range(first, first + _PLACES))
        if at is None:
            return
        if stored.last_use_s - self._last_use_s[at] <= self._forget_after_s:
            is_use = stored.kind is ImageKind.PAGE
            stored.num_uses = self._num_uses[at] + is_use
            stored.created_s = self._created_s[at]
        self._num_uses[at] = 0

    def _find(self, key: int, places: range) -> int | None:
        keys, num_uses = self._keys, self._num_uses
        for at in places:
            if keys[at] == key and num_uses[at]:
                return at
        return None

    def _age_rank(self, at: int) -> tuple[bool, float]:
        """Order places by what is lost least: empty ones, then those unused for longest."""
        return self._num_uses[at] > 0, self._last_use_s[at]

    def _key_of(self, stored: StoredObject) -> int:
        digest = self._names.digest_of(page_of(stored))
        return int.from_bytes(digest[:_KEY_BYTES], "little") ^ (stored.kind is ImageKind.STATE)
