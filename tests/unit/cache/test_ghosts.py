"""Memory of evicted objects: bounded, right, and continued by whatever comes back."""

from hypothesis import given
from hypothesis import strategies as st

from ninfer.cache.ghosts import MAX_BYTES, MAX_ENTRIES, Ghosts
from ninfer.cache.identity import encode_tokens, sha256
from ninfer.cache.names import Names
from ninfer.cache.node import DEVICE, PageNode, StateImage
from ninfer.cache.store import ContextStore
from ninfer.core.step import DeviceLayout


class SettableClock:
    def __init__(self):
        self.now_s = 0.0

    def monotonic_s(self):
        return self.now_s

    def unix_s(self):
        return self.now_s


def page_node(number, *, num_uses=1, last_use_s=0.0, created_s=0.0):
    root = PageNode(None, b"", num_tiers=1, now_s=0.0, use_index=0)
    node = PageNode(root, encode_tokens([number] * 64), num_tiers=1, now_s=0.0, use_index=0)
    node.num_uses, node.last_use_s, node.created_s = num_uses, last_use_s, created_s
    return node


def ghosts(**bounds):
    return Ghosts(Names(SettableClock(), sha256), **bounds)


def revived(table, number, now_s):
    node = page_node(number, last_use_s=now_s, created_s=now_s)
    table.revive(node)
    return node


def stateful_store(clock):
    layout = DeviceLayout(
        num_pages=4,
        page_pool_bytes={"main": 512},
        num_state_slots=2,
        state_image_bytes=16,
        num_lanes=1,
    )
    return ContextStore(layout, [], lambda facts: float(facts.last_use_index), clock)


def test_a_page_that_comes_back_continues_its_uses_and_its_age():
    clock = SettableClock()
    store = stateful_store(clock)
    tokens = encode_tokens([7] * 64)
    node, _ = store.publish_page(store.root_of(""), tokens, store.take_pages(1)[0])
    store.touch([node])
    clock.now_s = 30.0
    store.touch([node])
    store.drop_replica(node, DEVICE)
    clock.now_s = 60.0
    again, _ = store.publish_page(store.root_of(""), tokens, store.take_pages(1)[0])
    assert again is not node
    assert (again.num_uses, again.created_s, again.last_use_s) == (4, 0.0, 60.0)
    facts = store.values.facts_of(again, DEVICE)
    assert (facts.num_uses, facts.created_s) == (4, 0.0)
    other, _ = store.publish_page(store.root_of("x"), tokens, store.take_pages(1)[0])
    assert other.num_uses == 1, "another tenant's content is another path"


def test_a_state_that_is_captured_again_was_not_used_by_that():
    store = stateful_store(SettableClock())
    node, _ = store.publish_page(store.root_of(""), encode_tokens([7] * 64), store.take_pages(1)[0])
    for _ in range(3):
        image = store.publish_image(node, store.take_slot())
        assert image.num_uses == 1
        store.drop_replica(image, DEVICE)
    image = store.publish_image(node, store.take_slot())
    store.touch([image])
    store.drop_replica(image, DEVICE)
    assert store.publish_image(node, store.take_slot()).num_uses == 2
    assert node.num_uses == 1, "a page and the state at its end are told apart"


def test_uses_are_forgotten_after_a_long_idle_time():
    table = ghosts(forget_after_s=600.0)
    table.remember(page_node(1, num_uses=5, last_use_s=100.0))
    table.remember(page_node(2, num_uses=5, last_use_s=100.0))
    assert revived(table, 1, 700.0).num_uses == 6
    late = revived(table, 2, 700.1)
    assert (late.num_uses, late.created_s) == (1, 700.1)


def test_what_came_back_is_remembered_once():
    table = ghosts()
    table.remember(page_node(1, num_uses=5))
    assert revived(table, 1, 1.0).num_uses == 6
    assert revived(table, 1, 1.0).num_uses == 1


def test_the_longest_unused_of_a_full_row_is_forgotten():
    table = ghosts(max_entries=8)
    for number in range(8):
        table.remember(page_node(number, num_uses=10, last_use_s=float(number)))
    table.remember(page_node(8, num_uses=10, last_use_s=-1.0))
    assert revived(table, 8, 10.0).num_uses == 1, "older than everything in the row"
    table.remember(page_node(9, num_uses=10, last_use_s=8.0))
    assert [revived(table, number, 10.0).num_uses for number in (0, 1, 9)] == [1, 11, 11]


def test_a_table_without_room_remembers_nothing_and_does_no_harm():
    table = ghosts(max_bytes=100)
    table.remember(page_node(1))
    assert revived(table, 1, 0.0).num_uses == 1


def test_the_default_table_is_within_both_bounds():
    table = ghosts()
    assert table.num_bytes <= MAX_BYTES
    assert table.num_bytes // 28 <= MAX_ENTRIES


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 2**40)), max_size=120),
    st.integers(8, 64),
)
def test_it_returns_exactly_what_was_remembered_or_nothing_and_never_grows(steps, max_entries):
    table = ghosts(max_entries=max_entries)
    before = table.num_bytes
    oracle = {}
    for at, (is_eviction, number, uses) in enumerate(steps):
        if is_eviction:
            table.remember(page_node(number, num_uses=uses, last_use_s=float(at), created_s=-at))
            oracle[number] = (min(uses, 2**32 - 1) + 1, -at)
        else:
            found = revived(table, number, float(at))
            if (found.num_uses, found.created_s) != (1, at):
                assert (found.num_uses, found.created_s) == oracle.pop(number)
    assert table.num_bytes == before


def test_an_image_and_its_page_have_different_keys():
    table = ghosts()
    node = page_node(1, num_uses=3)
    table.remember(node)
    image = StateImage(node, num_tiers=1, now_s=0.0, use_index=0)
    table.revive(image)
    assert image.num_uses == 1
