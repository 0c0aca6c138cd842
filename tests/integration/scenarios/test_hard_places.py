"""Scenarios 25, 31, 32, 37, 39: hardly any room, long runs, requests that leave nothing or never fit."""

import random

import pytest

from ninfer.core.errors import RequestInfeasible
from tests.integration.scenarios.conversation import (
    Session,
    asked,
    checked,
    ended,
    engine,
    host,
    tokens,
    with_and_without_state,
)


@pytest.mark.parametrize("num_slots", [1, 2, 3])
def test_with_room_for_hardly_any_state_image_everything_still_runs(num_slots):
    harness = engine(16, has_state=True, num_slots=num_slots, num_lanes=1)
    sessions = [Session(harness, name, 150) for name in "AB"]
    for _ in range(3):
        for session in sessions:
            session.turn()
    if num_slots > 1:
        assert sessions[1].turn().computed <= 21
    ended(harness)


def test_with_more_lanes_than_state_slots_requests_take_turns():
    harness = engine(40, has_state=True, num_slots=2, num_lanes=4)
    checked(harness, *[harness.submit(tokens(number, 150), 8) for number in range(6)])
    ended(harness)


@with_and_without_state
def test_a_conversation_that_fills_the_device_to_its_last_page_can_go_on(has_state):
    harness = engine(4, has_state=has_state, num_slots=2, num_lanes=1)
    prompt = tokens("full", 200)
    for _ in range(3):
        asked(harness, prompt, 4 * 64 - 200)
    ended(harness)


@with_and_without_state
def test_a_long_cache_hit_beside_a_busy_lane_sees_no_foreign_token(has_state):
    harness = engine(30, host(60), has_state=has_state, num_lanes=2)
    rng = random.Random(7)
    long = tokens("long", 1000)
    asked(harness, long, 2)
    for number in range(12):
        busy = harness.submit(tokens(f"busy {number}", rng.randint(20, 500)), rng.randint(1, 30))
        hit = harness.submit([*long, number], rng.randint(1, 30))
        checked(harness, busy, hit)
    assert hit.cached >= 999
    ended(harness)


@with_and_without_state
def test_a_request_that_can_never_fit_is_refused_at_once_with_the_numbers(has_state):
    harness = engine(10, has_state=has_state)
    with pytest.raises(RequestInfeasible, match="704 tokens.*600 of prompt, 41 of completion.*640"):
        harness.submit(tokens("large", 600), 41)
    assert not harness.scheduler.has_work
    checked(harness, harness.submit(tokens("fits", 600), 40))
    ended(harness)


@with_and_without_state
def test_a_request_without_cache_reads_nothing_and_leaves_nothing(has_state):
    tier = host(100)
    harness = engine(24, tier, has_state=has_state)
    prompt = tokens("prompt", 300)
    assert asked(harness, prompt, cache=False, markers=[100]).cached == 0
    harness.settle()
    assert not list(harness.store.tree.nodes())
    assert not tier.images
    assert harness.store.pages.num_free == 24
    asked(harness, prompt)
    num_nodes = len(list(harness.store.tree.nodes()))
    assert asked(harness, prompt, cache=False).cached == 0
    assert len(list(harness.store.tree.nodes())) == num_nodes
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("num_lanes", [2, 3])
def test_requests_that_could_each_hold_half_of_what_the_other_needs_all_finish(
    has_state, num_lanes
):
    harness = engine(8, has_state=has_state, num_slots=4, num_lanes=num_lanes)
    answers = [harness.submit(tokens(number, 200), 120) for number in range(4)]
    checked(harness, *answers)
    ended(harness)


@with_and_without_state
def test_requests_that_restore_at_the_same_time_all_finish(has_state):
    harness = engine(20, host(100), has_state=has_state)
    sessions = [Session(harness, number, 600) for number in range(4)]
    for session in sessions:
        session.turn(0)
    for _ in range(3):
        answers = [harness.submit(session.prompt(), 6) for session in sessions]
        checked(harness, *answers)
        assert [answer.computed <= 21 for answer in answers] == [True] * 4
        for session, answer in zip(sessions, answers, strict=True):
            session.tokens = [*answer.prompt, *answer.tokens]
    ended(harness)


def test_two_requests_for_one_stored_prefix_restore_it_once():
    harness = engine(24, host(100))
    head = tokens("head", 640)
    asked(harness, head)
    for number in range(2):
        asked(harness, tokens(number, 1300))
    pair = checked(harness, *[harness.submit([*head, number, 5], 4) for number in range(2)])
    assert [answer.cached for answer in pair] == [640, 640]
    restored = [answer.finished.stats.restored_bytes.get("t1", 0) for answer in pair]
    assert restored[1] == 0
    ended(harness)
