"""Takes over what other processes store in shared tiers while this one runs. Reads no payload.

Once a second the thread that reads from a shared tier asks it for changes. What it finds is worked off on the engine
thread in small portions: an image whose prefix is known becomes a replica like any other; one whose prefix is not known
(its writer still keeps the pages before it elsewhere) waits, counted, until the prefix is linked.
"""

import queue
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ninfer.api import Clock, ImageKey, ImageKind, ImageRecord, TierChanges
from ninfer.cache.identity import ImageHeader
from ninfer.cache.node import PageNode, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.cache.transfers import Transfers

INTERVAL_S: Final = 1.0
"""Between two questions to a tier: what another machine stored is known here about this much later."""

MAX_TOLD: Final = 1000
"""Images of one answer."""

PORTION: Final = 64
"""Changes that are worked off between two steps: about a millisecond."""

STRAY_S: Final = 600.0
"""An image whose prefix stayed unknown for so long may be deleted when the tier is nearly full."""

MAX_UNBOOKED: Final = 10_000


@dataclass(slots=True, kw_only=True)
class _Stray:
    """An image without a place in the tree."""

    record: ImageRecord
    num_bytes: int
    since_s: float


class SharedTier:
    """What is known of one shared tier beside the replicas in the tree.

    Attributes:
        cursor: place of the last answer.
        pending: records to take over and keys to forget, in order.
        strays: images without a known prefix, oldest first; the ledger counts them.
        unbooked: images that the ledger has no room for now; not counted.
    """

    def __init__(self, tier: int, cursor: bytes) -> None:
        """Start with nothing known."""
        self.tier = tier
        self.cursor = cursor
        self.is_asked = False
        self.asked_s = 0.0
        self.pending: deque[ImageRecord | ImageKey] = deque()
        self.strays: dict[ImageKey, _Stray] = {}
        self.unbooked: dict[ImageKey, ImageRecord] = {}
        self.retry_revision = -1


class SharedTiers:
    """Follows all shared tiers. Used on the engine thread only.

    Args:
        store: the context store; must be empty.
        transfers: asks tiers on their threads.
        clock: source of time.
    """

    def __init__(self, store: ContextStore, transfers: Transfers, clock: Clock) -> None:
        """Remember the present place of each shared tier: what comes later is told by it, the rest is recovered."""
        self._store = store
        self._transfers = transfers
        self._clock = clock
        self._answers: queue.SimpleQueue[tuple[SharedTier, TierChanges]] = queue.SimpleQueue()
        self._page_of: dict[ImageKey, PageNode] = {}
        self._followers: dict[bytes, set[tuple[int, ImageKey]]] = {}
        self._removed: tuple[int, ImageKey] | None = None
        self.tiers = {
            tier: SharedTier(tier, handle.changes(b"", 1).cursor)
            for tier, handle in enumerate(transfers.handles, start=1)
            if handle.capabilities.shared
        }
        if self.tiers:
            store.tree.on_link = self._linked
            store.tree.on_unlink = self._unlinked
            store.on_delete = self._delete_unless_removed

    @property
    def num_strays(self) -> int:
        """Images without a place in the tree, those without room included."""
        return sum(len(tier.strays) + len(tier.unbooked) for tier in self.tiers.values())

    def take(self, tier: int, records: Iterable[ImageRecord]) -> None:
        """Keep images in mind that recovery found no place for."""
        if tier in self.tiers:
            self.tiers[tier].pending.extend(records)

    def pump(self) -> bool:
        """Ask tiers that are due and work off a portion of what they told; tell whether anything was worked off."""
        if not self.tiers:
            return False
        self._collect()
        did_any = False
        for shared in self.tiers.values():
            did_any |= self._work_off(shared)
            if not shared.pending and not shared.is_asked:
                self._ask_if_due(shared)
        return did_any

    # ---- asking ------------------------------------------------------------------------------------

    def _ask_if_due(self, shared: SharedTier) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - shared.asked_s < INTERVAL_S or self._transfers.is_stalled(shared.tier):
            return
        self._give_up_strays(shared, now_s)
        self._retry_unbooked(shared)
        shared.is_asked = True
        shared.asked_s = now_s
        handle = self._transfers.handles[shared.tier - 1]
        cursor = shared.cursor

        def look() -> None:
            self._answers.put((shared, handle.changes(cursor, MAX_TOLD)))

        self._transfers.look(shared.tier, look)

    def _collect(self) -> None:
        while True:
            try:
                shared, changes = self._answers.get_nowait()
            except queue.Empty:
                return
            shared.is_asked = False
            if changes.cursor != shared.cursor:
                shared.asked_s = -INTERVAL_S
            shared.cursor = changes.cursor
            shared.pending.extend(changes.removed)
            shared.pending.extend(changes.records)

    def _work_off(self, shared: SharedTier) -> bool:
        num_left = PORTION
        while shared.pending and num_left:
            change = shared.pending.popleft()
            if isinstance(change, ImageKey):
                self._forget(shared, change)
            else:
                self._add(shared, change)
            num_left -= 1
        return num_left < PORTION

    # ---- what others stored ------------------------------------------------------------------------

    def _add(self, shared: SharedTier, record: ImageRecord) -> None:
        """Make an image a replica, or keep it in mind."""
        header = ImageHeader.unpack(record.header)
        if header is None or record.num_bytes != self._payload_bytes(header):
            return
        handle = self._transfers.handles[shared.tier - 1]
        num_bytes = handle.stored_bytes(len(record.header), record.num_bytes)
        known = self._object_of(record.key)
        if known is not None and (
            known.replicas[shared.tier] is not None
            or not header.names_same_content(self._store.names.header_of(known))
        ):
            return
        since_s = self._drop_stray(shared, record.key)
        if num_bytes > self._store.ledgers[shared.tier - 1].free_bytes:
            if len(shared.unbooked) < MAX_UNBOOKED:
                shared.unbooked[record.key] = record
            return
        if known is not None:
            self._store.reserve_replica(known, shared.tier)
            self._store.commit_replica(known, shared.tier)
        elif not self._take_over(shared, record, header, num_bytes):
            self._keep_stray(
                shared, header, _Stray(record=record, num_bytes=num_bytes, since_s=since_s)
            )

    def _take_over(
        self, shared: SharedTier, record: ImageRecord, header: ImageHeader, num_bytes: int
    ) -> bool:
        """Link an image behind its prefix; False if that is not known."""
        parent = self._parent_of(header)
        if parent is None or not self._is_named(record.key, parent, header):
            return False
        if parent.is_root:
            parent = self._store.tree.root(header.domain)
        stored = self._store.restore_record(parent, header, shared.tier, num_bytes)
        if stored is None:
            return False
        self._store.values.offer(stored, shared.tier)
        return True

    def _parent_of(self, header: ImageHeader) -> PageNode | None:
        root = self._store.tree.peek_root(header.domain)
        if self._store.names.digest_of(root) == header.parent_digest:
            return root
        parent = self._page_of.get(_page_key(header.parent_digest))
        is_match = parent is not None and not parent.is_tail and parent.domain == header.domain
        return parent if is_match else None

    def _is_named(self, key: ImageKey, parent: PageNode, header: ImageHeader) -> bool:
        """Tell whether a name is that of the content its header tells of."""
        page = PageNode(
            parent, header.tokens, num_tiers=self._store.num_tiers, now_s=0.0, use_index=0
        )
        names = self._store.names
        is_state = header.kind is ImageKind.STATE
        return key == (names.state_key_of(page) if is_state else names.page_key_of(page))

    def _payload_bytes(self, header: ImageHeader) -> int:
        layout = self._store.layout
        is_state = header.kind is ImageKind.STATE
        return layout.state_image_bytes if is_state else layout.page_image_bytes

    def _object_of(self, key: ImageKey) -> StoredObject | None:
        node = self._page_of.get(key)
        return node if node is None or key.kind is ImageKind.PAGE else node.image

    # ---- what others deleted -----------------------------------------------------------------------

    def _forget(self, shared: SharedTier, key: ImageKey) -> None:
        """Drop the replica of an image that is not there any more."""
        shared.unbooked.pop(key, None)
        self._drop_stray(shared, key)
        stored = self._object_of(key)
        replica = stored.valid_on(shared.tier) if stored is not None else None
        if stored is None or replica is None or replica.leases:
            return
        self._removed = (shared.tier, key)
        self._store.drop_replica(stored, shared.tier)
        self._removed = None

    def _delete_unless_removed(self, tier: int, key: ImageKey) -> None:
        """Do not delete what is deleted: somebody may have stored it again."""
        if (tier, key) != self._removed:
            self._transfers.delete(tier, key)

    # ---- images without a prefix -------------------------------------------------------------------

    def _keep_stray(self, shared: SharedTier, header: ImageHeader, stray: _Stray) -> None:
        self._store.ledgers[shared.tier - 1].take_foreign(stray.num_bytes)
        shared.strays[stray.record.key] = stray
        followers = self._followers.setdefault(header.parent_digest, set())
        followers.add((shared.tier, stray.record.key))

    def _drop_stray(self, shared: SharedTier, key: ImageKey) -> float:
        """Stop counting an image if it is a stray; return since when it was one, at most now."""
        stray = shared.strays.pop(key, None)
        if stray is None:
            return self._clock.monotonic_s()
        self._store.ledgers[shared.tier - 1].give_foreign(stray.num_bytes)
        self._store.revision += 1
        header = ImageHeader.unpack(stray.record.header)
        if header is not None and header.parent_digest in self._followers:
            followers = self._followers[header.parent_digest]
            followers.discard((shared.tier, key))
            if not followers:
                del self._followers[header.parent_digest]
        return stray.since_s

    def _give_up_strays(self, shared: SharedTier, now_s: float) -> None:
        """Delete old images that nobody here could use, if the tier is nearly full."""
        ledger = self._store.ledgers[shared.tier - 1]
        if ledger.free_bytes >= ledger.capacity_bytes // 8:
            return
        old = [key for key, stray in shared.strays.items() if now_s - stray.since_s > STRAY_S]
        for key in old[:PORTION]:
            self._drop_stray(shared, key)
            self._transfers.delete(shared.tier, key)

    def _retry_unbooked(self, shared: SharedTier) -> None:
        """Look again at images that had no room, if anything changed since."""
        if shared.unbooked and shared.retry_revision != self._store.revision:
            shared.pending.extend(shared.unbooked.values())
            shared.unbooked.clear()
            shared.retry_revision = self._store.revision

    # ---- the tree ----------------------------------------------------------------------------------

    def _linked(self, node: PageNode) -> None:
        """Index a page under its names; images that waited for it, or for its state, are looked at again."""
        names = self._store.names
        key = names.page_key_of(node)
        self._page_of[key] = node
        if self._store.has_state:
            self._page_of[names.state_key_of(node)] = node
        parent_digest = names.digest_of(node.parent) if node.parent is not None else b""
        waiting = [*self._followers.get(key.digest, ()), *self._followers.get(parent_digest, ())]
        for tier, waiting_key in waiting:
            shared = self.tiers[tier]
            stray = shared.strays.get(waiting_key)
            if stray is not None:
                shared.pending.append(stray.record)

    def _unlinked(self, node: PageNode) -> None:
        names = self._store.names
        for member in self._store.tree.subtree(node):
            self._page_of.pop(names.page_key_of(member), None)
            if self._store.has_state:
                self._page_of.pop(names.state_key_of(member), None)


def _page_key(digest: bytes) -> ImageKey:
    return ImageKey(digest=digest, kind=ImageKind.PAGE)
