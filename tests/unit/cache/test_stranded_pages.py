"""A page on the device behind one that is not is used where it is.

It comes about where room is made for a request that then goes: of two pages that were to leave, the one that had a copy below
went at once, and the one behind it, which had to be copied first, is not given up any more.
"""

import pytest

from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

PROMPT = [1] * 64 + [2] * 64 + [3] * 64


@pytest.mark.parametrize("missing_pages", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("has_state", [False, True])
def test_a_page_behind_a_missing_one_is_used_in_place(has_state, missing_pages):
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
    for missing in missing_pages:
        store.drop_replica(path[missing], DEVICE)
    there = [node.replicas[DEVICE] for node in path]
    answer = harness.submit([*PROMPT, 4], 4)
    harness.run(answer, max_steps=200)
    assert answer.reason == "length"
    assert answer.tokens == harness.cold(answer)
    assert answer.cached == len(PROMPT)
    assert answer.finished.stats.restored_tokens == {"t1": 64 * len(missing_pages)}
    for node, before in zip(path, there, strict=True):
        assert before is None or node.replicas[DEVICE] is before
    harness.check_drained()
    harness.close()
