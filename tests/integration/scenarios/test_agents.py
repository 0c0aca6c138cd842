"""Scenarios 1, 7, 9, 10, 12, 15: agents that append, drop, edit and share, on models with and without state."""

import pytest

from tests.integration.scenarios.chat import TOOL, USER, VOCAB, Chat
from tests.integration.scenarios.conversation import (
    Session,
    asked,
    ended,
    engine,
    host,
    tokens,
    with_and_without_state,
)

with_and_without_host = pytest.mark.parametrize("has_host", [False, True], ids=["alone", "host"])
with_and_without_drafts = pytest.mark.parametrize("draft_tokens", [0, 3])


def tiers(*, has_host):
    return [host(400)] if has_host else []


@pytest.mark.parametrize(
    ("has_state", "draft_tokens"), [(False, 0), (True, 0), (True, 3)], ids=["dense", "state", "mtp"]
)
@pytest.mark.parametrize("keeps_thinking", [True, False])
def test_tool_rounds_without_a_new_question_compute_what_is_new(
    has_state, draft_tokens, keeps_thinking
):
    harness = engine(
        40, has_state=has_state, num_slots=6, vocab=VOCAB, num_lanes=1, draft_tokens=draft_tokens
    )
    chat = Chat(harness, "agent", num_system=60)
    chat.say(USER, 30)
    answer = chat.ask(6)
    for _ in range(50):
        chat.hear(answer, num_thinking=3, keeps_thinking=keeps_thinking)
        chat.say(TOOL, 24)
        num_new = len(chat.render()[0]) - len(answer.prompt)
        answer = chat.ask(6)
        assert answer.computed <= num_new + 4
    ended(harness)


@with_and_without_state
@with_and_without_host
def test_a_new_question_reuses_everything_before_the_turn_that_renders_differently(
    has_state, has_host
):
    harness = engine(
        64, *tiers(has_host=has_host), has_state=has_state, num_slots=6, vocab=VOCAB, num_lanes=1
    )
    chat = Chat(harness, "agent", num_system=100)
    previous_end = 0
    for _ in range(4):
        chat.say(USER, 60)
        _, _, question_end = chat.render()
        answer = chat.ask()
        assert answer.cached >= previous_end
        for _ in range(8):
            chat.hear(answer, num_thinking=6)
            chat.say(TOOL, 30)
            answer = chat.ask()
        chat.hear(answer, num_thinking=6)
        previous_end = question_end
    ended(harness)


@with_and_without_state
@with_and_without_drafts
@pytest.mark.parametrize("keeps_thinking", [True, False])
def test_a_dropped_answer_that_is_sent_back_with_an_instruction_reuses_nearly_all(
    has_state, draft_tokens, keeps_thinking
):
    harness = engine(64, has_state=has_state, vocab=VOCAB, draft_tokens=draft_tokens)
    chat = Chat(harness, "long")
    chat.say(USER, 2000)
    answer = chat.submit(200)
    while len(answer.tokens) < 25:
        harness.step()
    harness.scheduler.abort(answer.id)
    chat.hear(answer, num_thinking=10, keeps_thinking=keeps_thinking)
    chat.say(TOOL, 20)
    again = chat.ask()
    assert again.cached >= 0.95 * len(again.prompt)
    assert again.finished.stats.reuse_path != "root"
    ended(harness)


@with_and_without_state
def test_a_prompt_dropped_half_way_is_reused_as_far_as_it_was_computed(has_state):
    harness = engine(64, has_state=has_state, vocab=VOCAB, chunk=128)
    chat = Chat(harness, "long")
    chat.say(USER, 2000)
    answer = chat.submit()
    for _ in range(12):
        harness.step()
    (lane,) = harness.scheduler.lanes.values()
    num_computed = lane.num_computed
    harness.scheduler.abort(answer.id)
    assert num_computed > 500
    assert chat.ask().cached >= num_computed - 1
    ended(harness)


@with_and_without_state
def test_a_request_dropped_while_it_waits_costs_the_next_nothing(has_state):
    harness = engine(64, has_state=has_state, vocab=VOCAB, num_lanes=1)
    chat = Chat(harness, "long")
    chat.say(USER, 1000)
    answer = chat.ask()
    chat.hear(answer)
    chat.say(USER, 20)
    running = harness.submit(tokens("other", 30), 30)
    harness.step()
    waiting = chat.submit()
    harness.scheduler.abort(waiting.id)
    harness.run(running)
    assert chat.ask().cached >= 1000
    ended(harness)


@pytest.mark.parametrize("num_slots", [2, 5])
@with_and_without_host
@with_and_without_drafts
def test_the_resume_point_of_an_agent_that_appends_advances_in_every_turn(
    num_slots, has_host, draft_tokens
):
    harness = engine(
        100,
        *tiers(has_host=has_host),
        has_state=True,
        num_slots=num_slots,
        num_lanes=1,
        draft_tokens=draft_tokens,
    )
    session = Session(harness, "appends", 100)
    for _ in range(60):
        end = len(session.tokens)
        answer = session.turn(40)
        if session.num_turns > 1:
            assert answer.cached >= end - 1
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("num_tokens", [300, 1600])
def test_a_sibling_with_the_same_system_part_and_tools_reuses_all_of_it(has_state, num_tokens):
    harness = engine(64, host(200), has_state=has_state, vocab=VOCAB)
    first, second = Chat(harness, "A"), Chat(harness, "B")
    system = Chat(harness, "shared", num_system=num_tokens).messages
    for chat in (first, second):
        chat.messages += system
        chat.say(USER, 50)
    first.ask()
    assert second.ask().cached >= 0.98 * num_tokens
    ended(harness)


@pytest.mark.parametrize("num_taken", [100, 300, 700])
def test_with_state_and_no_lower_tier_a_side_request_costs_at_most_twice_its_pages(num_taken):
    harness = engine(32, has_state=True, num_lanes=1)
    session = Session(harness, "long", 1900)
    session.turn(0)
    asked(harness, tokens("side", 50), num_taken - 50)
    num_pages = -(-num_taken // 64) + 2
    answer = session.turn()
    assert answer.cached >= 1900 - 2 * num_pages * 64 - 128
    ended(harness)


@pytest.mark.parametrize("num_tokens", [700, 1900])
def test_an_edit_deep_in_history_loses_at_most_half_of_the_distance(num_tokens):
    harness = engine(80, host(400), has_state=True, num_slots=40)
    prompt = tokens("long", num_tokens)
    asked(harness, prompt)
    for edit in (num_tokens - 100, num_tokens * 3 // 4, num_tokens // 2, num_tokens // 3, 140):
        answer = asked(harness, [*prompt[:edit], 51, *tokens(edit, 30)], 2, cache=True)
        lost = edit - answer.cached
        assert lost <= max(edit / 2, 64)
        assert lost <= num_tokens - edit + 2 * 128
    ended(harness)


def test_rungs_of_long_prompts_do_not_push_the_ends_of_other_sessions_out():
    harness = engine(100, has_state=True, num_slots=8, num_lanes=1)
    sessions = [Session(harness, name, 200) for name in "AB"]
    for session in sessions:
        session.turn(0)
    asked(harness, tokens("long", 3000), 2)
    for session in sessions:
        assert session.turn().cached >= 200
    ended(harness)
