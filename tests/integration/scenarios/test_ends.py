"""Scenarios 29, 34, 35: requests that fail, time out or are given up, in every place they can be."""

import pytest

from ninfer.cache.resume import Prefix
from ninfer.core.errors import EngineStopped
from ninfer.core.request import FinishReason
from ninfer.obs.clock import SystemClock
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


class HandClock(SystemClock):
    """The system clock, set forward by hand."""

    ahead_s = 0.0

    def monotonic_s(self):
        return super().monotonic_s() + self.ahead_s


@with_and_without_state
def test_a_lane_whose_sampler_fails_ends_alone(has_state):
    harness = engine(30, has_state=has_state)
    pair = [harness.submit(tokens(number, 100), 20) for number in range(2)]
    while not all(answer.tokens for answer in pair):
        harness.step()
    harness.device.fail_lanes.add(0)
    harness.run(*pair)
    assert sorted(answer.reason for answer in pair) == [FinishReason.ERROR, FinishReason.LENGTH]
    for answer in pair:
        assert answer.tokens == harness.cold(answer)[: len(answer.tokens)]
    asked(harness, [*pair[0].prompt, *pair[0].tokens, 1])
    assert not harness.loop.failure
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("num_steps", range(8))
def test_a_step_that_fails_ends_its_requests_and_serves_the_next(has_state, num_steps):
    harness = engine(30, has_state=has_state, num_slots=6, chunk=64, draft_tokens=2)
    answers = [harness.submit(tokens(number, 150), 20, markers=[64, 100]) for number in range(3)]
    for _ in range(num_steps):
        harness.step()
    harness.device.fail_steps = 1
    harness.step()
    harness.step()
    assert any(answer.reason is FinishReason.ERROR for answer in answers)
    for answer in answers:
        asked(harness, [*answer.prompt, *answer.tokens, 1])
    assert not harness.loop.failure
    ended(harness)


def test_a_device_that_keeps_failing_stops_the_engine_and_it_says_so():
    harness = engine(30)
    harness.device.fail_steps = 99
    answers = []
    for _ in range(3):
        answers.append(harness.submit(tokens(1, 10), 4))
        try:
            harness.loop.step()
        except Exception as error:
            harness.loop._fail(error)
    assert "3 steps in a row failed" in harness.loop.failure
    assert [answer.reason for answer in answers] == [FinishReason.ERROR] * 3
    with pytest.raises(EngineStopped):
        harness.submit(tokens(1, 10), 4)
    harness.close()


@with_and_without_state
def test_a_request_that_waits_too_long_is_told_so(has_state):
    clock = HandClock()
    harness = engine(10, has_state=has_state, clock=clock, num_lanes=1)
    running = harness.submit(tokens("running", 100), 100)
    waiting = harness.submit(tokens("waiting", 100), 10, queue_timeout_s=3.0)
    for _ in range(3):
        harness.step()
    assert 2.5 < harness.scheduler.next_deadline_s() - clock.monotonic_s() <= 3.0
    clock.ahead_s = 3.5
    harness.step()
    assert waiting.reason is FinishReason.TIMEOUT
    assert "waited 3.5 s" in waiting.finished.message
    assert waiting.finished.stats.queue_s >= 3.5
    checked(harness, running)
    ended(harness)


@with_and_without_state
def test_a_request_that_waits_too_long_for_a_transfer_gives_everything_back(has_state):
    clock, tier = HandClock(), host(100)
    harness = engine(32, tier, has_state=has_state, clock=clock, deadline_s=100.0)
    first, second = [Session(harness, name, 1200) for name in "AB"]
    first.turn(0)
    second.turn(0)
    harness.settle()
    tier.gate.clear()
    parked = harness.submit(first.prompt(), 6, queue_timeout_s=2.0)
    harness.step()
    assert harness.scheduler.admission.parked
    clock.ahead_s = 2.5
    harness.step()
    assert parked.reason is FinishReason.TIMEOUT
    assert not harness.scheduler.admission.parked
    tier.gate.set()
    assert first.turn().computed <= 41
    ended(harness)


def leave(harness, answer):
    """The client goes away; within two steps the lane is free."""
    harness.scheduler.abort(answer.id)
    harness.step()
    assert answer.reason is FinishReason.ABORTED
    assert harness.scheduler.admission.num_free_lanes == harness.device.layout.num_lanes
    assert not harness.device.open_lanes


@with_and_without_state
def test_a_client_that_leaves_the_queue_leaves_nothing(has_state):
    harness = engine(10, has_state=has_state, num_lanes=1)
    running = harness.submit(tokens("running", 100), 50)
    waiting = harness.submit(tokens("waiting", 100), 10)
    harness.step()
    harness.scheduler.abort(waiting.id)
    assert waiting.reason is FinishReason.ABORTED
    checked(harness, running)
    ended(harness)


@with_and_without_state
def test_a_client_that_leaves_during_prefill_leaves_what_was_computed(has_state):
    harness = engine(24, has_state=has_state, chunk=64)
    prompt = tokens("prompt", 1000)
    answer = harness.submit(prompt, 10)
    for _ in range(10):
        harness.step()
    leave(harness, answer)
    assert asked(harness, prompt).cached >= 640
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("num_tokens", [1, 30, 80])
def test_a_client_that_leaves_during_decode_leaves_what_was_computed(has_state, num_tokens):
    harness = engine(24, has_state=has_state)
    answer = harness.submit(tokens("prompt", 500), 200)
    while len(answer.tokens) < num_tokens:
        harness.step()
    leave(harness, answer)
    so_far = [*answer.prompt, *answer.tokens]
    assert asked(harness, [*so_far, 1, 2, 3]).cached >= 0.95 * len(so_far)
    ended(harness)


@with_and_without_state
@pytest.mark.parametrize("is_hung", [False, True])
def test_a_client_that_leaves_while_its_pages_are_restored_leaves_no_lease(has_state, is_hung):
    tier = host(100)
    harness = engine(32, tier, has_state=has_state, deadline_s=0.2 if is_hung else 5.0)
    first, second = [Session(harness, name, 1200) for name in "AB"]
    first.turn(0)
    second.turn(0)
    harness.settle()
    tier.gate.clear()
    parked = harness.submit(first.prompt(), 6)
    harness.step()
    assert harness.scheduler.admission.parked
    leave(harness, parked)
    beside = asked(harness, tokens("beside", 50), 4)
    assert beside.cached == 0
    if not is_hung:
        tier.gate.set()
        assert first.turn().computed <= 41
    harness.settle()
    tier.gate.set()
    ended(harness)


def test_pages_that_another_lane_computes_while_they_are_restored_are_used():
    tier = host(1000)
    harness = engine(40, tier, chunk=64, deadline_s=100.0)
    prompt = tokens("prompt", 640)
    slow = harness.submit(prompt, 40, name="slow")
    for _ in range(2):
        harness.step()
    quick = harness.submit(prompt, 2, name="quick")
    checked(harness, quick, slow)
    ended(harness)


@pytest.mark.parametrize("does_abort", [False, True])
def test_a_lane_that_computes_pages_just_being_restored_takes_them_over(monkeypatch, does_abort):
    """The lane starts as if nothing were stored; another request waits for the same pages from the host."""
    tier = host(100)
    harness = engine(40, tier, chunk=64, num_lanes=3, deadline_s=100.0)
    prompt = tokens("prompt", 640)
    asked(harness, prompt, 4)
    harness.settle()
    with monkeypatch.context() as patch:
        patch.setattr(Prefix, "_complete", staticmethod(lambda path: []))
        computes = harness.submit([*prompt, 1], 30)
        harness.step()
    for node in sorted(harness.store.tree.nodes(), key=lambda node: -node.end_tokens):
        if not node.replicas[0].leases:
            harness.store.drop_replica(node, 0)
    tier.gate.clear()
    waits = harness.submit([*prompt, 2], 4)
    for _ in range(16):
        harness.step()
    assert harness.scheduler.admission.parked
    if does_abort:
        harness.scheduler.abort(waits.id)
    tier.gate.set()
    checked(harness, computes, *([] if does_abort else [waits]))
    ended(harness)
