"""Retention in replays: what was granted is there when its context comes back."""

from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.simulate.costs import Costs
from ninfer.simulate.promises import Promises
from ninfer.simulate.replay import ReplayOptions, replay
from ninfer.simulate.trace import read_trace
from tests.unit.simulate.test_replay import HEAD, TRACES, needs_traces, provider, trace_of


@pytest.mark.parametrize("policy", ["lru", "costmodel"])
@pytest.mark.parametrize("capacities", [[800], [400, 300, 1200]])
def test_what_a_replay_was_granted_is_there_within_300_seconds(policy, capacities):
    """In full tiers, several times over: retained contexts outlive what is not, and each other within the budget."""
    trace = read_trace(HEAD)
    trace = replace(trace, requests=trace.requests[:120])
    result = replay(
        trace,
        provider(policy),
        capacities,
        Costs(),
        setup=ReplayOptions(retention_s=300.0, rules=WriteRules(filter=WriteFilter.IDLE)),
    )
    kept = result.kept
    assert kept.num_lost_blocks == 0
    assert kept.num_granted + kept.num_refused == 120
    assert kept.num_granted >= 10
    assert kept.num_refused >= 15, "the tiers are too large to show anything"
    assert kept.num_blocks >= 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
@needs_traces
@pytest.mark.parametrize("capacities", [[2000, 20_000], [1000, 4000, 20_000]])
def test_what_a_whole_trace_was_granted_is_there(capacities):
    trace = read_trace(Path(TRACES) / "conversation_trace.jsonl.gz")
    setup = ReplayOptions(retention_s=300.0, rules=WriteRules(filter=WriteFilter.IDLE))
    result = replay(trace, provider("costmodel"), capacities, Costs(), setup=setup)
    print(f"\n{capacities}: {result}")
    assert result.kept.num_lost_blocks == 0
    assert result.kept.num_granted > 500


def test_a_broken_promise_is_seen():
    promises = Promises(300.0)
    promises.left((1, 2, 3), 0.0, is_granted=True)
    promises.left((7, 8), 0.0, is_granted=False)
    promises.returned((1, 2, 9), 1, 100.0)
    promises.returned((7, 8), 0, 100.0)
    kept = promises.kept
    assert (kept.num_granted, kept.num_refused) == (1, 1)
    assert (kept.num_returns, kept.num_blocks, kept.num_lost_blocks) == (1, 2, 1)
    # Block 1 was used at 100 s, 2 and 3 were not: their time is over at 300 s.
    promises.returned((1, 2, 3), 1, 350.0)
    assert (kept.num_returns, kept.num_blocks, kept.num_lost_blocks) == (2, 3, 1)


def test_copies_ahead_of_pressure_come_to_rest_when_all_tiers_are_full_of_retained_contexts():
    """Two objects once displaced each other in turns: each counted as spare while the other was copied."""
    paths = [[f"{name}{at}" for at in range(9)] for name in range(40)]
    result = replay(
        trace_of(paths, step_s=0.5),
        provider("costmodel"),
        [10, 20, 30],
        Costs(),
        setup=ReplayOptions(retention_s=300.0),
    )
    assert result.kept.num_granted > 0
    assert sum(moved.num_images for moved in result.moved.values()) < 4 * 40 * 9
