"""Victim order against a sorted list."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ninfer.cache.node import PageNode, Replica
from ninfer.cache.victims import VictimHeap


class VictimMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.eligible = {}
        self.heap = VictimHeap(lambda stored: self.eligible[stored])
        self.entries = []
        """(value, order of pushing, object): one per object that counts"""
        self.num_pushed = 0

    @rule(value=st.integers(0, 5), times=st.integers(1, 40))
    def push_new(self, value, times):
        for _ in range(times):
            stored = PageNode(None, b"", num_tiers=1, now_s=0.0, use_index=0)
            stored.replicas[0] = Replica(location=0, num_bytes=0, is_valid=True)
            self.eligible[stored] = True
            self._push(stored, value)

    def _push(self, stored, value):
        self.num_pushed += 1
        self.eligible[stored] = True
        self.heap.push(stored, stored.replicas[0], float(value))
        self.entries = [entry for entry in self.entries if entry[2] is not stored]
        self.entries.append((float(value), self.num_pushed, stored))

    @rule(data=st.data(), value=st.integers(0, 5))
    def value_anew(self, data, value):
        if self.eligible:
            at = data.draw(st.integers(0, len(self.eligible) - 1))
            self._push(list(self.eligible)[at], value)

    @rule(data=st.data())
    def lease(self, data):
        """An entry met while its object may not go is forgotten: whoever frees it offers it again."""
        if self.entries:
            at = data.draw(st.integers(0, len(self.entries) - 1))
            stored = self.entries[at][2]
            self.eligible[stored] = False
            self.entries = [entry for entry in self.entries if entry[2] is not stored]

    @rule(does_return=st.booleans())
    def pop(self, does_return):
        entry = self.heap.pop()
        expected = min(self.entries, default=None, key=lambda entry: entry[:2])
        if expected is None:
            assert entry is None
            return
        assert entry[:3] == expected
        if does_return:
            self.heap.put_back(entry)
        else:
            self.entries.remove(expected)

    @rule()
    def pop_all(self):
        popped = []
        while (entry := self.heap.pop()) is not None:
            popped.append(entry[:3])
        assert popped == sorted(self.entries, key=lambda entry: entry[:2])
        self.entries = []


TestVictims = VictimMachine.TestCase
TestVictims.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
