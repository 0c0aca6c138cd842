"""A policy learns from images that moved together: one short page says nothing about speed."""

from ninfer.builtin.lru import LruConfig, LruPolicy
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness


class Learner(LruPolicy):
    """Remembers what it was told."""

    def __init__(self, _context):
        super().__init__(LruConfig())
        self.told = []

    def observe_transfer(self, observed):
        self.told.append(observed)


def test_a_policy_is_told_of_all_that_moved_and_not_of_each_page():
    harness = Harness(num_pages=16, tiers=[DictTier(1 << 20)], vocab=50, policy=Learner)
    prompts = [[n] * (14 * 64) for n in (1, 2)]
    for prompt in prompts:
        harness.ask(prompt, 4)
        harness.settle()
    harness.policy.told.clear()
    restored = harness.ask(prompts[0], 4)
    harness.settle()
    told = [
        seen for seen in harness.policy.told if (seen.source_index, seen.target_index) == (1, 0)
    ]
    (bytes_restored,) = restored.finished.stats.restored_bytes.values()
    assert sum(seen.num_bytes for seen in told) == bytes_restored
    assert all(seen.seconds > 0.0 for seen in told)
    assert len(told) == 1, "pages of one batch are one measurement"
    harness.close()


def test_a_policy_is_not_told_of_images_that_were_not_there():
    tier = DictTier(1 << 20)
    harness = Harness(num_pages=16, tiers=[tier], vocab=50, policy=Learner)
    prompts = [[n] * (14 * 64) for n in (1, 2)]
    for prompt in prompts:
        harness.ask(prompt, 4)
        harness.settle()
    lost = list(tier.images)[1]
    del tier.images[lost]
    harness.policy.told.clear()
    harness.ask(prompts[0], 4)
    harness.settle()
    told = [seen for seen in harness.policy.told if seen.target_index == 0]
    assert sum(seen.num_bytes for seen in told) == harness.handles[0].counters.read_bytes
    harness.close()
