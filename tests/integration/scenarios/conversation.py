"""Conversations against the fake engine; every answer is compared with the cold oracle."""

import random

import pytest

from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness

IMAGE_BYTES = 868
"""What a page takes of a `DictTier`: header, 64 tokens, payload."""
VOCAB = 50

with_and_without_state = pytest.mark.parametrize("has_state", [False, True], ids=["dense", "state"])


def tokens(seed, num_tokens):
    rng = random.Random(f"{seed}")
    return [rng.randrange(VOCAB) for _ in range(num_tokens)]


def host(num_pages):
    return DictTier(num_pages * IMAGE_BYTES)


def engine(num_pages, *tiers, has_state=False, num_slots=24, **more):
    options = {"num_pages": num_pages, "tiers": tiers, "vocab": VOCAB, "chunk": 256, **more}
    if has_state:
        options |= {"has_state": True, "num_slots": num_slots}
    return Harness(**options)


def checked(harness, *answers):
    """Finish answers that run together; each must be that of an engine without a cache."""
    harness.run(*answers)
    for answer in answers:
        assert answer.tokens == harness.cold(answer), answer.finished
        answer.computed = len(answer.prompt) - answer.cached
    return answers


def asked(harness, prompt, max_tokens=6, **more):
    return checked(harness, harness.submit(prompt, max_tokens, **more))[0]


def ended(harness):
    """Everything was given back, and tiers hold what the books say."""
    harness.check_drained()
    harness.close()
    for tier, ledger in zip(harness.tiers, harness.store.ledgers, strict=True):
        assert tier.usage().used_bytes == ledger.used_bytes


class Session:
    """A conversation that grows: each turn sends everything so far and something new."""

    def __init__(self, harness, seed, num_tokens, *, head=()):
        self.harness = harness
        self.seed = seed
        self.tokens = [*head, *tokens(seed, num_tokens)]
        self.num_turns = 0

    def prompt(self, num_new=20):
        self.num_turns += 1
        return [*self.tokens, *tokens(f"{self.seed}/{self.num_turns}", num_new)]

    def turn(self, num_new=20, max_tokens=6, **more):
        answer = asked(self.harness, self.prompt(num_new), max_tokens, **more)
        self.tokens = [*answer.prompt, *answer.tokens]
        return answer
