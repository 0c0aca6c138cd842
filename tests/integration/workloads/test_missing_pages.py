"""Random workloads in which pages and states go from the device one by one, whatever lies behind them: right tokens, no leak."""

import random

import pytest

from ninfer.cache.checks import check
from ninfer.cache.node import DEVICE
from ninfer.cache.sealing import Sealer
from tests.fakes import workload
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

SHAPES = [(30,), (6, 30), (40, 100), (200,)]


def drop_some(rng, store, share):
    """Drop device replicas that nobody uses and that have a copy below, and now and then such a copy."""
    found = list(store.tree.nodes())
    found += [node.image for node in found if node.image is not None]
    for stored in found:
        for tier, replica in enumerate(stored.replicas):
            is_free = replica is not None and replica.is_valid and not replica.leases
            if stored.is_gone or not is_free or replica.is_leaving:
                continue
            if tier == DEVICE and stored.has_valid_below(DEVICE) and rng.random() < share:
                store.drop_replica(stored, DEVICE)
            elif tier != DEVICE and stored.valid_on(DEVICE) and rng.random() < share / 10:
                store.drop_replica(stored, tier)


def run(seed):
    rng = random.Random(seed)
    has_state = rng.random() < 0.5
    num_pages, vocab = rng.choice([12, 20, 40, 60]), rng.choice([2, 4, 50])
    draft_tokens = rng.choice([0, 0, 1, 3])
    harness = Harness(
        tiers=[DictTier(pages * (PAGE_BYTES + 300)) for pages in rng.choice(SHAPES)],
        num_pages=num_pages,
        num_lanes=rng.choice([1, 2, 4]),
        has_state=has_state,
        num_slots=rng.choice([4, 6, 12]) if has_state else 0,
        draft_tokens=draft_tokens,
        chunk=rng.choice([16, 64, 200]),
        vocab=vocab,
    )
    most = num_pages * 64 - draft_tokens
    history, live, answers = [], [], []
    for _ in range(14):
        prompt = workload.next_prompt(rng, history, vocab)
        if history and rng.random() < 0.5:
            prompt = list(rng.choice(history[-4:]))
        prompt = (prompt * 4)[: min(most - 1, rng.randint(250, 640))]
        drop_some(rng, harness.store, rng.choice([0.3, 0.6]))
        answer = harness.submit(prompt, min(rng.choice([0, 1, 20, 70]), most - len(prompt)))
        answers.append(answer)
        live.append(answer)
        for _ in range(rng.choice([0, 1, 5, 40, 2_000])):
            if not harness.scheduler.has_work:
                break
            harness.step()
            if rng.random() < 0.1:
                drop_some(rng, harness.store, 0.2)
            assert check(harness.store) == []
        if rng.random() < 0.2:
            harness.scheduler.abort(rng.choice(live).id)
        for done in [one for one in live if one.finished]:
            live.remove(done)
            history.append([*done.prompt, *done.tokens])
    harness.run(*live)
    for answer in answers:
        workload._check_answer(harness, answer)
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize("seed", range(25))
def test_pages_behind_missing_ones_are_used_and_nothing_leaks(seed):
    run(seed)


def test_the_workloads_use_pages_in_place(monkeypatch):
    num_in_place, restores = 0, Sealer._restores

    def counting(self, context):
        nonlocal num_in_place
        sources = {id(stored): tier for stored, tier in context.leases}
        num_in_place += sum(sources[id(node)] == DEVICE for node in context.outcome.restores)
        return restores(self, context)

    monkeypatch.setattr(Sealer, "_restores", counting)
    for seed in range(12):
        run(seed)
    assert num_in_place >= 5
