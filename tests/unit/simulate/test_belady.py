"""Belady's optimum against brute force over everything a cache could keep."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.simulate.belady import belady_hits
from ninfer.simulate.trace import TraceRequest


def requests_of(paths):
    """Make requests of paths in a tree: equal beginnings are equal blocks."""
    numbers = {}
    for path in paths:
        blocks = tuple(
            numbers.setdefault(path[: depth + 1], len(numbers)) for depth in range(len(path))
        )
        yield TraceRequest(
            time_s=0.0,
            blocks=blocks,
            num_prompt_tokens=len(blocks) * 512,
        )


def subsets(items):
    found = [frozenset()]
    for item in items:
        found += [subset | {item} for subset in found]
    return found


def best_by_trying_everything(requests, capacity):
    @cache
    def best(number, held):
        if number == len(requests):
            return 0
        blocks = requests[number].blocks
        hits = next((n for n, block in enumerate(blocks) if block not in held), len(blocks))
        return hits + max(
            best(number + 1, kept) for kept in subsets(held | set(blocks)) if len(kept) <= capacity
        )

    return best(0, frozenset())


paths = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(paths, st.integers(1, 5))
def test_nothing_serves_more_than_belady_and_belady_serves_that(paths, capacity):
    requests = tuple(requests_of(paths))
    hits = belady_hits(requests, capacity)
    assert sum(hits) == best_by_trying_everything(requests, capacity)


def test_what_is_needed_next_is_kept_and_a_long_request_leaves_what_fits():
    requests = tuple(requests_of(["a", "b", "a", "cde", "a", "b", "cde"]))
    assert belady_hits(requests, 0) == [0] * 7
    assert belady_hits(requests, 1) == [0, 0, 1, 0, 1, 0, 0]
    assert belady_hits(requests, 2) == [0, 0, 1, 0, 1, 1, 0]
    assert belady_hits(requests, 3) == [0, 0, 1, 0, 1, 1, 1]
    assert belady_hits(requests, 5) == [0, 0, 1, 0, 1, 1, 3]
