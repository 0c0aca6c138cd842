"""Servers that hang, die, forget, run out of memory or hold something else. Nothing raises, nothing is wrong."""

import pytest

from ninfer.api import ConfigError, PutStatus, ReadStatus, TierUnavailable


def test_server_that_dies_costs_failures_and_comes_back(server, opened, kit, caplog):
    tier = opened()
    kit.put(tier, "a", b"12345")
    server.kill()
    for _ in range(20):
        assert kit.put(tier, "b", b"1") is PutStatus.FAILED
        assert kit.read(tier, "a", 5)[0] is ReadStatus.FAILED
        assert tier.contains([kit.key("a")]) == [False]
        assert tier.delete([kit.key("c")]) == [False]
        assert tier.check() != []
    assert tier.usage().num_images == 1
    lost = [record for record in caplog.records if "redis_lost" in record.message]
    assert len(lost) == 1, "one line, however often it fails"
    server.start()
    assert kit.read(tier, "a", 5)[0] is ReadStatus.FAILED, "the pause is not over"
    opened.clock.now_s += 60
    assert kit.read(tier, "a", 5) == (ReadStatus.READ, b"h", b"12345")
    assert sum("redis_back" in record.message for record in caplog.records) == 1
    assert tier.check() == []


def test_pauses_between_attempts_double_up_to_the_limit(server, opened, kit):
    tier = opened(max_backoff_s=1.0)
    server.kill()
    pauses = []
    for _ in range(6):
        before = opened.clock.now_s
        failures = tier._store.link.num_failures
        while tier._store.link.num_failures == failures:
            kit.put(tier, "a", b"1")
            opened.clock.now_s += 0.05
        pauses.append(opened.clock.now_s - before)
    assert pauses == pytest.approx([0.05, 0.15, 0.25, 0.45, 0.85, 1.05], abs=0.06)


def test_server_that_hangs_is_given_up_after_the_time_limit(server, opened, kit):
    tier = opened(timeout_s=0.2)
    kit.put(tier, "a", b"12345")
    server.hang()
    try:
        assert kit.read(tier, "a", 5)[0] is ReadStatus.FAILED
        assert kit.put(tier, "b", b"1") is PutStatus.FAILED
    finally:
        server.go_on()
    opened.clock.now_s += 60
    assert kit.read(tier, "a", 5)[0] is ReadStatus.READ


def test_put_without_an_answer_leaves_nothing_behind(server, opened, kit):
    """The server hangs, gets the whole batch, the tier gives up, the server goes on and stores it."""
    tier = opened(timeout_s=0.3)
    tier._store.find = lambda fields: [None] * len(fields)
    server.hang()
    assert kit.put(tier, "late", bytes(5000)) is PutStatus.FAILED
    server.go_on()
    del tier._store.find
    client = server.client()
    assert client.ping()
    assert len(kit.names_on(server)) == 1, "the server has done what it was sent"
    opened.clock.now_s += 60
    assert kit.read(tier, "late", 5000)[0] is ReadStatus.MISSING
    assert tier.usage().used_bytes == 0
    assert tier.check() == []


def test_flushed_server_is_an_empty_tier_that_works(server, opened, kit):
    tier = opened(capacity=64 << 10)
    kit.put(tier, "a", bytes(40_000))
    server.client().flushall()
    assert kit.read(tier, "a", 40_000)[0] is ReadStatus.MISSING
    assert tier.delete([kit.key("a")]) == [False]
    assert kit.put(tier, "b", bytes(40_000)) is PutStatus.STORED
    assert kit.put(tier, "c", bytes(40_000)) is PutStatus.FULL, "the cap holds again"
    assert tier.usage().num_images == 1
    assert tier.check() == []


def test_server_out_of_memory_refuses_and_changes_nothing(server, opened, kit):
    tier = opened(capacity=1 << 30)
    kit.put(tier, "a", bytes(100_000))
    client = server.client()
    client.config_set("maxmemory", client.info("memory")["used_memory"])
    before = tier.usage()
    assert kit.put(tier, "b", bytes(100_000)) is PutStatus.FULL
    assert kit.put(tier, "a", bytes(100)) is PutStatus.FULL
    assert kit.names_on(server, "new") == []
    assert tier.usage() == before
    assert kit.read(tier, "a", 100_000)[0] is ReadStatus.READ
    assert tier.delete([kit.key("a")]) == [True], "room can always be made"
    assert tier.check() == []
    client.config_set("maxmemory", 0)
    assert kit.put(tier, "b", bytes(100_000)) is PutStatus.STORED


def test_server_that_cannot_save_refuses_writes_with_its_reason(server, opened, kit):
    tier = opened()
    server.client().config_set("min-replicas-to-write", 1)
    result = tier.put([kit.item("a", b"1")])[0]
    assert result.status is PutStatus.FAILED
    assert "NOREPLICAS" in result.message


@pytest.mark.parametrize("at", [0, 3, 4, 9, 20, 33, -1])
def test_every_damaged_byte_is_noticed(server, tier, kit, at):
    kit.put(tier, "a", kit.pattern("a", 3000))
    (name,) = kit.names_on(server)
    value = bytearray(server.client().get(name))
    value[at] ^= 1
    server.client().set(name, bytes(value))
    assert kit.read(tier, "a", 3000)[0] is ReadStatus.CORRUPT
    assert tier.contains([kit.key("a")]) == [False]
    assert kit.read(tier, "a", 3000)[0] is ReadStatus.MISSING
    assert tier.usage().used_bytes == 0
    assert tier.check() == []
    assert kit.put(tier, "a", kit.pattern("a", 3000)) is PutStatus.STORED


@pytest.mark.parametrize("damage", ["cut", "empty", "exchanged", "list"])
def test_other_content_at_a_key_is_corrupt(server, tier, kit, damage):
    kit.put(tier, "a", kit.pattern("a", 3000))
    (name,) = kit.names_on(server)
    client = server.client()
    if damage == "exchanged":
        kit.put(tier, "b", kit.pattern("b", 3000))
        other = next(key for key in kit.names_on(server) if key != name)
        client.copy(other, name, replace=True)
    elif damage == "list":
        client.delete(name)
        client.rpush(name, "1", "2")
    else:
        client.set(name, client.get(name)[:2000] if damage == "cut" else b"")
    assert kit.read(tier, "a", 3000)[0] is ReadStatus.CORRUPT
    assert kit.read(tier, "a", 3000)[0] is ReadStatus.MISSING
    assert tier.check() == []


def test_value_that_somebody_deleted_is_missing_and_uncounted(server, tier, kit):
    kit.put(tier, "a", bytes(3000))
    server.client().delete(*kit.names_on(server))
    assert tier.contains([kit.key("a")]) == [False]
    assert "1 images have no value" in tier.check()
    assert kit.read(tier, "a", 3000)[0] is ReadStatus.MISSING
    assert tier.usage().used_bytes == 0
    assert tier.check() == []


def test_lost_books_are_made_again(server, opened, kit):
    tier = opened()
    tier.put([kit.item(n, bytes(1000)) for n in range(3)])
    client = server.client()
    client.delete(tier._store.keys.meta)
    assert kit.put(tier, "x", b"1") is PutStatus.FAILED
    assert kit.put(tier, "x", b"1") is PutStatus.STORED
    assert tier.usage().num_images == 4
    assert tier.check() == []
    client.delete(tier._store.keys.index)
    assert kit.read(tier, 1, 1000)[0] is ReadStatus.MISSING, (
        "what the index does not know is not there"
    )
    assert len(kit.names_on(server)) == 4
    client.delete(tier._store.keys.meta)
    tier = opened()
    assert kit.names_on(server) == [], "values without an entry are removed at open"
    assert tier.check() == []


@pytest.mark.parametrize("name", ["meta", "index", "log"])
def test_books_of_another_type_stop_the_start_and_fail_puts(server, opened, kit, name):
    tier = opened()
    kit.put(tier, "a", b"1")
    key = getattr(tier._store.keys, name)
    server.client().delete(key)
    server.client().set(key, "something else")
    assert kit.put(tier, "b", b"1") is PutStatus.FAILED
    assert kit.names_on(server, "new") == []
    with pytest.raises(TierUnavailable, match="WRONGTYPE"):
        opened()


def test_absent_server_stops_the_start_with_its_address(server, opened):
    server.kill()
    with pytest.raises(TierUnavailable, match=rf"fleet.*127.0.0.1:{server.port}"):
        opened()


def test_missing_password_file_is_named(opened, tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        opened(password_file=tmp_path / "nowhere")


def test_server_that_evicts_by_itself_is_warned_of(server, opened, caplog):
    server.client().config_set("maxmemory-policy", "allkeys-lru")
    opened()
    assert any("redis_evicts" in record.message for record in caplog.records)
