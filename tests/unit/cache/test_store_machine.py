"""Context store under random use: sums against a plain oracle, and `checks.check` after every step."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ninfer.api.errors import InvariantBroken
from ninfer.cache.checks import check
from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_space import TierSpace
from ninfer.cache.valuation import is_evictable
from ninfer.core.step import DeviceLayout
from ninfer.obs.clock import SystemClock

NUM_PAGES, NUM_SLOTS, TIER_BYTES = 12, 4, (4_000, 9_000)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        layout = DeviceLayout(
            num_pages=NUM_PAGES,
            page_pool_bytes={"main": 512},
            num_state_slots=NUM_SLOTS,
            state_image_bytes=16,
            num_lanes=4,
        )
        tiers = [
            TierSpace(name=f"t{size}", capacity_bytes=size, stored_bytes=lambda h, p: h + p)
            for size in TIER_BYTES
        ]
        self.store = ContextStore(
            layout, tiers, lambda facts: float(facts.last_use_index), SystemClock()
        )
        self.deleted = []
        self.store.on_delete = lambda tier, key: self.deleted.append((tier, key))
        self.private, self.slots, self.leases, self.reserved = [], [], [], []
        self.revision = 0

    def _objects(self):
        for node in self.store.tree.nodes():
            yield node
            if node.image is not None:
                yield node.image

    def _draw(self, data, candidates):
        candidates = list(candidates)
        return candidates[data.draw(st.integers(0, len(candidates) - 1))] if candidates else None

    @rule(num_pages=st.integers(1, 3))
    def take_pages(self, num_pages):
        if num_pages <= self.store.pages.num_free:
            self.private += self.store.take_pages(num_pages)

    @rule()
    def give_pages(self):
        self.store.give_pages(self.private[:1])
        self.private = self.private[1:]

    @rule()
    def take_slot(self):
        slot = self.store.take_slot()
        if slot is not None:
            self.slots.append(slot)

    @rule()
    def give_slot(self):
        if self.slots:
            self.store.give_slot(self.slots.pop())

    @rule(data=st.data(), token=st.integers(0, 1), size=st.sampled_from([64, 64, 64, 10, 40]))
    def publish_page(self, data, token, size):
        if not self.private:
            return
        above = [
            node
            for node in self.store.tree.nodes()
            if not node.is_tail and node.valid_on(DEVICE) is not None
        ]
        parent = self._draw(data, [self.store.root_of(""), self.store.root_of("x"), *above])
        tokens = encode_tokens([token] * size)
        page = self.private[-1]
        before = self.store.tree.find_child(parent, tokens)
        pending = before.replicas[DEVICE] if before is not None else None
        was_valid = pending is not None and pending.is_valid
        old_page = pending.location if pending is not None else None
        node, is_taken = self.store.publish_page(parent, tokens, page)
        assert is_taken == (not was_valid)
        assert node.valid_on(DEVICE) is not None
        if is_taken:
            assert node.valid_on(DEVICE).location == page
            self.private.pop()
            if old_page is not None:
                self.private.append(old_page)
                self.reserved.remove((node, DEVICE))

    @rule(data=st.data())
    def publish_image(self, data):
        nodes = [n for n in self.store.tree.nodes() if n.valid_on(DEVICE) is not None]
        node = self._draw(data, nodes)
        if node is not None and self.slots:
            had = node.image is not None and node.image.replicas[DEVICE] is not None
            image = self.store.publish_image(node, self.slots[-1])
            assert (image is None) == had
            if image is not None:
                self.slots.pop()

    @rule(data=st.data(), tier=st.integers(0, 2))
    def lease(self, data, tier):
        stored = self._draw(data, self._objects())
        if stored is None:
            return
        if stored.replicas[tier] is None:
            with pytest.raises(InvariantBroken):
                self.store.lease(stored, tier)
        else:
            self.store.lease(stored, tier)
            self.leases.append((stored, tier))

    @rule(data=st.data())
    def release(self, data):
        lease = self._draw(data, self.leases)
        if lease is not None:
            self.leases.remove(lease)
            self.store.release(*lease)

    @rule(data=st.data())
    def release_what_nobody_holds(self, data):
        stored = self._draw(data, self._objects())
        if stored is not None and not any(held is stored for held, _ in self.leases):
            with pytest.raises(InvariantBroken):
                self.store.release(stored, DEVICE)

    @rule(data=st.data(), tier=st.integers(1, 2))
    def reserve(self, data, tier):
        stored = self._draw(data, self._objects())
        if stored is None or stored.replicas[tier] is not None:
            return
        if self.store.bytes_on(stored, tier) > self.store.ledgers[tier - 1].free_bytes:
            before = list(stored.replicas)
            with pytest.raises(InvariantBroken):
                self.store.reserve_replica(stored, tier)
            assert stored.replicas == before
        else:
            self.store.reserve_replica(stored, tier)
            self.reserved.append((stored, tier))

    @rule(data=st.data())
    def restore(self, data):
        """The planner restores what is below a page on the device, and leases it."""
        nodes = [
            node
            for node in self.store.tree.nodes()
            if node.replicas[DEVICE] is None
            and (node.parent.is_root or node.parent.replicas[DEVICE] is not None)
        ]
        node = self._draw(data, nodes)
        if node is not None and self.private:
            self.store.device_pending(node, self.private.pop())
            self.reserved.append((node, DEVICE))

    @rule(data=st.data(), is_good=st.booleans())
    def end_reservation(self, data, is_good):
        entry = self._draw(data, self.reserved)
        if entry is None:
            return
        stored, tier = entry
        if is_good:
            self.store.commit_replica(stored, tier)
        elif not stored.replicas[tier].leases and not self._is_needed(stored, tier):
            self.store.drop_replica(stored, tier)
        else:
            return
        self.reserved.remove(entry)
        self._forget_gone()

    def _is_needed(self, stored, tier):
        followers = stored.followers() if stored.kind == "page" else []
        return any(follower.replicas[tier] is not None for follower in followers)

    @rule(data=st.data(), tier=st.integers(0, 2))
    def drop(self, data, tier):
        stored = self._draw(data, [s for s in self._objects() if is_evictable(s, tier)])
        if stored is not None:
            key, num_deleted = self.store.names.key_of(stored), len(self.deleted)
            self.store.drop_replica(stored, tier)
            if tier:
                assert (tier, key) in self.deleted[num_deleted:]
            self._forget_gone()

    @rule(data=st.data())
    def forget(self, data):
        stored = self._draw(data, self._objects())
        if stored is not None:
            self.store.forget(stored)
            assert stored.is_gone
            self._forget_gone()

    @rule(data=st.data())
    def touch(self, data):
        stored = self._draw(data, self._objects())
        if stored is not None:
            uses = stored.num_uses
            self.store.touch([stored])
            assert stored.num_uses == uses + 1
            assert stored.last_use_index == max(s.last_use_index for s in self._objects())

    def _forget_gone(self):
        """Reservations of objects that left the tree end with them, unless somebody leases them."""
        self.reserved = [entry for entry in self.reserved if not entry[0].is_gone]

    @invariant()
    def equations_hold(self):
        assert check(self.store) == []
        assert self.store.revision >= self.revision
        self.revision = self.store.revision

    @invariant()
    def sums_are_those_of_the_replicas(self):
        gone = {id(stored): stored for stored, _ in self.leases if stored.is_gone}.values()
        objects = [*self._objects(), *gone]
        for tier, ledger in enumerate(self.store.ledgers, start=1):
            replicas = [s.replicas[tier] for s in objects if s.replicas[tier] is not None]
            assert ledger.used_bytes == sum(r.num_bytes for r in replicas if r.is_valid)
            assert ledger.reserved_bytes == sum(r.num_bytes for r in replicas if not r.is_valid)
        on_device = [s.replicas[DEVICE] for s in objects if s.replicas[DEVICE] is not None]
        assert self.store.private_pages == set(self.private)
        assert self.store.private_slots == set(self.slots)
        num_pages = sum(s.kind == "page" and s.replicas[DEVICE] is not None for s in objects)
        num_images = len(on_device) - num_pages
        assert self.store.pages.num_free == NUM_PAGES - num_pages - len(self.private)
        assert len(self.store.free_slots) == NUM_SLOTS - num_images - len(self.slots)

    @invariant()
    def leases_are_those_that_are_held(self):
        for stored in self._objects():
            for tier, replica in enumerate(stored.replicas):
                held = sum(s is stored and t == tier for s, t in self.leases)
                assert replica is None or replica.leases == held

    @invariant()
    def pages_without_a_future_are_worth_least(self):
        for node in self.store.tree.nodes():
            has_image = any(below.image is not None for below in self.store.tree.subtree(node))
            assert self.store.values.facts_of(node, DEVICE).is_reachable == has_image

    def teardown(self):
        for lease in self.leases:
            self.store.release(*lease)
        self.leases = []
        assert self.store.num_gone_pages == 0
        assert self.store.gone_bytes == [0, 0]


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
