"""What tiers on one server tell each other."""

import pytest
from ninfer_tier_redis import scripts

from ninfer.api import PutStatus


@pytest.fixture
def pair(opened):
    return opened(), opened()


def told(tier, cursor, limit=1000):
    """Follow changes to their end; returns the names of records and removed images, and the cursor."""
    records, removed = {}, set()
    for _ in range(1000):
        changes = tier.changes(cursor, limit)
        records.update((record.key, record) for record in changes.records)
        removed.update(changes.removed)
        if changes.cursor == cursor:
            return records, removed, cursor
        cursor = changes.cursor
    raise AssertionError("changes do not end")


def test_first_question_tells_the_place_only(pair, kit):
    first, second = pair
    kit.put(first, "before", b"1")
    changes = second.changes(b"", 10)
    assert (changes.records, changes.removed) == ((), ())
    kit.put(first, "after", b"12", b"head")
    records, removed, _ = told(second, changes.cursor)
    (record,) = records.values()
    assert (record.key, record.header, record.num_bytes) == (kit.key("after"), b"head", 2)
    assert removed == set()


def test_own_changes_are_not_told(pair, kit):
    first, second = pair
    cursor = first.changes(b"", 10).cursor
    kit.put(first, "a", b"1")
    first.delete([kit.key("a")])
    kit.put(second, "b", b"1")
    records, removed, _ = told(first, cursor)
    assert (set(records), removed) == ({kit.key("b")}, set())


def test_only_the_last_change_of_an_image_is_told(pair, kit):
    first, second = pair
    cursor = second.changes(b"", 10).cursor
    for name in "abc":
        kit.put(first, name, b"1")
    first.delete([kit.key("a"), kit.key("b")])
    kit.put(first, "b", b"2")
    second.delete([kit.key("c")])
    records, removed, _ = told(second, cursor)
    assert (set(records), removed) == ({kit.key("b")}, {kit.key("a")})


def test_answers_are_cut_to_the_limit_and_go_on(pair, kit):
    first, second = pair
    cursor = second.changes(b"", 10).cursor
    first.put([kit.item(n, b"1") for n in range(25)])
    assert len(second.changes(cursor, 10).records) == 10
    records, _, _ = told(second, cursor, limit=10)
    assert set(records) == {kit.key(n) for n in range(25)}


@pytest.mark.parametrize(
    "loss", ["log cut", "log deleted", "flushed", "meta deleted", "unknown cursor"]
)
def test_everything_is_listed_when_the_place_is_lost(pair, server, kit, loss):
    first, second = pair
    cursor = second.changes(b"", 10).cursor
    first.put([kit.item(n, b"1") for n in range(30)])
    client, keys = server.client(), second._store.keys
    if loss == "log cut":
        client.xtrim(keys.log, maxlen=3, approximate=False)
    elif loss == "log deleted":
        client.delete(keys.log)
    elif loss == "meta deleted":
        client.delete(keys.meta)
        assert kit.put(first, "more", b"1") is PutStatus.FAILED
    elif loss == "unknown cursor":
        cursor = b"from another world"
    else:
        client.flushall()
        for _ in range(2):
            first.put([kit.item(n, b"1") for n in range(30)])
    records, _, cursor = told(second, cursor, limit=10)
    assert set(records) == {kit.key(n) for n in range(30)}
    kit.put(first, "later", b"1")
    records, _, _ = told(second, cursor)
    assert set(records) == {kit.key("later")}


def test_the_log_is_bounded(pair, server, kit, monkeypatch):
    first, second = pair
    monkeypatch.setattr(scripts, "COMMIT", scripts.COMMIT.replace(str(scripts.MAX_LOG), "100"))
    cursor = second.changes(b"", 10).cursor
    for turn in range(4):
        first.put([kit.item((turn, n), b"1") for n in range(200)])
    assert server.client().xlen(second._store.keys.log) < 400
    records, _, _ = told(second, cursor)
    assert len(records) == 800


def test_deletions_that_did_not_reach_the_server_come_back_as_records(server, opened, kit):
    tier = opened()
    tier.put([kit.item(n, b"1") for n in range(3)])
    cursor = tier.changes(b"", 10).cursor
    server.kill()
    assert tier.delete([kit.key(0)]) == [False]
    assert tier.changes(cursor, 10).cursor == cursor, "nothing is told while the server is away"
    server.start()
    opened.clock.now_s += 60
    records, _, _ = told(tier, cursor)
    assert set(records) == {kit.key(n) for n in range(3)}
