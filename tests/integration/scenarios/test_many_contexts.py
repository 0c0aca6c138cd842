"""Scenarios 5, 14, 16: more contexts than there is room for."""

import pytest

from tests.integration.scenarios.conversation import (
    Session,
    asked,
    ended,
    engine,
    host,
    tokens,
    with_and_without_state,
)


def newest_first(harness, contexts):
    """How much of each context a continuation finds, newest context first."""
    return [asked(harness, [*context, 1], 1).cached for context in reversed(contexts)]


@with_and_without_state
@pytest.mark.parametrize("host_pages", [0, 60])
def test_the_newest_contexts_are_kept_without_holes_twice_on_one_server(has_state, host_pages):
    harness = engine(64, *([host(host_pages)] if host_pages else []), has_state=has_state)
    num_kept_at_least = 6 + (3 if host_pages else 0)
    for number in range(2):
        contexts = [tokens(f"{number} {index}", 500) for index in range(13)]
        for context in contexts:
            asked(harness, context, 4)
        found = newest_first(harness, contexts)
        kept = [cached >= 499 for cached in found]
        assert all(kept[:num_kept_at_least]), found
        assert not any(kept[kept.index(False) :]), found
    ended(harness)


@with_and_without_state
def test_all_contexts_are_kept_where_a_lower_tier_has_room(has_state):
    harness = engine(64, host(300), has_state=has_state)
    for number in range(2):
        contexts = [tokens(f"{number} {index}", 500) for index in range(13)]
        for context in contexts:
            asked(harness, context, 4)
        assert min(newest_first(harness, contexts)) >= 499
    ended(harness)


@with_and_without_state
def test_device_and_host_together_hold_different_contexts_not_the_same_twice(has_state):
    harness = engine(64, host(60), has_state=has_state)
    contexts = [tokens(index, 500) for index in range(9)]
    for context in contexts:
        asked(harness, context, 4)
    assert min(newest_first(harness, contexts)) >= 499
    ended(harness)


@with_and_without_state
def test_the_second_pass_over_many_prompts_comes_from_the_cache(has_state):
    harness = engine(40, host(39 * 7 - 20), has_state=has_state)
    prompts = [tokens(index, 310) for index in range(39)]
    for prompt in prompts:
        asked(harness, prompt, 3)
    assert sum(asked(harness, prompt, 3).cached for prompt in prompts) >= 0.98 * 39 * 310
    ended(harness)


@with_and_without_state
def test_no_admission_frees_more_than_it_needs_and_one_unit(has_state):
    harness = engine(64, host(39 * 10), has_state=has_state)
    for index in range(16):
        num_free = harness.store.pages.num_free
        answer = harness.submit(tokens(index, 500), 4)
        while answer.cached is None:
            harness.step()
        need = 8
        assert harness.store.pages.num_free <= max(num_free - need, 1 if has_state else 0)
        harness.run(answer)
    ended(harness)


@with_and_without_state
def test_the_newest_conversation_is_reusable_however_many_came_before(has_state):
    harness = engine(12, host(20), has_state=has_state, num_slots=5)
    for number in range(50):
        session = Session(harness, number, 60 + number % 40)
        session.turn(0, 3)
        answer = session.turn(5, 3)
        assert answer.computed <= 6, number
    assert len(list(harness.store.tree.nodes())) <= 12 + 21 * 3
    ended(harness)


def test_every_tenant_ever_seen_leaves_nothing_behind():
    harness = engine(8)
    for number in range(60):
        asked(harness, tokens(number, 70), 2, salt=f"tenant {number}")
        asked(harness, tokens(number, 70), 2, salt=f"tenant {number}", cache=False)
    live = {node.domain for node in harness.store.tree.nodes() if node.parent.is_root}
    assert len(live) <= 8
    ended(harness)
