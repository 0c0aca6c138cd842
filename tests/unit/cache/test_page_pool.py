"""Page pool against a set of free pages."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ninfer.api.errors import InvariantBroken
from ninfer.cache.page_pool import PagePool, to_runs

NUM_PAGES = 24


class PagePoolMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.free = set(range(NUM_PAGES))
        self.taken = []

    @rule(num_pages=st.integers(0, NUM_PAGES))
    def allocate(self, num_pages):
        if num_pages > len(self.free):
            with pytest.raises(InvariantBroken):
                self.pool.allocate(num_pages)
            return
        extents = to_runs(sorted(self.free))
        fitting = [length for _, length in extents if length >= num_pages]
        pages = self.pool.allocate(num_pages)
        assert len(pages) == num_pages
        assert self.free.issuperset(pages)
        if fitting and num_pages:
            assert len(to_runs(pages)) == 1, "an extent held it whole"
            first = next(start for start, length in extents if length == min(fitting))
            assert pages[0] == first, "the smallest that holds it"
        self.free.difference_update(pages)
        self.taken += pages

    @rule(data=st.data())
    def free_some(self, data):
        if self.taken:
            pages = data.draw(st.lists(st.sampled_from(self.taken), unique=True))
            self.pool.free(pages)
            self.free.update(pages)
            self.taken = [page for page in self.taken if page not in self.free]

    @rule(page=st.integers(-2, NUM_PAGES + 2))
    def free_what_is_not_taken(self, page):
        if page not in self.taken:
            with pytest.raises(InvariantBroken):
                self.pool.free([page])

    @invariant()
    def agrees(self):
        assert self.pool.check() == []
        assert self.pool.num_free == len(self.free)
        assert {page for page in range(NUM_PAGES) if self.pool.is_free(page)} == self.free


TestPagePool = PagePoolMachine.TestCase
TestPagePool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_runs_of_a_table_keep_its_order():
    assert to_runs([3, 4, 5, 1, 7, 8]) == ((3, 3), (1, 1), (7, 2))
    assert to_runs([]) == ()
