"""Retention with a clock that the tests move: what is promised, what budgets bound, what expiry does."""

import random

import pytest

from ninfer.core.retention import Retention, RetentionMode
from ninfer.testing.clock import FakeClock
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

IMAGE = PAGE_BYTES + 340
"""Bytes of a page on a lower tier, its header included."""


def prompt_of(number, num_tokens=200):
    rng = random.Random(number)
    return [rng.randrange(50) for _ in range(num_tokens)]


def engine(tiers=(), **options):
    options = {"num_pages": 20, "num_lanes": 1, "vocab": 50, "clock": FakeClock()} | options
    return Harness(tiers=[DictTier(pages * IMAGE) for pages in tiers], **options)


def soft(seconds):
    return Retention(seconds=seconds)


def strict(seconds):
    return Retention(seconds=seconds, mode=RetentionMode.STRICT)


def press(harness, first, count):
    """So many other contexts, each used twice, so that no order of use or frequency favours the old one."""
    for number in range(first, first + count):
        for _ in range(2):
            harness.ask(prompt_of(number), 2)


def cached(harness, number):
    """Tokens that the next turn of a conversation takes from the cache."""
    first = prompt_of(number)
    answer = harness.ask([*first, *harness.device.mind.cold(first, 2, ()), 1], 1)
    assert answer.tokens == harness.cold(answer)
    return answer.cached


@pytest.mark.parametrize("tiers", [(), (12,), (8, 24)])
@pytest.mark.parametrize("has_state", [False, True])
def test_a_retained_context_outlives_any_pressure_and_one_that_is_not_does_not(tiers, has_state):
    for wish, is_kept in ((soft(1000.0), True), (None, False)):
        harness = engine(tiers, has_state=has_state, num_slots=8 if has_state else 0)
        answer = harness.ask(prompt_of(0), 2, keep=wish)
        assert answer.finished.stats.retention_s == (1000.0 if wish else 0.0)
        press(harness, 1, 25)
        assert (cached(harness, 0) >= 200) == is_kept
        harness.check_drained()
        harness.close()


def test_when_the_time_is_over_a_context_is_ordinary_and_not_deleted():
    harness = engine()
    harness.ask(prompt_of(0), 2, keep=soft(100.0))
    harness.clock.advance(101.0)
    harness.step()
    assert harness.store.retentions.protected_bytes == [0]
    assert cached(harness, 0) >= 200, "expiry deletes nothing"
    press(harness, 1, 25)
    assert cached(harness, 0) < 64
    harness.close()


def test_a_hit_refreshes_and_nothing_shortens_a_deadline():
    harness = engine()
    harness.ask(prompt_of(0), 2, keep=soft(100.0))
    harness.clock.advance(90.0)
    assert cached(harness, 0) >= 200
    harness.ask(prompt_of(0), 2, keep=soft(1.0))
    harness.clock.advance(90.0)
    press(harness, 1, 25)
    assert cached(harness, 0) >= 200
    harness.close()


def test_what_is_over_budget_degrades_softly_and_says_so():
    harness = engine(num_pages=20)
    granted = [
        harness.ask(prompt_of(n), 2, keep=soft(1000.0)).finished.stats.retention_s for n in range(6)
    ]
    # Four pages each, ten of twenty may be protected.
    assert granted == [1000.0, 1000.0, 0.0, 0.0, 0.0, 0.0]
    press(harness, 10, 20)
    assert [cached(harness, n) >= 200 for n in (0, 1)] == [True, True]
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize("tiers", [(8, 24), (16,), (8, 16, 12)])
@pytest.mark.parametrize("has_state", [False, True])
def test_the_room_of_one_tier_is_promised_once_wherever_contexts_are_now(tiers, has_state):
    harness = engine(tiers, has_state=has_state, num_slots=8 if has_state else 0)
    granted = []
    for number in range(12):
        stats = harness.ask(prompt_of(number), 2, keep=soft(1000.0)).finished.stats
        granted += [number] * (stats.retention_s > 0)
        press(harness, 100 + 3 * number, 1)
    assert 1 <= len(granted) < 12
    press(harness, 200, 20)
    assert [cached(harness, number) >= 192 for number in granted] == [True] * len(granted)
    harness.check_drained()
    harness.close()


def test_protected_contexts_cannot_keep_a_request_from_starting():
    harness = engine(num_pages=20)
    for number in range(6):
        harness.ask(prompt_of(number), 2, keep=soft(1000.0))
    answer = harness.ask(prompt_of(50, 1200), 2)
    assert answer.tokens == harness.cold(answer)
    harness.check_drained()
    harness.close()


def test_strict_needs_a_tier_below_with_room_and_then_holds():
    alone = engine()
    assert alone.ask(prompt_of(0), 2, keep=strict(50.0)).finished.stats.retention_s == 0.0
    alone.close()
    harness = engine((12,))
    granted = [
        harness.ask(prompt_of(n), 2, keep=strict(1000.0)).finished.stats.retention_s
        for n in range(3)
    ]
    # Six of twelve pages may be protected: one context of four.
    assert granted == [1000.0, 0.0, 0.0]
    press(harness, 10, 25)
    answer = harness.ask(prompt_of(60, 1200), 2)
    assert answer.tokens == harness.cold(answer)
    assert cached(harness, 0) >= 200
    harness.clock.advance(2001.0)
    press(harness, 40, 25)
    assert cached(harness, 0) < 64
    harness.check_drained()
    harness.close()


def test_the_strict_promise_outlives_a_retained_crowd():
    harness = engine((24,))
    assert harness.ask(prompt_of(0), 2, keep=strict(1000.0)).finished.stats.retention_s == 1000.0
    for number in range(1, 30):
        harness.ask(prompt_of(number), 2, keep=soft(1000.0))
    assert cached(harness, 0) >= 200
    harness.close()


def test_a_tier_that_fails_turns_a_strict_promise_into_a_soft_one():
    harness = engine((12,))
    harness.tiers[0].refuses = True
    harness.ask(prompt_of(0), 2, keep=strict(1000.0))
    harness.settle()
    assert all(node.strict_tier == 0 for node in harness.store.tree.nodes())
    assert cached(harness, 0) >= 200
    harness.check_drained()
    harness.close()


def test_a_restart_keeps_deadlines_and_a_smaller_tier_keeps_what_is_retained():
    harness = engine((40,))
    harness.ask(prompt_of(0), 2, keep=soft(1000.0))
    for number in range(1, 7):
        harness.ask(prompt_of(number), 2)
    harness.settle()
    harness.flush()
    harness.close()
    images, clock = harness.tiers[0].images, harness.clock
    smaller = DictTier(10 * IMAGE)
    smaller.images = images
    again = Harness(tiers=[smaller], num_pages=20, num_lanes=1, vocab=50, clock=clock)
    press(again, 20, 25)
    assert cached(again, 0) >= 200
    again.check_drained()
    again.close()


def test_usage_says_what_came_from_which_tier():
    harness = engine((40,))
    harness.ask(prompt_of(0), 2)
    press(harness, 1, 8)
    answer = harness.ask([*prompt_of(0), 1], 1)
    restored = answer.finished.stats.restored_tokens
    assert restored["t1"] == answer.cached
    harness.close()
