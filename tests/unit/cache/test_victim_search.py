"""A walk through victims: what goes lets its parent go next, what stays keeps everything before it."""

import pytest

from ninfer.api import ImageKind
from ninfer.cache.eviction import Evictor
from ninfer.cache.identity import encode_tokens
from ninfer.cache.node import DEVICE
from ninfer.cache.store import ContextStore
from ninfer.cache.victim_search import VictimSearch
from ninfer.core.step import DeviceLayout
from ninfer.obs.clock import SystemClock


def store_of(*lengths, on_value=lambda _facts: None):
    """A store with one path of pages per length; what was published first is worth least."""

    def keep_value(facts):
        on_value(facts)
        return float(facts.last_use_index)

    layout = DeviceLayout(
        num_pages=sum(lengths),
        page_pool_bytes={"main": 512},
        num_state_slots=0,
        state_image_bytes=0,
        num_lanes=1,
    )
    store = ContextStore(layout, [], keep_value, SystemClock())
    paths = []
    for length in lengths:
        parent, path = store.root_of(""), []
        for _ in range(length):
            (page,) = store.take_pages(1)
            tokens = encode_tokens([len(paths)] * 64)
            parent, _ = store.publish_page(parent, tokens, page)
            path.append(parent)
        paths.append(path)
        store.touch(path)
    return store, paths


def search_of(store):
    return VictimSearch(store, store.values.order_of(ImageKind.PAGE, DEVICE), DEVICE)


def test_what_goes_lets_its_parent_go_next():
    store, (first, second) = store_of(3, 2)
    search = search_of(store)
    taken = []
    while (found := search.take()) is not None:
        taken.append(found.stored)
        search.give_up(found.stored)
    search.end()
    assert taken == [*reversed(first), *reversed(second)]


def test_what_stays_keeps_everything_before_it():
    """A plan looks at a bounded number of replicas that turn out to be needed: one path must not use them up."""
    store, (first, second) = store_of(80, 2)
    search = search_of(store)
    assert search.take().stored is first[-1]
    tip = search.take().stored
    assert tip is second[-1]
    search.give_up(tip)
    assert search.take().stored is second[0]
    assert search.take() is None
    search.end()
    again = search_of(store)
    assert [again.take().stored, again.take().stored] == [first[-1], second[-1]], "all is as before"
    again.end()


def test_a_whole_path_that_goes_is_valued_once_for_the_plan_and_not_again_while_it_is_dropped():
    valued = []
    store, (first, second) = store_of(3, 2, on_value=valued.append)
    evictor = Evictor(store, lambda _tier: True, lambda _value: None)
    plan = evictor.plan_device(num_pages=3)
    assert [victim.stored for victim in plan.victims] == list(reversed(first))
    assert all(victim.facts for victim in plan.victims[1:]), "valued for this plan"
    valued.clear()
    evictor.apply_drops(plan)
    assert not valued
    assert all(node.is_gone for node in first)
    assert search_of(store).take().stored is second[-1], "the others stand as before"


@pytest.mark.parametrize(("num_pages", "num_taken"), [(2, 3), (5, 5), (-1, 0)])
def test_a_spare_page_is_planned_if_there_is_one_and_in_the_same_walk(num_pages, num_taken):
    valued = []
    store, _ = store_of(3, 2, on_value=valued.append)
    evictor = Evictor(store, lambda _tier: True, lambda _value: None)
    valued.clear()
    plan = evictor.plan_device(num_pages=num_pages, num_spare=1)
    assert plan.is_enough
    assert len(plan.victims) == num_taken
    assert len(valued) <= num_taken


def test_a_spare_page_does_not_help_where_there_are_too_few():
    store, _ = store_of(3, 2)
    evictor = Evictor(store, lambda _tier: True, lambda _value: None)
    assert not evictor.plan_device(num_pages=6, num_spare=1).is_enough
