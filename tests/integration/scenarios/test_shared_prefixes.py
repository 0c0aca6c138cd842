"""Scenarios 11, 12, 19, 24, 26: the same tokens again, shared heads, forks, and names that collide."""

import pytest

from tests.integration.scenarios.conversation import (
    asked,
    checked,
    ended,
    engine,
    host,
    tokens,
    with_and_without_state,
)


@with_and_without_state
@pytest.mark.parametrize("num_tokens", [1, 2, 63, 64, 65, 127, 128, 129, 500, 640])
def test_the_identical_prompt_again_computes_one_token(has_state, num_tokens):
    harness = engine(24, has_state=has_state)
    prompt = tokens(num_tokens, num_tokens)
    assert asked(harness, prompt).cached == 0
    for _ in range(3):
        assert asked(harness, prompt).cached == num_tokens - 1
    ended(harness)


@pytest.mark.parametrize("num_tokens", [100, 640, 1000])
def test_the_second_sibling_reuses_the_whole_shared_head(num_tokens):
    harness = engine(64, host(200))
    head = tokens("head", num_tokens)
    asked(harness, [*head, 1, *tokens("a", 50)])
    assert asked(harness, [*head, 2, *tokens("b", 50)]).cached == num_tokens
    ended(harness)


@pytest.mark.parametrize("num_tokens", [100, 640, 1000])
def test_with_state_the_second_sibling_reuses_the_head_that_the_template_marks(num_tokens):
    harness = engine(64, host(200), has_state=True)
    head = tokens("head", num_tokens)
    asked(harness, [*head, 1, *tokens("a", 50)], markers=[num_tokens])
    assert asked(harness, [*head, 2, *tokens("b", 50)]).cached == num_tokens
    ended(harness)


def test_with_state_and_without_marks_the_third_sibling_reuses_the_shared_head():
    harness = engine(64, host(200), has_state=True)
    head = tokens("head", 1000)
    answers = [asked(harness, [*head, number, *tokens(number, 50)]) for number in range(4)]
    assert [answer.cached >= 1000 - 63 for answer in answers] == [False, False, True, True]
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("num_pages", [12, 16, 40])
def test_forks_of_one_conversation_answer_as_if_each_were_alone(has_state, num_pages):
    harness = engine(num_pages, host(200), has_state=has_state)
    first = tokens("A", 600)
    second = [*first[:300], *tokens("B", 300)]
    third = [*first[:450], *tokens("C", 100)]
    for prompt in (first, second, third, first, second, third, first):
        answer = asked(harness, prompt, 8)
    assert answer.cached == 599
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("offset", [1, 40, 63])
def test_children_that_fork_inside_a_page_do_not_see_each_other(has_state, offset):
    harness = engine(24, has_state=has_state, num_lanes=3)
    parent = tokens("parent", 64 + offset)
    asked(harness, parent, 0)
    children = [harness.submit([*parent, number, 7], 70) for number in range(3)]
    checked(harness, *children)
    if not has_state:
        assert [child.cached for child in children] == [64 + offset] * 3
    again = [harness.submit([*child.prompt, *child.tokens[:9], 3], 5) for child in children]
    checked(harness, *again)
    ended(harness)


@with_and_without_state
def test_choices_of_one_prompt_run_together_without_seeing_each_other(has_state):
    harness = engine(24, has_state=has_state)
    prompt = tokens("prompt", 100)
    leader = harness.submit(prompt, 40, name="leader")
    followers = [harness.submit(prompt, 40, fork_of="leader") for _ in range(3)]
    checked(harness, leader, *followers)
    assert [follower.cached for follower in followers] == [99] * 3
    ended(harness)


@with_and_without_state
def test_colliding_names_on_a_lower_tier_never_give_a_false_hit(has_state):
    tier = host(200)
    harness = engine(12, tier, has_state=has_state, digest=lambda content: bytes(32))
    prompts = [tokens(number, 300) for number in range(5)]
    for _ in range(3):
        for prompt in prompts:
            asked(harness, prompt, 8)
    harness.check_drained()
    assert len(tier.images) <= 2, "one name per kind"
    harness.close()


@with_and_without_state
def test_names_that_collide_now_and_then_never_give_a_false_hit(has_state):
    def digest(content):
        return bytes([sum(content) % 3]) * 32

    harness = engine(12, host(60), host(200), has_state=has_state, digest=digest)
    prompts = [tokens(number, 200 + 30 * number) for number in range(6)]
    for _ in range(3):
        for prompt in prompts:
            asked(harness, prompt, 8)
    harness.check_drained()
    harness.close()


def test_tenants_never_meet():
    harness = engine(24)
    prompt = tokens("prompt", 200)
    assert [asked(harness, prompt, salt=salt).cached for salt in ("a", "b", "", "a")] == [
        0,
        0,
        0,
        199,
    ]
    ended(harness)
