"""What a durable tier kept is a full member of the cache after a restart."""

from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES


def prompt(name):
    return [(name * 7 + at) % 50 for at in range(5 * 64)]


def test_images_of_an_earlier_process_make_room_for_newer_ones():
    tier = DictTier(12 * (PAGE_BYTES + 400))
    harness = Harness(num_pages=16, tiers=[tier], vocab=50)
    for name in range(4):
        harness.ask(prompt(name), 2)
    harness.settle()
    harness.flush()
    harness.close()
    old = set(tier.images)
    assert len(old) >= 12

    harness = Harness(num_pages=16, tiers=[tier], vocab=50)
    for name in range(4, 10):
        harness.ask(prompt(name), 2)
        harness.settle()
    harness.flush()
    assert len(set(tier.images) - old) >= 10, "a full tier must not stay as it was for ever"
    harness.check_drained()
    harness.close()
