"""Copies that are under way while their object leaves the tree, and comes back."""

from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness

PROMPT = [1] * 65


def page_of_prompt(harness):
    tree, root = harness.store.tree, harness.store.root_of("")
    return tree.walk(root.domain, encode_tokens(PROMPT[:64]))[0]


def harness_with_a_copy_under_way():
    """The page is on the device and on the first tier; its copy to the second one waits for that tier."""
    slow = DictTier(1 << 20)
    harness = Harness(num_pages=16, tiers=[DictTier(1 << 20), slow], vocab=50)
    harness.ask(PROMPT, 1)
    harness.settle()
    slow.gate.clear()
    page = page_of_prompt(harness)
    assert harness.manager.copies_down.copy(page, 1, 2)
    return harness, slow, page


def test_an_object_that_left_and_came_back_keeps_its_new_copy():
    harness, slow, page = harness_with_a_copy_under_way()
    harness.store.forget(page)
    harness.ask(PROMPT, 1)
    again = page_of_prompt(harness)
    assert again is not page
    assert harness.manager.copies_down.copy(again, DEVICE, 2)
    slow.gate.set()
    harness.check_drained()
    harness.close()
    assert again.valid_on(2) is not None
    assert harness.store.names.key_of(again) in slow.images


def test_a_copy_of_an_object_that_left_is_removed():
    harness, slow, page = harness_with_a_copy_under_way()
    harness.store.forget(page)
    slow.gate.set()
    harness.check_drained()
    harness.close()
    assert not slow.images
    assert harness.store.ledgers[1].free_bytes == slow.capacity_bytes
