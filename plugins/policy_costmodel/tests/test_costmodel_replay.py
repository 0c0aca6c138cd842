"""Generated workloads through the real store, against LRU. Public traces: `tests/unit/simulate/test_replay.py`."""

import random

import pytest

from ninfer.plugins import PluginCatalog
from ninfer.simulate.costs import Costs
from ninfer.simulate.replay import replay
from ninfer.simulate.trace import Trace, TraceRequest

CATALOG = PluginCatalog.discover()


def served(requests, capacity, policy):
    """Return the share of blocks served to (time, block ids) requests."""
    trace = Trace(
        name="generated",
        block_tokens=512,
        requests=tuple(
            TraceRequest(time_s=time_s, blocks=tuple(ids), num_prompt_tokens=512 * len(ids))
            for time_s, ids in requests
        ),
    )
    return replay(trace, CATALOG.policy(policy)[0], [capacity], Costs()).block_hit_rate


def generated(seed, num_requests=800):
    """System prompts of different popularity, sessions that grow turn by turn, one-time prompts."""
    rng = random.Random(seed)
    fresh = iter(range(10**9))
    systems = [[next(fresh) for _ in range(8)] for _ in range(12)]
    sessions = []
    for number in range(num_requests):
        draw = rng.random()
        if draw < 0.4 and sessions:
            blocks = rng.choice(sessions[-15:])
            blocks += [next(fresh) for _ in range(rng.randrange(1, 4))]
        elif draw < 0.7:
            blocks = systems[min(int(rng.expovariate(0.4)), 11)] + [next(fresh) for _ in range(3)]
            sessions.append(blocks)
        else:
            blocks = [next(fresh) for _ in range(rng.randrange(5, 30))]
        yield number * 2.0, list(blocks)


def recency_heavy(seed, num_requests=500):
    """Few live sessions, each used in bursts and then left for ever."""
    rng = random.Random(seed)
    fresh = iter(range(10**9))
    live = [[next(fresh)] for _ in range(6)]
    for number in range(num_requests):
        if rng.random() < 0.05:
            live[rng.randrange(6)] = [next(fresh)]
        session = live[rng.randrange(6)]
        session += [next(fresh) for _ in range(rng.randrange(1, 5))]
        yield number * 5.0, list(session)


@pytest.mark.parametrize("capacity", [150, 400, 1000])
def test_a_mixed_workload_is_served_better_than_by_lru_or_nearly_as_well(capacity):
    requests = list(generated(0))
    ours = served(requests, capacity, "costmodel")
    theirs = served(requests, capacity, "lru")
    assert ours >= 0.97 * theirs
    if capacity == 150:
        assert ours > 1.05 * theirs


@pytest.mark.parametrize("capacity", [150, 400, 1000])
def test_a_workload_of_pure_recency_is_served_nearly_as_well_as_by_lru(capacity):
    requests = list(recency_heavy(1))
    ours = served(requests, capacity, "costmodel")
    assert ours >= 0.93 * served(requests, capacity, "lru")
