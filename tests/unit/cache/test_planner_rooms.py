"""What makes room for an outcome never gives up what the outcome reads, whichever candidate the room was planned for."""

from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES

START, MORE = [1] * 128, [2] * 65


class DearTransfers(LruPolicy):
    def price_s(self, outcome):
        num_moved = sum(transfer.num_images for transfer in outcome.transfers)
        return outcome.prefill_tokens + 1000.0 * num_moved


def harness_with_a_deep_point_below_and_a_shallow_one_on_the_device():
    """Two state slots: a shallow point's image has one, a request that runs on has the other."""
    harness = Harness(
        num_pages=30,
        num_lanes=2,
        has_state=True,
        num_slots=2,
        tiers=[DictTier(100 * (PAGE_BYTES + 300))],
        policy=lambda _: DearTransfers(LruConfig()),
        chunk=64,
        vocab=50,
    )
    harness.ask(START, 1)
    harness.ask([*START, *MORE], 1)
    harness.settle()
    store = harness.store
    path = store.tree.walk(store.root_of("").domain, encode_tokens([*START, *MORE]))
    tail = path[-1].tails[0]
    for stored in (tail.image, tail, path[-1]):
        store.drop_replica(stored, DEVICE)
    assert path[1].image.valid_on(DEVICE) is not None
    return harness


def test_a_shallow_point_that_is_cheaper_does_not_lose_its_own_image_to_its_own_plan():
    harness = harness_with_a_deep_point_below_and_a_shallow_one_on_the_device()
    running = harness.submit([3] * 70, 300, cache=False)
    while not running.tokens:
        harness.step()
    assert not harness.store.free_slots
    answer = harness.submit([*START, *MORE, 4], 4)
    for _ in range(50):
        harness.step()
    assert not running.finished
    assert answer.finished
    assert answer.tokens == harness.cold(answer)
    harness.run(running)
    harness.check_drained()
    harness.close()
