"""Scenarios 1, 2, 3, 6: long sessions that do not fit together come back from slower tiers."""

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


@with_and_without_state
def test_a_side_request_with_a_large_reservation_leaves_the_long_session_alone(has_state):
    harness = engine(32, host(100), has_state=has_state, num_lanes=1)
    session = Session(harness, "long", 1900)
    session.turn(0)
    asked(harness, tokens("side", 50), 300)
    answer = session.turn()
    assert answer.cached >= 0.99 * 1900
    ended(harness)


def test_without_a_lower_tier_a_side_request_takes_no_more_than_its_own_pages():
    harness = engine(32, num_lanes=1)
    session = Session(harness, "long", 1900)
    session.turn(0)
    num_pages = -(-350 // 64)
    asked(harness, tokens("side", 50), 300)
    answer = session.turn()
    assert answer.cached >= 1900 - (num_pages + 1) * 64
    ended(harness)


@with_and_without_state
def test_two_sessions_that_alternate_on_a_device_for_one_compute_only_what_is_new(has_state):
    harness = engine(32, host(100), has_state=has_state, num_lanes=2)
    pair = [Session(harness, name, 1200) for name in "AB"]
    for session in pair:
        session.turn(0)
    for _ in range(5):
        for session in pair:
            answer = session.turn()
            assert answer.computed <= 20 + 1
            assert answer.finished.stats.restored_bytes["t1"] > 0
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("writes_ahead", [True, False], ids=["ahead", "under-pressure"])
def test_six_contexts_in_rotation_never_start_from_root(has_state, writes_ahead):
    harness = engine(40, host(150), has_state=has_state, num_lanes=2)
    if not writes_ahead:
        harness.policy.wants_copy = lambda facts, target: False
    sessions = [Session(harness, number, 1000) for number in range(6)]
    for session in sessions:
        session.turn(0)
    for _ in range(3):
        for session in sessions:
            answer = session.turn()
            assert answer.computed <= 64
            assert answer.finished.stats.reuse_path != "root"
    ended(harness)


@with_and_without_state
def test_sessions_that_grow_together_and_cold_side_agents_all_resume(has_state):
    harness = engine(64, host(400), has_state=has_state, num_lanes=4)
    sessions = [Session(harness, number, 50) for number in range(4)]
    for session in sessions:
        session.turn(0)
    for _ in range(7):
        for session in sessions:
            assert session.turn(100).computed <= 101
    for session in sessions:
        for number in range(2):
            assert asked(harness, tokens(f"sub {session.seed} {number}", 400)).cached <= 3
    for session in sessions:
        assert session.turn().computed <= 21
    ended(harness)
