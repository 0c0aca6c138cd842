"""A random workload from a seed: shared prefixes, forks, edits, aborts, repeats, tiny tiers, restarts."""

import random

from ninfer.core.request import FinishReason
from ninfer.core.retention import Retention, RetentionMode
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

RETENTIONS = [
    None,
    None,
    Retention(seconds=0.02),
    Retention(seconds=1000.0),
    Retention(seconds=0.05, mode=RetentionMode.STRICT),
    Retention(seconds=1000.0, mode=RetentionMode.STRICT),
]


def tiny_tiers(rng):
    """None, one or two tiers, from too small for anything to roomy."""
    shapes = [(), (4,), (12,), (2, 8), (6, 30), (40, 100)]
    return [DictTier(pages * (PAGE_BYTES + 300)) for pages in rng.choice(shapes)]


def next_prompt(rng, history, vocab):
    """A new prompt: fresh, a repeat, a continuation, an edit or a fork of an earlier one."""

    def noise(most):
        return [rng.randrange(vocab) for _ in range(rng.randint(1, most))]

    kind = rng.random()
    if not history or kind < 0.2:
        return noise(200)
    base = rng.choice(history[-8:])
    if kind < 0.35:
        return list(base)
    if kind < 0.65:
        return [*base, *noise(40)][:420]
    if kind < 0.8:
        return [*base[: rng.randint(1, len(base))], *noise(60)]
    edited = list(base)
    edited[rng.randrange(len(edited))] = rng.randrange(vocab)
    return edited


def run_workload(seed, *, num_requests=14, make=None, policies=None):
    """Run one; raises AssertionError on the first wrong token, broken equation or leak."""
    rng = random.Random(seed)
    has_state = rng.random() < 0.5
    policies = policies or [None]
    options = {
        "num_pages": rng.choice([9, 12, 20, 40]),
        "num_lanes": rng.choice([1, 2, 4]),
        "has_state": has_state,
        "num_slots": rng.choice([4, 6, 12]) if has_state else 0,
        "draft_tokens": rng.choice([0, 0, 1, 3]),
        "chunk": rng.choice([16, 32, 100]),
        "shared_chunk": rng.choice([8, 16, 64]),
        "policy": rng.choice(policies),
        "vocab": rng.choice([2, 4, 50]),
        "first_rung": rng.choice([64, 128, 1024]),
    }
    make = make or Harness
    harness = make(tiers=tiny_tiers(rng), **options)
    history, live, answers = [], [], []
    try:
        for _ in range(num_requests):
            prompt = next_prompt(rng, history, options["vocab"])
            most = options["num_pages"] * 64 - options["draft_tokens"]
            prompt = prompt[: most - 1]
            max_tokens = min(rng.choice([0, 1, 3, 20, 70]), most - len(prompt))
            answer = harness.submit(
                prompt,
                max_tokens,
                cache=rng.random() < 0.92,
                salt=rng.choice(["", "", "", "other"]),
                stop=(rng.randrange(options["vocab"]),) if rng.random() < 0.2 else (),
                markers=sorted({rng.randint(1, len(prompt)) for _ in range(rng.randint(0, 2))}),
                keep=rng.choice(RETENTIONS),
            )
            answers.append(answer)
            live.append(answer)
            if max_tokens and rng.random() < 0.15:
                twin = harness.submit(prompt, max_tokens, fork_of=answer.id)
                answers.append(twin)
                live.append(twin)
            for _ in range(rng.choice([0, 1, 5, 40, 2_000])):
                if not harness.scheduler.has_work:
                    break
                harness.step()
            if live and rng.random() < 0.2:
                harness.scheduler.abort(rng.choice(live).id)
            for done in [answer for answer in live if answer.finished]:
                live.remove(done)
                history.append([*done.prompt, *done.tokens])
            if rng.random() < 0.08:
                harness = _restart(harness, live, history, make, options)
                live = []
        harness.run(*live)
        for answer in answers:
            _check_answer(harness, answer)
        harness.check_drained()
    finally:
        harness.close()


def _restart(harness, live, history, make, options):
    """Stop the engine as a clean shutdown does and start another one on the same tiers."""
    for answer in live:
        harness.scheduler.abort(answer.id)
        history.append([*answer.prompt, *answer.tokens])
    harness.check_drained()
    harness.flush()
    harness.close()
    for tier in harness.tiers[:-1]:
        tier.images.clear()
    return make(tiers=harness.tiers, **options)


def _check_answer(harness, answer):
    cold = harness.cold(answer)
    if answer.reason is FinishReason.ABORTED:
        assert answer.tokens == cold[: len(answer.tokens)]
        return
    assert answer.reason in {FinishReason.STOP, FinishReason.LENGTH}, answer.finished
    assert answer.tokens == cold
