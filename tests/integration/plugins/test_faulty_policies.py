"""Policies that raise, answer wrongly, lie or are slow: answers stay right, lru decides, and /health says who failed."""

import random
from asyncio import CancelledError

import pytest
from structlog.testing import capture_logs

from ninfer.api import ImageKind, PlacementPolicy
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.cache.policy_handle import PolicyHandle
from tests.integration.plugins.guarded import (
    DISTRIBUTION,
    PLUGIN,
    GuardedEngine,
    Panic,
    Speechless,
    raises,
    returns,
)
from tests.integration.scenarios.conversation import asked, tokens, with_and_without_state

NAN = float("nan")
WRONG = {
    "keep_value": (None, "much", NAN, True),
    "price_s": (None, NAN),
    "wants_copy": (None, 1),
}
FAULTS = [
    *((method, returns(answer)) for method, answers in WRONG.items() for answer in answers),
    *(
        (method, raises(ZeroDivisionError("by design")))
        for method in (*WRONG, "evicted", "observe_transfer", "observe_prefill")
    ),
    ("keep_value", raises(SystemExit(1))),
    ("keep_value", raises(Panic("index out of bounds"))),
    ("wants_copy", raises(CancelledError())),
    ("price_s", raises(Speechless())),
]


@pytest.mark.parametrize(
    ("method", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_faulty_policy_is_put_aside_and_answers_stay_right(method, fault):
    subject = GuardedEngine("policy", {method: fault}, has_state=True)
    with capture_logs() as logs:
        subject.work()
    assert subject.plugin.calls[method] == 3
    assert subject.guard.is_aside
    (line,) = [entry for entry in logs if entry["event"] == "plugin_put_aside"]
    assert (line["plugin"], line["distribution"]) == (PLUGIN, DISTRIBUTION)
    assert line["operation"] == method
    health = subject.health()
    assert health.status == "degraded"
    assert f"policy x (plugin {PLUGIN}, {DISTRIBUTION}) failed: {method}: " in health.problems[0]
    assert health.plugins[PLUGIN] == health.problems
    subject.end()


@with_and_without_state
def test_once_a_policy_is_put_aside_everything_stands_in_lru_order(has_state):
    subject = GuardedEngine(
        "policy", {"keep_value": lambda method, facts: -method(facts)}, has_state=has_state
    )
    harness = subject.work(num_rounds=2)
    subject.plugin.faults["keep_value"] = returns(NAN)
    asked(harness, tokens("short", 70), 1)
    assert subject.guard.is_aside
    harness.loop.drain_commands()
    lru = LruPolicy(LruConfig())
    values = harness.store.values
    orders = {
        id(order): (order, tier)
        for tier in range(2)
        for order in (values.order_of(kind, tier) for kind in ImageKind)
    }
    found = [
        (value, lru.keep_value(values.facts_of(stored, tier)))
        for order, tier in orders.values()
        for value, _, stored, _replica, _stamp in filter(order._is_live, order._entries)
    ]
    assert len(found) >= 5
    assert [value for value, _ in found] == [expected for _, expected in found]
    subject.end()


LIES = {
    "random values": ("keep_value", lambda rng: lambda method, facts: rng.uniform(-1e9, 1e9)),
    "infinite values": (
        "keep_value",
        lambda rng: lambda method, facts: rng.choice([1, -1]) * float("inf"),
    ),
    "upside down": ("keep_value", lambda rng: lambda method, facts: -method(facts)),
    "random prices": ("price_s", lambda rng: lambda method, outcome: rng.uniform(-1e9, 1e9)),
    "copies everything": ("wants_copy", lambda rng: returns(True)),
    "copies nothing": ("wants_copy", lambda rng: returns(False)),
}


@with_and_without_state
@pytest.mark.parametrize("lie", LIES)
def test_a_policy_that_lies_costs_hits_and_nothing_else(lie, has_state):
    method, make = LIES[lie]
    subject = GuardedEngine("policy", {method: make(random.Random(lie))}, has_state=has_state)
    subject.work(num_rounds=3)
    assert subject.plugin.calls[method]
    assert subject.health().status == "ok"
    subject.end()


def test_a_policy_that_is_slow_again_and_again_is_put_aside():
    subject = GuardedEngine("policy", {})

    def slow(method, facts):
        subject.clock.advance(0.2)
        return method(facts)

    subject.plugin.faults["keep_value"] = slow
    subject.work()
    assert subject.plugin.calls["keep_value"] == 3
    assert "keep_value: took 0.2 s; a call may take 0.05 s" in subject.health().problems[0]
    subject.end()


def test_one_slow_call_in_a_hundred_is_forgiven():
    subject = GuardedEngine("policy", {})
    calls = []

    def slow(method, facts):
        calls.append(facts)
        subject.clock.advance(0.2 if len(calls) % 100 == 0 else 0.0)
        return method(facts)

    subject.plugin.faults["keep_value"] = slow
    subject.work(num_rounds=8)
    assert len(calls) >= 300
    assert not subject.guard.is_aside
    subject.end()


def test_a_policy_that_fails_once_is_asked_again_and_health_recovers():
    subject = GuardedEngine("policy", {})

    def once(method, facts):
        subject.plugin.faults.clear()
        raise OSError("once")

    subject.plugin.faults["keep_value"] = once
    subject.work(num_rounds=1)
    assert not subject.guard.is_aside
    subject.work(num_rounds=2)
    assert subject.plugin.calls["keep_value"] > 64
    assert subject.health().status == "ok"
    subject.end()


def test_handle_passes_every_method_of_the_contract_on():
    public = {name for name in vars(PlacementPolicy) if not name.startswith("_")}
    assert public <= set(vars(PolicyHandle))
