"""Matchers that raise, answer wrongly, lie or are slow: answers stay right, radix decides, and /health says who failed."""

from dataclasses import replace
from itertools import repeat

import pytest
from structlog.testing import capture_logs

from ninfer.api import CheckpointMatcher, Match
from ninfer.cache.matcher_handle import MatcherHandle
from ninfer.core.request import CacheParams, GenerationRequest
from tests.fakes.harness import Answer
from tests.integration.plugins.guarded import (
    DISTRIBUTION,
    PLUGIN,
    GuardedEngine,
    Panic,
    raises,
    returns,
)
from tests.integration.scenarios.conversation import checked, with_and_without_state

INVENTED = Match(position_tokens=64_000, copied_tokens=0, is_device_ready=True, tier_index=0)


def elsewhere(method, prompt, view):
    """The right points, said to be on the device already."""
    return [
        replace(match, is_device_ready=True, tier_index=0, copied_tokens=9)
        for match in view.resume_points()
    ][:7]


FAULTS = {
    "raises": raises(KeyError("by design")),
    "exits": raises(SystemExit(1)),
    "panics": raises(Panic("index out of bounds")),
    "None": returns(None),
    "text": returns("deepest"),
    "positions": returns([64, 128]),
    "invented": returns([INVENTED]),
    "elsewhere": elsewhere,
    "endless": returns(repeat(INVENTED)),
    "all of them twice": lambda method, prompt, view: (
        [*view.resume_points(), *view.resume_points()] * 7
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_matcher_is_put_aside_and_answers_stay_right(fault):
    subject = GuardedEngine("matcher", {"candidates": FAULTS[fault]}, has_state=True)
    with capture_logs() as logs:
        subject.work()
    assert subject.plugin.calls["candidates"] == 3
    assert subject.guard.is_aside
    (line,) = [entry for entry in logs if entry["event"] == "plugin_put_aside"]
    assert (line["plugin"], line["distribution"], line["operation"]) == (
        PLUGIN,
        DISTRIBUTION,
        "candidates",
    )
    health = subject.health()
    assert health.status == "degraded"
    assert f"matcher x (plugin {PLUGIN}, {DISTRIBUTION}) failed: candidates: " in health.problems[0]
    subject.end()


LIES = {
    "nothing matches": returns([]),
    "shallowest first": lambda method, prompt, view: view.resume_points()[:3],
    "each point twice": lambda method, prompt, view: [*view.resume_points()[:2]] * 2,
}


@with_and_without_state
@pytest.mark.parametrize("lie", LIES)
def test_a_matcher_that_hides_resume_points_costs_hits_and_nothing_else(lie, has_state):
    subject = GuardedEngine("matcher", {"candidates": LIES[lie]}, has_state=has_state)
    subject.work(num_rounds=3)
    assert subject.plugin.calls["candidates"]
    assert subject.health().status == "ok"
    subject.end()


def test_the_deepest_shared_prefix_is_found_whatever_the_matcher_hides():
    """The planner adds the deepest point of each tier itself, so a matcher cannot lose it."""
    computed = {}
    for name, faults in (("sound", {}), ("hides", {"candidates": returns([])})):
        subject = GuardedEngine("matcher", faults)
        subject.work(num_rounds=2)
        computed[name] = subject.harness.device.num_computed
        subject.end()
    assert computed["hides"] == computed["sound"]


def test_a_matcher_cannot_change_what_the_planner_sees():
    def greedy(method, prompt, view):
        points = view.resume_points()
        assert isinstance(points, tuple)
        return method(prompt, view)

    subject = GuardedEngine("matcher", {"candidates": greedy})
    subject.work(num_rounds=2)
    assert subject.plugin.calls["candidates"]
    assert not subject.guard.problem
    subject.end()


def test_a_slow_matcher_is_put_aside():
    subject = GuardedEngine("matcher", {})

    def slow(method, prompt, view):
        subject.clock.advance(1.0)
        return method(prompt, view)

    subject.plugin.faults["candidates"] = slow
    subject.work()
    assert subject.plugin.calls["candidates"] == 3
    assert "took 1 s" in subject.health().problems[0]
    subject.end()


def with_key(harness, prompt, key):
    answer = Answer()
    answer.prompt, answer.max_tokens, answer.stop = list(prompt), 4, frozenset()
    request = GenerationRequest(
        request_id=f"{key}-{len(prompt)}",
        prompt_token_ids=list(prompt),
        max_tokens=4,
        cache=CacheParams(session_key=key),
    )
    harness.loop.submit(request, answer)
    checked(harness, answer)
    return answer


def test_the_session_key_of_a_request_reaches_the_matcher():
    seen = []

    def note(method, prompt, view):
        seen.append((prompt.num_tokens, prompt.session_key))
        return method(prompt, view)

    subject = GuardedEngine("matcher", {"candidates": note})
    first = with_key(subject.harness, [*range(10)] * 70, "conversation-7")
    subject.work(num_rounds=1)
    with_key(subject.harness, [*first.prompt, *first.tokens], "conversation-7")
    assert (704, "conversation-7") in seen
    subject.end()


def test_handle_passes_every_method_of_the_contract_on():
    public = {name for name in vars(CheckpointMatcher) if not name.startswith("_")}
    assert public <= set(vars(MatcherHandle))
