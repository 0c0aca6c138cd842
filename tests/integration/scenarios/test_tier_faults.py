"""Scenarios 29, 36: tiers that raise, refuse, hang, lose or change images. Misses, never wrong tokens, never a stop."""

import pytest

from ninfer.cache.checks import check
from tests.integration.scenarios.conversation import (
    IMAGE_BYTES,
    Session,
    asked,
    checked,
    ended,
    engine,
    host,
    tokens,
    with_and_without_state,
)


def two_sessions(harness):
    """The second pushes the first off the device."""
    pair = [Session(harness, name, 1200) for name in "AB"]
    for session in pair:
        session.turn(0)
    harness.settle()
    return pair


@with_and_without_state
def test_a_tier_that_raises_costs_a_miss_and_the_next_request_is_served(has_state):
    tier = host(100)
    harness = engine(32, tier, has_state=has_state)
    first, second = two_sessions(harness)
    tier.raises = True
    assert first.turn().computed > 21
    second.turn()
    tier.raises = False
    first.turn()
    second.turn()
    assert first.turn().computed <= 21
    assert harness.handles[0].counters.num_failed > 0
    harness.check_drained()
    harness.close()


@with_and_without_state
def test_a_tier_without_room_for_a_copy_drops_the_victim_and_serves_the_request(has_state):
    tier = host(100)
    tier.refuses = True
    harness = engine(32, tier, has_state=has_state)
    first, second = two_sessions(harness)
    for session in (first, second, first, second):
        session.turn()
    ended(harness)


@with_and_without_state
def test_reads_from_a_hung_tier_become_misses_at_the_deadline_and_other_lanes_go_on(has_state):
    tier = host(100)
    harness = engine(32, tier, has_state=has_state, deadline_s=0.5)
    first, _ = two_sessions(harness)
    tier.gate.clear()
    parked = harness.submit(first.prompt(), 6)
    beside = harness.submit(tokens("beside", 100), 6)
    checked(harness, beside)
    assert not parked.finished
    checked(harness, parked)
    checked(harness, harness.submit(tokens("after", 300), 4))
    tier.gate.set()
    harness.check_drained()
    first.turn()
    assert not check(harness.store)
    harness.close()


@with_and_without_state
def test_spills_to_a_hung_tier_give_their_pages_back_at_the_deadline(has_state):
    tier = host(100)
    harness = engine(32, tier, has_state=has_state, deadline_s=0.1)
    harness.policy.wants_copy = lambda facts, target: False
    asked(harness, tokens("A", 1200))
    tier.gate.clear()
    asked(harness, tokens("B", 1200))
    asked(harness, tokens("C", 1200))
    tier.gate.set()
    ended(harness)


@with_and_without_state
def test_a_tier_that_answers_after_the_deadline_touches_no_device_memory(has_state):
    tier = host(100)
    harness = engine(32, tier, has_state=has_state, deadline_s=0.1)
    first, second = two_sessions(harness)
    tier.gate.clear()
    answer = harness.submit(first.prompt(), 30)
    while answer.cached is None:
        harness.step()
    tier.gate.set()
    checked(harness, answer)
    second.turn()
    ended(harness)


def damage_deleted(tier, keys):
    for key in keys:
        del tier.images[key]


def damage_reported(tier, keys):
    for key in keys:
        tier.images[key] = (tier.images[key][0], None)


def damage_swapped(tier, keys):
    """Each name leads to the content of another."""
    images = [tier.images[key] for key in keys]
    for key, image in zip(keys, images[1:] + images[:1], strict=True):
        tier.images[key] = image


def damage_header(tier, keys):
    for key in keys:
        header, payload = tier.images[key]
        tier.images[key] = (header[:-1] + bytes([header[-1] ^ 1]), payload)


@with_and_without_state
@pytest.mark.parametrize("damage", [damage_deleted, damage_reported, damage_swapped, damage_header])
@pytest.mark.parametrize("part", ["all", "first", "last", "every third"])
def test_images_that_were_lost_or_changed_are_computed_again(has_state, damage, part):
    tier = host(100)
    harness = engine(20, tier, has_state=has_state)
    first, second = [Session(harness, name, 700) for name in "AB"]
    first.turn(0)
    second.turn(0)
    harness.settle()
    ends = {node.end_tokens: key for node, key in named(harness, first.tokens)}
    keys = [ends[end] for end in sorted(ends)]
    chosen = {
        "all": keys,
        "first": keys[:2],
        "last": keys[-2:],
        "every third": keys[::3],
    }[part]
    damage(tier, chosen)
    first.turn()
    second.turn()
    first.turn()
    assert second.turn().computed <= 21
    harness.check_drained()
    harness.close()


def named(harness, path):
    """Nodes of a path with their names on the tier."""
    domain = harness.store.root_of("").domain
    encoded = b"".join(token.to_bytes(4, "big") for token in path)
    for node in harness.store.tree.walk(domain, encoded):
        yield node, harness.store.names.key_of(node)


@with_and_without_state
def test_what_was_restored_before_a_lost_page_is_used(has_state):
    tier = host(100)
    harness = engine(20, tier, num_slots=8, has_state=has_state)
    prompt = tokens("A", 700)
    asked(harness, prompt, 2, markers=[256])
    asked(harness, tokens("B", 1200), 2)
    harness.settle()
    lost = [key for node, key in named(harness, prompt) if node.end_tokens == 448]
    damage_deleted(tier, lost)
    answer = asked(harness, prompt, 2)
    assert answer.cached == 384
    ended(harness)


@with_and_without_state
def test_a_restart_on_a_smaller_tier_keeps_the_most_recent_context(has_state):
    tier = host(200)
    harness = engine(24, tier, has_state=has_state)
    for number in range(6):
        asked(harness, tokens(number, 600), 4)
    harness.settle()
    harness.flush()
    ended(harness)
    tier.capacity_bytes = 14 * IMAGE_BYTES
    harness = engine(24, tier, has_state=has_state)
    assert asked(harness, tokens(5, 600), 4).cached == 599
    assert asked(harness, tokens(0, 600), 4).cached <= 3
    ended(harness)


@with_and_without_state
def test_a_restart_of_another_layout_ignores_what_it_cannot_read(has_state):
    tier = host(200)
    harness = engine(24, tier, has_state=has_state)
    asked(harness, tokens(0, 600), 4)
    harness.flush()
    ended(harness)
    for key, (header, payload) in list(tier.images.items()):
        tier.images[key] = (header, payload[:-8])
    harness = engine(24, tier, has_state=has_state)
    assert asked(harness, tokens(0, 600), 4).cached == 0
    ended(harness)


@with_and_without_state
def test_what_a_tier_refuses_goes_to_the_next_one(has_state):
    refusing = host(100)
    refusing.refuses = True
    harness = engine(32, refusing, host(200), has_state=has_state)
    harness.policy.wants_copy = lambda facts, target: False
    first, second = two_sessions(harness)
    for session in (first, second, first, second):
        assert session.turn().computed <= 21
    ended(harness)
