"""The context store: the only authority over pages, images, replicas and leases. Plans nothing, moves no bytes."""

from collections.abc import Callable, Iterable, Sequence

from ninfer.api import Clock, ImageFacts, ImageKey, ImageKind
from ninfer.api.errors import InvariantBroken
from ninfer.cache.ghosts import Ghosts
from ninfer.cache.identity import HEADER_OVERHEAD_BYTES, Digest, ImageHeader, domain_key, sha256
from ninfer.cache.ledger import ByteLedger
from ninfer.cache.names import Names
from ninfer.cache.node import DEVICE, PageNode, Replica, StateImage, StoredObject, page_of
from ninfer.cache.page_pool import PagePool
from ninfer.cache.retention import Retentions
from ninfer.cache.tier_space import TierSpace
from ninfer.cache.tree import ContextTree
from ninfer.cache.valuation import Valuation
from ninfer.core.step import DeviceLayout


class ContextStore:
    """Pages and state images of all contexts, on all tiers. Used on the engine thread only.

    Invariants (see `checks.py`): every page of the device is free, private to a lane, or the replica of exactly
    one node; ledgers equal the sums over replicas; a node is in the tree while it has a replica; leases and stamps never
    go below zero.

    Args:
        layout: sizes of the device.
        tiers: lower tiers, fastest first.
        keep_value: the policy's value of a replica.
        clock: source of time.
        digest: hash for names on lower tiers.
        retention_budget: share of each tier's bytes that retained contexts may be protected in.
    """

    def __init__(
        self,
        layout: DeviceLayout,
        tiers: Sequence[TierSpace],
        keep_value: Callable[[ImageFacts], float],
        clock: Clock,
        digest: Digest = sha256,
        *,
        retention_budget: float = 0.5,
    ) -> None:
        """Start empty."""
        self.layout = layout
        self.clock = clock
        self.has_state = layout.state_image_bytes > 0
        self.num_tiers = 1 + len(tiers)
        self.tree = ContextTree(self.num_tiers)
        self.pages = PagePool(layout.num_pages)
        self.private_pages: set[int] = set()
        self.free_slots = list(range(layout.num_state_slots))[::-1]
        self.private_slots: set[int] = set()
        self.num_leased_pages = 0
        self.num_gone_pages = 0
        self.gone_bytes = [0] * len(tiers)
        self.revision = 0
        self.stalled: frozenset[int] = frozenset()
        self.spaces = list(tiers)
        self.ledgers = [ByteLedger(tier.capacity_bytes) for tier in tiers]
        self.on_delete: Callable[[int, ImageKey], None] = lambda _tier, _key: None
        self.use_index = 0
        self._page_bytes = layout.page_image_bytes
        self.names = Names(clock, digest)
        self.ghosts = Ghosts(self.names)
        self.values = Valuation(layout, self.num_tiers, keep_value)
        capacities = [layout.num_bytes, *(tier.capacity_bytes for tier in tiers)]
        self.retentions = Retentions(capacities, self.bytes_on, share=retention_budget)

    def payload_bytes(self, stored: StoredObject) -> int:
        """Return the length of an object's byte image."""
        is_state = stored.kind is ImageKind.STATE
        return self.layout.state_image_bytes if is_state else self._page_bytes

    def bytes_on(self, stored: StoredObject, tier: int) -> int:
        """Return what an object takes of a tier's bytes."""
        if tier == DEVICE:
            return self.payload_bytes(stored)
        node = page_of(stored)
        header_bytes = HEADER_OVERHEAD_BYTES + len(node.domain) + len(node.tokens)
        return self.spaces[tier - 1].stored_bytes(header_bytes, self.payload_bytes(stored))

    def root_of(self, salt: str) -> PageNode:
        """Return the start of a tenant's namespace."""
        return self.tree.peek_root(domain_key(salt=salt))

    @property
    def num_evictable_pages(self) -> int:
        """Device pages of nodes that nobody leases."""
        in_nodes = self.layout.num_pages - self.pages.num_free - len(self.private_pages)
        return in_nodes - self.num_leased_pages

    def take_pages(self, num_pages: int) -> list[int]:
        """Reserve free device pages for a lane."""
        pages = self.pages.allocate(num_pages)
        self.private_pages.update(pages)
        self.revision += 1
        return pages

    def give_pages(self, pages: Iterable[int]) -> None:
        """Return pages of a lane that no node took over."""
        pages = list(pages)
        self.private_pages.difference_update(pages)
        self.pages.free(pages)
        self.revision += 1

    def take_slot(self) -> int | None:
        """Reserve a free state slot, None if there is none."""
        if not self.free_slots:
            return None
        slot = self.free_slots.pop()
        self.private_slots.add(slot)
        self.revision += 1
        return slot

    def give_slot(self, slot: int) -> None:
        """Return a state slot that no image took over."""
        self.private_slots.remove(slot)
        self.free_slots.append(slot)
        self.revision += 1

    def publish_page(self, parent: PageNode, tokens: bytes, page: int) -> tuple[PageNode, bool]:
        """Make a page of a lane part of the tree; its bytes must be there.

        Args:
            parent: the full page before it, in the tree.
            tokens: encoded tokens, 1..64 of them.
            page: a private page.

        Returns:
            The node with these tokens, and whether it took the page over. If the same content was on the device
            already, the page stays private.
        """
        if parent.is_root:
            parent = self.tree.root(parent.domain)
        node = self.tree.find_child(parent, tokens)
        if node is None:
            node = self._new_node(parent, tokens)
        replica = node.replicas[DEVICE]
        if replica is not None and replica.is_valid:
            return node, False
        self.private_pages.remove(page)
        self.revision += 1
        if replica is not None:
            self._overtake(node, replica, page)
            return node, True
        self._set_replica(node, DEVICE, Replica(location=page, num_bytes=0, is_valid=True))
        self.revalue(node)
        return node, True

    def _overtake(self, node: PageNode, replica: Replica, page: int) -> None:
        """Content that is being restored was computed meanwhile: the restored page stays with its lane."""
        self.private_pages.add(replica.location)
        replica.location, replica.is_valid = page, True
        self.values.offer(node, DEVICE)

    def _new_node(self, parent: PageNode, tokens: bytes) -> PageNode:
        now_s, index = self.clock.monotonic_s(), self._next_use()
        node = PageNode(parent, tokens, num_tiers=self.num_tiers, now_s=now_s, use_index=index)
        self.tree.link(node)
        self.ghosts.revive(node)
        return node

    def _new_image(self, node: PageNode) -> StateImage:
        now_s, index = self.clock.monotonic_s(), self._next_use()
        image = StateImage(node, num_tiers=self.num_tiers, now_s=now_s, use_index=index)
        node.image = image
        self._count_image(node, 1)
        self.ghosts.revive(image)
        return image

    def publish_image(
        self, node: PageNode, slot: int, *, is_rung: bool = False
    ) -> StateImage | None:
        """Make a state slot the image at the end of a node; None if that position has one on the device."""
        image = node.image or self._new_image(node)
        if image.replicas[DEVICE] is not None:
            return None
        self.private_slots.remove(slot)
        image.is_rung = is_rung
        self._set_replica(image, DEVICE, Replica(location=slot, num_bytes=0, is_valid=True))
        self.values.offer(image, DEVICE)
        self.revision += 1
        return image

    def restore_record(
        self, parent: PageNode, header: ImageHeader, tier: int, num_bytes: int
    ) -> StoredObject | None:
        """Take over an image that a tier held before this process began; None if it is known already."""
        node = self.tree.find_child(parent, header.tokens)
        stored: StoredObject
        if header.kind is ImageKind.STATE:
            if node is None or node.image is not None:
                return None
            stored = self._new_image(node)
        else:
            if node is not None:
                return None
            stored = self._new_node(parent, header.tokens)
        self.names.read_history(header, stored)
        ledger = self.ledgers[tier - 1]
        ledger.reserve(num_bytes)
        ledger.commit(num_bytes)
        self._set_replica(stored, tier, Replica(location=-1, num_bytes=num_bytes, is_valid=True))
        self.revision += 1
        return stored

    def _count_image(self, node: PageNode, change: int) -> None:
        """Count an image for its path; pages that became reachable or dead are valued anew."""
        at: PageNode | None = node
        while at is not None:
            at.live_images += change
            if at.live_images == max(0, change):
                self.revalue(at)
            at = at.parent

    def _next_use(self) -> int:
        self.use_index += 1
        return self.use_index

    def touch(self, path: Iterable[StoredObject], *, is_use: bool = True) -> None:
        """Record one use of the objects along a path; without `is_use` only that they are wanted now."""
        now_s, index = self.clock.monotonic_s(), self._next_use()
        for stored in path:
            stored.num_uses += is_use
            stored.last_use_s = now_s
            stored.last_use_index = index
            self.retentions.refresh(stored, now_s)
            if isinstance(stored, StateImage) and stored.is_superseded:
                stored.is_superseded = False
                self.revalue(stored.node)
            self.revalue(stored)

    def supersede(self, image: StateImage) -> None:
        """Value an image as replaced by a newer one of its lineage; a use undoes that."""
        image.is_superseded = True
        self.revalue(image.node)
        self.revalue(image)

    def revalue(self, stored: StoredObject) -> None:
        """Put all replicas of an object into the victim orders with their present values."""
        self.values.offer_all(stored)

    def lease(self, stored: StoredObject, tier: int) -> Replica:
        """Keep a replica from being evicted until `release`.

        Raises:
            InvariantBroken: there is no replica on that tier.
        """
        replica = stored.replicas[tier]
        if replica is None:
            msg = f"no replica on tier {tier} to lease"
            raise InvariantBroken(msg)
        replica.leases += 1
        if replica.leases == 1 and tier == DEVICE and stored.kind is ImageKind.PAGE:
            self.num_leased_pages += 1
        return replica

    def release(self, stored: StoredObject, tier: int) -> None:
        """Give a lease back; an object that is gone loses the replica with its last lease.

        Raises:
            InvariantBroken: there was no lease.
        """
        replica = stored.replicas[tier]
        if replica is None or replica.leases <= 0:
            msg = f"released a lease on tier {tier} that nobody held"
            raise InvariantBroken(msg)
        replica.leases -= 1
        if replica.leases == 0:
            if tier == DEVICE and stored.kind is ImageKind.PAGE:
                self.num_leased_pages -= 1
            if stored.is_gone:
                self._free_replica(stored, tier)
            else:
                self.values.offer(stored, tier)
            self.revision += 1

    def reserve_replica(self, stored: StoredObject, tier: int) -> Replica:
        """Promise room on a lower tier for a copy that is about to begin."""
        num_bytes = self.bytes_on(stored, tier)
        self.ledgers[tier - 1].reserve(num_bytes)
        replica = Replica(location=-1, num_bytes=num_bytes, is_valid=False)
        self._set_replica(stored, tier, replica)
        self.revision += 1
        return replica

    def device_pending(self, node: PageNode, page: int) -> Replica:
        """Attach a private page to a node as the target of a restore."""
        self.private_pages.remove(page)
        replica = Replica(location=page, num_bytes=0, is_valid=False)
        self._set_replica(node, DEVICE, replica)
        self.revision += 1
        return replica

    def commit_replica(self, stored: StoredObject, tier: int) -> None:
        """Make a reserved replica valid: all its bytes are there."""
        replica = stored.replicas[tier]
        if replica is None or replica.is_valid:
            msg = f"no reserved replica on tier {tier} to commit"
            raise InvariantBroken(msg)
        replica.is_valid = True
        if tier != DEVICE:
            self.ledgers[tier - 1].commit(replica.num_bytes)
        self.revalue(stored)
        self.revision += 1

    def drop_replica(self, stored: StoredObject, tier: int) -> None:
        """Remove a replica nobody leases; an object without any other leaves the tree with all below it."""
        self._free_replica(stored, tier)
        if stored.has_replica():
            self.revalue(stored)
        else:
            self._remove_object(stored)
        self.revision += 1

    def forget(self, stored: StoredObject) -> None:
        """Remove an object and everything that depends on it; leased replicas go with their last lease."""
        if not stored.is_gone:
            self._remove_object(stored)
            self.revision += 1

    def _remove_object(self, stored: StoredObject) -> None:
        if isinstance(stored, StateImage):
            self._remove_image(stored)
            return
        node = page_of(stored)
        members = self.tree.subtree(node)
        self.tree.unlink(node)
        for member in reversed(members):
            if member.image is not None:
                self._remove_image(member.image)
            self._retire(member)

    def _remove_image(self, image: StateImage) -> None:
        node = image.node
        node.image = None
        self._count_image(node, -1)
        self._retire(image)

    def _retire(self, stored: StoredObject) -> None:
        stored.is_gone = True
        self.ghosts.remember(stored)
        self.retentions.forget(stored)
        for tier, replica in enumerate(stored.replicas):
            if replica is None:
                continue
            self._count_gone(stored, tier, replica, 1)
            self.retentions.release(stored, tier)
            self._leave_parent(stored, tier)
            if replica.leases == 0:
                self._free_replica(stored, tier)

    def _count_gone(self, stored: StoredObject, tier: int, replica: Replica, change: int) -> None:
        """Replicas of objects that left the tree still take room until their last lease."""
        if tier != DEVICE:
            self.gone_bytes[tier - 1] += change * replica.num_bytes
        elif stored.kind is ImageKind.PAGE:
            self.num_gone_pages += change

    def _set_replica(self, stored: StoredObject, tier: int, replica: Replica) -> None:
        stored.replicas[tier] = replica
        if stored.retain_s:
            self.retentions.settle(stored, tier)
        if isinstance(stored, PageNode) and stored.parent is not None:
            stored.parent.child_replicas[tier] += 1

    def _free_replica(self, stored: StoredObject, tier: int) -> None:
        replica = stored.replicas[tier]
        if replica is None or replica.leases:
            msg = f"tier {tier}: a replica to free is missing or leased"
            raise InvariantBroken(msg)
        self.retentions.release(stored, tier)
        stored.replicas[tier] = None
        replica.stamp += 1
        if stored.is_gone:
            self._count_gone(stored, tier, replica, -1)
        if tier == DEVICE:
            if stored.kind is ImageKind.PAGE:
                self.pages.free([replica.location])
            else:
                self.free_slots.append(replica.location)
        else:
            ledger = self.ledgers[tier - 1]
            (ledger.release if replica.is_valid else ledger.cancel)(replica.num_bytes)
            if replica.is_valid or stored.is_gone:  # also what is still being written
                self.on_delete(tier, self.names.key_of(stored))
        if not stored.is_gone:
            self._leave_parent(stored, tier)

    def _leave_parent(self, stored: StoredObject, tier: int) -> None:
        """A replica no longer keeps its parent's from being given up."""
        if isinstance(stored, PageNode) and stored.parent is not None:
            parent = stored.parent
            parent.child_replicas[tier] -= 1
            if not parent.is_root and not parent.is_gone:
                self.values.offer(parent, tier)
