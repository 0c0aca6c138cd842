"""A context of `tiny-hybrid` that comes back from a tier has as many drafts accepted as one that never left."""

import pytest

from tests.fakes.dict_tier import DictTier
from tests.integration.engine.trained_engine import TrainedModel

NUM_NEW = 60
QUESTION = """<|im_start|>system
You are a helpful assistant.<|im_end|>
<|im_start|>user
Write a story that begins at the {}.{}<|im_end|>
<|im_start|>assistant
<think>
"""


@pytest.fixture(scope="module")
def trained():
    return TrainedModel()


def question(trained, place):
    return trained.encode(QUESTION.format(place, " Take your time." * 60))


def test_a_restored_context_has_as_many_drafts_accepted(trained):
    harness = trained.open(
        num_lanes=1, num_pages=12, num_slots=3, draft_tokens=3, tiers=[DictTier(10**8)]
    )
    first = harness.ask(question(trained, "harbour"), NUM_NEW)
    for place in ("mill", "market", "bridge"):
        harness.ask(question(trained, place), 2)
    harness.settle()
    again = harness.ask(first.prompt, NUM_NEW)
    assert again.cached >= len(first.prompt) - 1
    assert again.finished.stats.restored_bytes["t1"] > 0
    assert again.tokens == first.tokens
    stats, wanted = again.finished.stats, first.finished.stats
    assert (stats.drafted_at, stats.accepted_at) == (wanted.drafted_at, wanted.accepted_at)
    assert stats.accepted_at[0] > 0.5 * stats.drafted_at[0] > 3
    harness.close()
