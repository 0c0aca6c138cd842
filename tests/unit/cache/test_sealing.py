"""A plan holds only for the state of the store that it was made for."""

import pytest

from ninfer.api import InvariantBroken
from ninfer.cache.identity import encode_tokens
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.resume import Prefix
from tests.fakes.harness import Harness


def test_a_plan_of_an_older_revision_is_refused_without_side_effects():
    harness = Harness(num_pages=8)
    harness.ask(list(range(40)), 4)
    manager, store = harness.manager, harness.store
    root = store.root_of("")
    prefix = Prefix(store.tree, root, encode_tokens([7] * 70), has_state=False)
    answer = harness.submit([7] * 70, 4)
    request = harness.scheduler.admission.queue.find(answer.id).request
    outcome = manager._planner.plan(manager.need_of(request), prefix)
    context = LaneContext(root=root, outcome=outcome, is_cached=True)
    store.give_pages(store.take_pages(1))
    before = (store.revision, store.pages.num_free, store.num_leased_pages)
    with pytest.raises(InvariantBroken, match="sealed at"):
        manager._sealer.seal(context, prefix)
    assert (store.revision, store.pages.num_free, store.num_leased_pages) == before
    assert not context.pages
    harness.run(answer)
    assert answer.tokens == harness.cold(answer)
    harness.check_drained()
    harness.close()
