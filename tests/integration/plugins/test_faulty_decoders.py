"""Decoders that raise, guess wrongly, lie or are slow: output stays that without drafts, and /health says who failed."""

import random

import pytest
from structlog.testing import capture_logs

from ninfer.api import Draft, SpeculativeDecoder
from ninfer.sched.decoder_handle import DecoderHandle
from tests.integration.plugins.guarded import (
    DISTRIBUTION,
    PLUGIN,
    GuardedEngine,
    Panic,
    Speechless,
    raises,
    returns,
)
from tests.integration.scenarios.conversation import VOCAB, with_and_without_state


def drafting(make):
    """Every lane drafts what `make` says for its request."""
    return lambda method, requests: [make(request) for request in requests]


def tokens_of(*token_ids):
    return drafting(lambda request: Draft(lane=request.lane, token_ids=token_ids))


FAULTS = {
    "raises": ("draft", raises(RuntimeError("by design"))),
    "exits": ("draft", raises(SystemExit(1))),
    "panics": ("draft", raises(Panic("index out of bounds"))),
    "has no text": ("draft", raises(Speechless())),
    "None": ("draft", returns(None)),
    "too few": ("draft", returns([])),
    "not drafts": ("draft", drafting(lambda request: request.lane)),
    "other lane": ("draft", drafting(lambda request: Draft(lane=request.lane + 1, token_ids=(1,)))),
    "too long": ("draft", tokens_of(*range(9))),
    "beyond the vocabulary": ("draft", tokens_of(VOCAB)),
    "negative": ("draft", tokens_of(-1)),
    "text": ("draft", tokens_of("the")),
    "floats": ("draft", tokens_of(1.0)),
    "no tuple": ("draft", drafting(lambda request: Draft(lane=request.lane, token_ids=None))),
    "open_lane raises": ("open_lane", raises(MemoryError())),
    "close_lane raises": ("close_lane", raises(KeyError(0))),
    "verified raises": ("verified", raises(ValueError("by design"))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_decoder_is_put_aside_and_output_stays_right(fault):
    method, replacement = FAULTS[fault]
    subject = GuardedEngine("decoder", {method: replacement}, has_state=True)
    with capture_logs() as logs:
        subject.work(num_rounds=2)
    assert subject.guard.is_aside
    (line,) = [entry for entry in logs if entry["event"] == "plugin_put_aside"]
    assert (line["plugin"], line["distribution"]) == (PLUGIN, DISTRIBUTION)
    if method != "open_lane":  # a lane that was never opened fails in draft as well
        assert line["operation"] == method
    health = subject.health()
    assert health.status == "degraded"
    assert f"decoder x (plugin {PLUGIN}, {DISTRIBUTION}) failed: " in health.problems[0]
    subject.end()


def test_a_wrong_draft_costs_its_own_lane_the_draft():
    subject = GuardedEngine("decoder", {})
    num_wrong = 2

    def one_wrong(method, requests):
        nonlocal num_wrong
        drafts = method(requests)
        if num_wrong and len(requests) > 1:
            num_wrong -= 1
            drafts[0] = Draft(lane=requests[0].lane, token_ids=(VOCAB + 5,))
        return drafts

    subject.plugin.faults["draft"] = one_wrong
    harness = subject.harness
    answers = [harness.submit([n, *range(20)] * 4, 40) for n in range(3)]
    harness.run(*answers)
    assert num_wrong == 0
    assert not subject.guard.is_aside
    for answer in answers:
        assert answer.tokens == harness.cold(answer)
    assert sum(answer.finished.stats.num_drafted for answer in answers) > 0
    subject.end()


@with_and_without_state
def test_a_decoder_that_guesses_at_random_costs_speed_only(has_state):
    rng = random.Random(3)
    guess = drafting(
        lambda request: Draft(
            lane=request.lane,
            token_ids=tuple(
                rng.randrange(VOCAB) for _ in range(rng.randint(0, request.max_tokens))
            ),
        )
    )
    subject = GuardedEngine("decoder", {"draft": guess}, has_state=has_state)
    subject.work(num_rounds=2, max_tokens=30)
    assert subject.health().status == "ok"
    subject.end()


def test_a_slow_decoder_is_put_aside():
    subject = GuardedEngine("decoder", {})

    def slow(method, requests):
        subject.clock.advance(2.0)
        return method(requests)

    subject.plugin.faults["draft"] = slow
    subject.work(num_rounds=1)
    assert subject.plugin.calls["draft"] == 3
    assert "draft: took 2 s" in subject.health().problems[0]
    subject.end()


def test_handle_passes_every_method_of_the_contract_on():
    methods = {
        name
        for name, value in vars(SpeculativeDecoder).items()
        if callable(value) and not name.startswith("_")
    }
    assert methods <= set(vars(DecoderHandle))
