"""A page on the device without the one before it, as two lanes with the same prefix can leave it, holds nobody up."""

import pytest

from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

PROMPT = [1] * 64 + [2] * 64 + [3] * 64


@pytest.mark.parametrize("has_state", [False, True])
def test_a_stranded_page_is_not_waited_for(has_state):
    harness = Harness(
        num_pages=12,
        num_lanes=2,
        has_state=has_state,
        num_slots=4 if has_state else 0,
        tiers=[DictTier(100 * (PAGE_BYTES + 300))],
        chunk=64,
        vocab=50,
    )
    harness.ask(PROMPT, 1)
    for number in range(5, 9):  # others push it to the tier
        harness.ask([number] * 600, 1)
    harness.settle()
    harness.ask(PROMPT, 1)
    harness.settle()
    store = harness.store
    path = store.tree.walk(store.root_of("").domain, encode_tokens(PROMPT))
    assert all(node.valid_on(DEVICE) and node.valid_on(1) for node in path)
    store.drop_replica(path[0], DEVICE)
    answer = harness.submit([*PROMPT, 4], 4)
    harness.run(answer, max_steps=200)
    assert answer.reason == "length"
    assert answer.tokens == harness.cold(answer)
    harness.check_drained()
    harness.close()
