"""What is written to a tier: never more than its budget, and nothing that nobody came back to in place of what was used."""

import random

import pytest

from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.cache.tier_writes import IDLE_S
from ninfer.testing.clock import FakeClock
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.integration.scenarios.test_retention import IMAGE, soft, strict

VOCAB = 4000
"""So many that no two prompts begin with the same token: that would be a use of a first page."""
PAGES = 4
"""Pages of one context of these tests."""
with_and_without_state = pytest.mark.parametrize("has_state", [False, True])


def prompt_of(number):
    rng = random.Random(number)
    return [number, *(rng.randrange(VOCAB) for _ in range(199))]


def engine(*tiers, has_state=False, clock=None, **rules):
    return Harness(
        tiers=[DictTier(pages * IMAGE) for pages in tiers],
        num_pages=20,
        num_lanes=1,
        vocab=VOCAB,
        has_state=has_state,
        num_slots=8 if has_state else 0,
        clock=clock or FakeClock(),
        rules=WriteRules(**rules),
    )


def ask(harness, number, **more):
    answer = harness.ask(prompt_of(number), 2, **more)
    assert answer.tokens == harness.cold(answer)
    harness.settle()
    return answer.cached


def written(harness):
    return harness.handles[-1].counters.num_written


def writes(harness):
    return harness.manager.writes[-1]


def done(harness):
    harness.check_drained()
    harness.close()


# ---- write budget -----------------------------------------------------------------------------------


@with_and_without_state
@pytest.mark.parametrize("tiers", [(400,), (12, 400)])
def test_no_more_is_written_than_the_budget_says_and_the_rest_goes_on_without_the_tier(
    tiers, has_state
):
    clock, day = FakeClock(), 200 * IMAGE
    harness = engine(*tiers, has_state=has_state, clock=clock, max_bytes_per_day=day)
    for number in range(30):
        ask(harness, number)
    # The burst, an eighth of a day, and no time passed.
    put_bytes = sum(len(h) + len(p) for h, p in harness.tiers[-1].images.values())
    assert day / 8 - 2 * IMAGE <= put_bytes <= day / 8
    assert harness.handles[-1].counters.num_full == 0, "the tier was not even asked"
    assert writes(harness).num_over_budget > 0
    assert writes(harness).over_budget_bytes >= writes(harness).num_over_budget * 300
    if len(tiers) > 1:
        assert harness.handles[0].counters.num_written > 40, "other tiers are not affected"
    before = written(harness)
    clock.advance(86_400.0)
    for number in range(40, 60):
        ask(harness, number)
    assert written(harness) > before
    done(harness)


def test_over_budget_victims_go_to_the_next_tier():
    harness = Harness(
        tiers=[DictTier(100 * IMAGE), DictTier(400 * IMAGE)],
        num_pages=20,
        num_lanes=1,
        vocab=VOCAB,
        clock=FakeClock(),
    )
    harness.manager.writes[0].budget.__init__(
        harness.clock, bytes_per_s=0, bytes_per_day=1, largest_bytes=1
    )
    for number in range(20):
        ask(harness, number)
    assert harness.handles[0].counters.num_written == 0
    assert harness.handles[1].counters.num_written > 40
    assert [ask(harness, number) >= 192 for number in range(20)] == [True] * 20
    done(harness)


def test_a_strict_promise_needs_a_budget_for_all_of_it_and_is_then_kept_over_budget():
    clock = FakeClock()
    harness = engine(100, clock=clock, max_bytes_per_day=8 * 6 * IMAGE)
    keep = strict(1000.0)
    granted = harness.ask(prompt_of(0), 2, keep=keep).finished.stats.retention_s
    harness.settle()
    assert granted == 1000.0
    assert written(harness) == PAGES
    refused = harness.ask(prompt_of(1), 2, keep=keep).finished.stats.retention_s
    assert refused == 0.0, "two images are left of the burst of six"
    for number in range(2, 30):
        ask(harness, number)
        ask(harness, number)
    assert ask(harness, 0) >= 192
    done(harness)


# ---- filter -----------------------------------------------------------------------------------------


def filled(**options):
    """A disk that is nearly full of contexts that somebody came back to."""
    harness = engine(40, **options)
    for number in range(7):
        for _ in range(2):
            ask(harness, number)
    return harness


@with_and_without_state
def test_one_time_contexts_do_not_displace_what_was_used_again(has_state):
    written_bytes, num_kept = {}, {}
    for kind in (WriteFilter.REUSED, WriteFilter.ALL):
        harness = filled(filter=kind, has_state=has_state)
        before = harness.handles[-1].counters.written_bytes
        for number in range(100, 150):
            ask(harness, number)
        written_bytes[kind] = harness.handles[-1].counters.written_bytes - before
        num_kept[kind] = sum(ask(harness, number) >= 192 for number in range(7))
        assert (writes(harness).num_one_time >= 50) == (kind is WriteFilter.REUSED)
        done(harness)
    assert written_bytes[WriteFilter.REUSED] < written_bytes[WriteFilter.ALL] / 4
    assert num_kept == {WriteFilter.REUSED: 7, WriteFilter.ALL: 0}


def test_one_time_contexts_take_the_place_of_what_was_idle_for_a_while():
    harness = filled(filter=WriteFilter.IDLE)
    for number in range(100, 130):
        ask(harness, number)
    assert [ask(harness, number) >= 192 for number in range(7)] == [True] * 7
    for number in range(130, 136):
        ask(harness, number)
    harness.clock.advance(IDLE_S + 1.0)
    before = written(harness)
    for number in range(200, 230):
        ask(harness, number)
    assert written(harness) - before >= 28
    assert ask(harness, 0) < 64, "idle contexts are gone,"
    assert ask(harness, 201) >= 192, "and what came first in their place stays: it is not idle yet"
    done(harness)


def test_nothing_is_kept_away_while_there_is_room():
    """65 contexts, each asked twice: all of the second round comes from the cache."""
    harness = engine(65 * PAGES, filter=WriteFilter.REUSED)
    for number in range(65):
        ask(harness, number)
    assert writes(harness).num_one_time == 0
    assert [ask(harness, number) >= 192 for number in range(65)] == [True] * 65
    done(harness)


def test_a_context_that_comes_back_after_it_was_given_up_is_let_in():
    harness = filled(filter=WriteFilter.REUSED)
    for _ in range(2):
        ask(harness, 300)
        for number in range(400, 408):
            ask(harness, number)
    harness.clock.advance(10.0)
    assert ask(harness, 300) >= 192
    done(harness)


def test_what_is_retained_counts_as_used():
    harness = filled(filter=WriteFilter.REUSED)
    ask(harness, 300, keep=soft(1000.0))
    for number in range(400, 420):
        ask(harness, number)
    assert ask(harness, 300) >= 192
    done(harness)


def test_a_short_budget_is_left_to_what_was_used():
    clock = FakeClock()
    harness = engine(1000, clock=clock, filter=WriteFilter.REUSED, max_bytes_per_day=8 * 40 * IMAGE)
    for number in range(30):
        ask(harness, number)
    # Half of the burst of 40 images.
    assert 20 <= written(harness) <= 22
    assert writes(harness).num_one_time > 0
    assert writes(harness).num_over_budget == 0
    before = written(harness)
    for number in range(200, 203):
        for _ in range(2):
            ask(harness, number)
    for number in range(300, 306):
        ask(harness, number)
    assert written(harness) - before >= 2 * PAGES
    done(harness)
