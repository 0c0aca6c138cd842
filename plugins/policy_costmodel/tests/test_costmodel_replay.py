"""Replays against LRU: a generated workload always, the public Mooncake traces where they are at hand.

`NINFER_TRACES` names a folder with `conversation_trace.jsonl.gz` (Mooncake, FAST'25 release, Apache-2.0).
"""

import gzip
import heapq
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.policy import CostModelPolicy

from ninfer.api import ImageFacts, ImageKind, PolicyContext, TierFacts

BLOCK_TOKENS = 512
BLOCK_BYTES = BLOCK_TOKENS * 1000


class StoppedClock:
    def monotonic_s(self):
        return 0.0


@dataclass
class Result:
    hit_share: float
    seconds_saved: float


def costmodel(squared):
    context = PolicyContext(
        clock=StoppedClock(),
        tiers=[TierFacts(tier_name="device", capacity_bytes=1)],
        bytes_per_token=1000,
        prefill_tokens_per_s=12_000.0,
        prefill_seconds_per_token_squared=squared,
    )
    return CostModelPolicy.open(context, CostModelConfig(save_calibration=False)).keep_value


def lru(facts):
    return facts.last_use_index


def replay(requests, capacity, keep_value, *, squared=0.0, remembers_uses=True):
    """Serve (time, block ids) requests from `capacity` blocks; prefix hits, leaves evicted first by value."""
    parents, children, values, uses, created, heap = {}, {}, {}, {}, {}, []
    num_asked = num_hit = num_touched = 0
    saved = 0.0

    def make_room(locked):
        while len(values) >= capacity:
            held = []
            victim = None
            while heap and victim is None:
                value, block = heapq.heappop(heap)
                if values.get(block) != value or children[block]:
                    continue
                if block in locked:
                    held.append((value, block))
                else:
                    victim = block
            for entry in held:
                heapq.heappush(heap, entry)
            if victim is None:
                return False
            del values[victim]
            parent = parents[victim]
            if parent is not None:
                children[parent] -= 1
                if parent in values and not children[parent]:
                    heapq.heappush(heap, (values[parent], parent))
        return True

    for time_s, blocks in requests:
        locked = set(blocks)
        hits = next((n for n, block in enumerate(blocks) if block not in values), len(blocks))
        num_asked += len(blocks)
        num_hit += hits
        saved += sum(
            BLOCK_TOKENS / 12_000 + squared * BLOCK_TOKENS * BLOCK_TOKENS * n for n in range(hits)
        )
        parent = None
        for number, block in enumerate(blocks):
            num_touched += 1
            if block not in values:
                if not make_room(locked):
                    break
                uses[block] = uses.get(block, 0) if remembers_uses else 0
                created[block] = created.get(block, time_s) if remembers_uses else time_s
                parents[block], children[block] = parent, 0
                if parent is not None:
                    children[parent] += 1
            uses[block] += 1
            values[block] = keep_value(
                ImageFacts(
                    kind=ImageKind.PAGE,
                    tier_index=0,
                    num_bytes=BLOCK_BYTES,
                    position_tokens=(number + 1) * BLOCK_TOKENS,
                    lost_tokens=BLOCK_TOKENS,
                    num_uses=uses[block],
                    created_s=created[block],
                    last_use_s=time_s,
                    last_use_index=num_touched,
                    has_lower_replica=False,
                    is_reachable=True,
                )
            )
            parent = block
        for block in blocks:
            if block in values:
                heapq.heappush(heap, (values[block], block))
    return Result(num_hit / num_asked, saved)


def generated(seed, num_requests=1500):
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


def recency_heavy(seed, num_requests=1000):
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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("capacity", [150, 400, 1000])
def test_a_mixed_workload_is_served_better_than_by_lru_or_nearly_as_well(seed, capacity):
    requests = list(generated(seed))
    ours = replay(requests, capacity, costmodel(0.0))
    theirs = replay(requests, capacity, lru)
    assert ours.hit_share >= 0.97 * theirs.hit_share
    if capacity != 400:
        assert ours.hit_share > theirs.hit_share


@pytest.mark.parametrize("capacity", [150, 400, 1000])
def test_a_workload_of_pure_recency_is_served_nearly_as_well_as_by_lru(capacity):
    requests = list(recency_heavy(1))
    ours = replay(requests, capacity, costmodel(0.0))
    theirs = replay(requests, capacity, lru)
    assert ours.hit_share >= 0.94 * theirs.hit_share


TRACES = os.environ.get("NINFER_TRACES")


def trace(name):
    with gzip.open(Path(TRACES) / f"{name}_trace.jsonl.gz", "rt") as lines:
        requests = map(json.loads, lines)
        return [(request["timestamp"] / 1000, request["hash_ids"]) for request in requests]


@pytest.mark.slow
@pytest.mark.skipif(not TRACES, reason="NINFER_TRACES is not set")
@pytest.mark.parametrize(
    ("capacity", "lru_share", "goal"),
    [(2000, 0.054, 0.114), (8000, 0.178, 0.20), (20_000, 0.288, 0.295)],
)
def test_conversation_trace(capacity, lru_share, goal):
    requests = trace("conversation")
    theirs = replay(requests, capacity, lru)
    assert theirs.hit_share == pytest.approx(lru_share, abs=0.001)
    ours = replay(requests, capacity, costmodel(0.0))
    forgetful = replay(requests, capacity, costmodel(0.0), remembers_uses=False)
    curved = replay(requests, capacity, costmodel(5e-9), squared=5e-9)
    curved_lru = replay(requests, capacity, lru, squared=5e-9)
    print(
        f"\n{capacity}: lru {theirs}\n ours {ours}\n forgetful {forgetful}\n curved {curved} lru {curved_lru}"
    )
    assert ours.hit_share >= goal
    assert ours.seconds_saved >= theirs.seconds_saved
    assert curved.seconds_saved >= curved_lru.seconds_saved
