"""Several engines on one shared tier: contexts of one are served by the other while both run."""

import random

import pytest

from ninfer.api import ReadStatus, TierChanges
from ninfer.cache import shared_tiers
from ninfer.cache.checks import check
from ninfer.cache.identity import ImageHeader
from tests.fakes.dict_tier import DictTier
from tests.fakes.shared_dict_tier import SharedDict, SharedDictTier
from tests.integration.scenarios.conversation import (
    IMAGE_BYTES,
    Session,
    asked,
    checked,
    engine,
    tokens,
    with_and_without_state,
)


@pytest.fixture(autouse=True)
def _asks_at_once(monkeypatch):
    monkeypatch.setattr(shared_tiers, "INTERVAL_S", 0.0)


def settle(*harnesses):
    """Let everybody hear of everything."""
    for harness in harnesses:
        harness.settle()
    for harness in harnesses:
        (shared,) = harness.manager.shared.tiers.values()
        storage = harness.tiers[shared.tier - 1].shared
        for _ in range(10_000):
            is_current = shared.cursor == b"%d" % (storage.num_cut + len(storage.log))
            if is_current and not shared.pending:
                break
            harness.step()
        else:
            raise AssertionError("changes do not arrive")
        assert check(harness.store) == []


def closed(*harnesses):
    for harness in harnesses:
        harness.check_drained()
    for harness in harnesses:
        harness.close()


def first_page(shared):
    return min(shared.images, key=lambda key: ImageHeader.unpack(shared.images[key][0]).end_tokens)


def fleet(num_pages, *, device_pages=32, **more):
    shared = SharedDict(num_pages * IMAGE_BYTES)
    return shared, [engine(device_pages, SharedDictTier(shared), **more) for _ in range(2)]


@with_and_without_state
def test_a_running_engine_serves_what_another_stored_later(has_state):
    _, (writer, reader) = fleet(200, has_state=has_state)
    session = Session(writer, "A", 1200)
    session.turn()
    session.turn()
    settle(writer, reader)
    session.harness = reader
    assert session.turn().computed < 64
    closed(writer, reader)


@with_and_without_state
def test_an_image_that_another_engine_deleted_is_a_miss(has_state):
    shared, (writer, reader) = fleet(200, has_state=has_state)
    session = Session(writer, "A", 1200)
    session.turn()
    settle(writer, reader)
    writer.tiers[0].delete(list(shared.images))
    session.harness = reader
    assert session.turn().computed > 1000, "before the news has come"
    closed(writer, reader)


def test_deletions_are_forgotten_without_deleting_again():
    shared, (writer, reader) = fleet(200)
    Session(writer, "A", 1200).turn()
    settle(writer, reader)
    assert reader.store.ledgers[0].used_bytes == writer.tiers[0].usage().used_bytes
    ends = {key: ImageHeader.unpack(shared.images[key][0]).end_tokens for key in shared.images}
    writer.tiers[0].delete(sorted(ends, key=ends.__getitem__, reverse=True))
    settle(reader)
    reader.transfers.close(5.0)
    assert reader.store.ledgers[0].used_bytes == 0
    assert list(reader.store.tree.nodes()) == []
    assert reader.tiers[0].deleted == []
    writer.close()


def test_books_of_all_engines_say_what_is_stored():
    _, (first, second) = fleet(200)
    Session(first, "A", 900).turn()
    Session(second, "B", 900).turn()
    settle(first, second, first)
    for harness in (first, second):
        assert harness.store.ledgers[0].used_bytes == harness.tiers[0].usage().used_bytes
    closed(first, second)


def test_an_image_waits_for_its_prefix_and_is_counted():
    shared, (writer, reader) = fleet(200)
    session = Session(writer, "A", 700)
    session.turn()
    settle(writer)
    head = first_page(shared)
    stored = shared.images.pop(head)
    settle(reader)
    known = reader.manager.shared
    assert known.num_strays == len(shared.images)
    assert reader.store.ledgers[0].foreign_bytes == reader.tiers[0].usage().used_bytes
    shared.images[head] = stored
    shared.log.append((writer.tiers[0], head, True))
    settle(reader)
    assert known.num_strays == 0
    assert reader.store.ledgers[0].foreign_bytes == 0
    session.harness = reader
    assert session.turn().computed < 64
    closed(writer, reader)


def test_an_image_whose_prefix_is_computed_here_finds_its_place():
    shared, (writer, reader) = fleet(200, device_pages=40)
    session = Session(writer, "A", 1200)
    session.turn()
    settle(writer)
    head = first_page(shared)
    del shared.images[head]
    settle(reader)
    assert reader.manager.shared.num_strays > 0
    asked(reader, session.tokens[:70])
    settle(reader)
    assert reader.manager.shared.num_strays == 0
    session.harness = reader
    assert session.turn().computed < 64
    closed(writer, reader)


def test_strays_are_deleted_when_old_and_in_the_way(monkeypatch):
    shared, (writer, reader) = fleet(40)
    Session(writer, "A", 700).turn()
    settle(writer)
    head = first_page(shared)
    num_stored = len(shared.images)
    del shared.images[head]
    settle(reader)
    assert reader.manager.shared.num_strays == num_stored - 1
    ledger = reader.store.ledgers[0]
    ledger.capacity_bytes = ledger.used_bytes
    settle(reader)
    assert reader.tiers[0].deleted == [], "their writer may have the prefix elsewhere"
    monkeypatch.setattr(shared_tiers, "STRAY_S", -1.0)
    for _ in range(3):
        settle(reader)
    assert reader.manager.shared.num_strays == 0
    closed(writer, reader)
    assert len(reader.tiers[0].deleted) == num_stored - 1


def test_a_cut_log_makes_everything_known_again():
    shared, (writer, reader) = fleet(200)
    reader.settle()
    session = Session(writer, "A", 1200)
    session.turn()
    writer.settle()
    shared.cut_log()
    settle(reader)
    session.harness = reader
    assert session.turn().computed < 64
    closed(writer, reader)


def test_a_restart_leaves_alone_what_it_has_no_prefix_for():
    shared, (writer, reader) = fleet(200)
    Session(writer, "A", 700).turn()
    settle(writer)
    head = first_page(shared)
    stored = shared.images.pop(head)
    num_left = len(shared.images)
    late = engine(32, SharedDictTier(shared))
    settle(late)
    assert len(shared.images) == num_left
    assert late.manager.shared.num_strays == num_left
    shared.images[head] = stored
    shared.log.append((writer.tiers[0], head, True))
    settle(late)
    assert late.manager.shared.num_strays == 0
    closed(writer, reader, late)


def test_a_tier_that_hangs_while_it_is_asked_stops_nobody():
    _, (writer, reader) = fleet(200)
    reader.tiers[0].gate.clear()
    for _ in range(20):
        reader.step()
    assert asked(reader, tokens("B", 200)).computed > 0
    reader.tiers[0].gate.set()
    closed(writer, reader)


def test_pages_that_are_on_the_device_already_get_their_replica():
    _, (writer, reader) = fleet(200)
    prompt = tokens("A", 700)
    reader.tiers[0].refuses = True
    asked(reader, prompt)
    reader.settle()
    reader.tiers[0].refuses = False
    assert reader.store.ledgers[0].used_bytes == 0
    asked(writer, prompt)
    settle(writer, reader)
    assert reader.store.ledgers[0].used_bytes == reader.tiers[0].usage().used_bytes > 0
    assert reader.store.ledgers[0].foreign_bytes == 0
    closed(writer, reader)


def test_an_engine_gives_up_what_another_stored_when_it_needs_the_room():
    shared, (writer, reader) = fleet(14)
    Session(writer, "A", 700).turn()
    settle(writer, reader)
    old = set(shared.images)
    for name in "BC":
        asked(reader, tokens(name, 600))
    reader.flush()
    settle(writer, reader)
    assert len(old & set(shared.images)) < len(old) / 2
    assert len(set(shared.images) - old) > 5
    closed(writer, reader)


def test_images_that_others_took_are_no_fault_of_the_tier():
    shared, (writer, reader) = fleet(200)
    Session(writer, "A", 1200).turn()
    settle(writer, reader)
    handle = reader.handles[0]
    for _ in range(20):
        handle.count_lost(ReadStatus.MISSING)
    assert handle.problems() == []
    handle.count_lost(ReadStatus.CORRUPT)
    assert handle.counters.num_missing == 20
    closed(writer, reader)


@pytest.mark.parametrize(
    "answer",
    [None, [], TierChanges(cursor="1"), TierChanges(records=[1], cursor=b"1"), OSError("lost")],
    ids=["none", "list", "text cursor", "no records", "raises"],
)
def test_a_tier_that_answers_nonsense_is_named_and_costs_nothing_else(answer):
    _, (writer, reader) = fleet(200)

    def changes(cursor, limit):
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader.tiers[0].changes = changes
    for _ in range(10):
        reader.step()
    checked(reader, reader.submit(tokens("A", 300), 4))
    assert any("changes" in problem for problem in reader.handles[0].problems())
    closed(writer, reader)


def test_a_private_tier_above_the_shared_one_changes_nothing():
    shared = SharedDict(300 * IMAGE_BYTES)
    writer = engine(32, DictTier(20 * IMAGE_BYTES), SharedDictTier(shared))
    reader = engine(32, DictTier(20 * IMAGE_BYTES), SharedDictTier(shared))
    for name in "ABC":
        session = Session(writer, name, 900)
        session.turn()
        writer.flush()
        settle(writer, reader)
        session.harness = reader
        assert session.turn().computed < 64
    closed(writer, reader)


@pytest.mark.parametrize("seed", range(6))
def test_random_use_by_three_engines_is_exact(seed):
    """A tier too small for all, so that engines delete what others know of."""
    rng = random.Random(seed)
    has_state = rng.random() < 0.5
    shared = SharedDict(rng.choice([8, 25, 60]) * IMAGE_BYTES)
    engines = [
        engine(rng.choice([16, 32]), SharedDictTier(shared), has_state=has_state) for _ in range(3)
    ]
    sessions = [Session(engines[0], f"{seed}/{n}", rng.randint(50, 600)) for n in range(5)]
    for _ in range(40):
        session = rng.choice(sessions)
        session.harness = rng.choice(engines)
        if len(session.tokens) > 850:
            session.tokens = session.tokens[:300]
        session.turn(rng.randint(1, 40))
        if rng.random() < 0.1:
            shared.cut_log()
        if rng.random() < 0.1 and shared.images:
            engines[0].tiers[0].delete([rng.choice(list(shared.images))])
        stored = [len(header) + len(payload) for header, payload in list(shared.images.values())]
        assert sum(stored) <= shared.capacity_bytes
    settle(*engines)
    closed(*engines)
