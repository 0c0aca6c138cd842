"""The Redis tier on a real server: what it promises in normal operation, alone and shared."""

import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.plugin import ninfer_storage_tiers
from ninfer_tier_redis.record import MAX_VALUE_BYTES
from pydantic import ValidationError

from ninfer.api import ConfigError, PutStatus, ReadStatus, TierClosed, TierUnavailable


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_images_come_back_also_after_reopening(opened, kit):
    tier = opened()
    lengths = [0, 1, 7, 4096, 100_000]
    results = tier.put([kit.item(n, kit.pattern(n, n), b"head%d" % n) for n in lengths])
    assert [result.status for result in results] == [PutStatus.STORED] * len(lengths)
    for _ in range(2):
        for n in lengths:
            assert kit.read(tier, n, n) == (ReadStatus.READ, b"head%d" % n, kit.pattern(n, n))
        records = {(r.key, r.header, r.num_bytes) for r in tier.records()}
        assert records == {(kit.key(n), b"head%d" % n, n) for n in lengths}
        charged = sum(tier.stored_bytes(len(b"head%d" % n), n) for n in lengths)
        assert tier.usage().used_bytes == charged
        assert tier.usage().num_images == len(lengths)
        assert tier.check() == []
        tier.close()
        tier = opened()


def test_images_outlive_the_server_that_keeps_them(server, opened, kit):
    tier = opened()
    kit.put(tier, "a", b"12345")
    server.kill()
    server.start()
    opened.clock.now_s += 60
    assert kit.read(tier, "a", 5) == (ReadStatus.READ, b"h", b"12345")


def test_deleted_images_are_gone_and_their_room_is_free(tier, server, kit):
    tier.put([kit.item(n, kit.pattern(n, 5000)) for n in range(10)])
    assert tier.delete([kit.key(3), kit.key(99), kit.key(3)]) == [True, False, False]
    assert tier.usage().used_bytes == 9 * tier.stored_bytes(1, 5000)
    assert tier.contains([kit.key(n) for n in range(4)]) == [True, True, True, False]
    assert kit.read(tier, 3, 5000)[0] is ReadStatus.MISSING
    assert len(kit.names_on(server)) == 9


def test_put_replaces_and_counts_once(tier, kit):
    kit.put(tier, "a", bytes(1000))
    assert kit.put(tier, "a", b"new", b"other") is PutStatus.STORED
    assert kit.read(tier, "a", 3) == (ReadStatus.READ, b"other", b"new")
    assert tier.usage().used_bytes == tier.stored_bytes(len(b"other"), 3)
    twice = tier.put([kit.item("a", b"one"), kit.item("a", b"two")])
    assert [result.status for result in twice] == [PutStatus.STORED] * 2
    assert kit.read(tier, "a", 3)[2] == b"two"
    assert tier.check() == []


def test_what_is_there_already_is_not_sent_again(tier, server, kit):
    payload = kit.pattern("a", 1 << 20)
    kit.put(tier, "a", payload)
    before = server.client().info("stats")["total_net_input_bytes"]
    assert kit.put(tier, "a", payload) is PutStatus.STORED
    assert server.client().info("stats")["total_net_input_bytes"] - before < 10_000


def test_full_tier_changes_nothing(opened, server, kit):
    tier = opened(capacity=64 << 10)
    assert kit.put(tier, "a", bytes(40_000)) is PutStatus.STORED
    used = tier.usage()
    big, small = tier.put([kit.item("b", bytes(40_000)), kit.item("c", bytes(10_000))])
    assert big.status is PutStatus.FULL
    assert "65536" in big.message
    assert small.status is PutStatus.STORED
    assert kit.put(tier, "a", bytes(64_000)) is PutStatus.FULL, "a larger replacement"
    assert kit.read(tier, "a", 40_000)[0] is ReadStatus.READ
    tier.delete([kit.key("c")])
    assert tier.usage() == used
    assert server.client().keys("*:new:*") == []


def test_full_is_decided_on_the_server_when_two_write(opened, kit):
    """The second tier last heard of an empty server; its own look and its write race with the first one."""
    first, second = opened(capacity=64 << 10), opened(capacity=64 << 10)
    second._store.find = lambda fields: [None] * len(fields)
    assert kit.put(first, "a", bytes(40_000)) is PutStatus.STORED
    assert kit.put(second, "b", bytes(40_000)) is PutStatus.FULL
    assert second.usage() == first.usage()


def test_many_machines_together_never_exceed_the_cap(opened, kit):
    tiers = [opened(capacity=200 << 10) for _ in range(4)]
    problems = []

    def work(number, tier):
        for turn in range(30):
            kit.put(tier, f"{number}-{turn}", bytes(10_000))
            usage = tier.usage()
            if usage.used_bytes > usage.capacity_bytes:
                problems.append(usage)
            if turn % 3 == 0:
                tier.delete([kit.key(f"{number}-{turn - 3}")])

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(tiers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert tiers[0].check() == []
    assert tiers[0].usage().used_bytes <= 200 << 10


def test_other_models_and_installations_are_not_seen(opened, kit):
    kit.put(opened(), "a", b"1")
    for other in (opened(fingerprint=bytes(32)), opened(prefix="staging")):
        assert kit.read(other, "a", 1)[0] is ReadStatus.MISSING
        assert list(other.records()) == []
        assert other.usage().used_bytes == 0


def test_foreign_keys_are_left_alone(server, opened, kit):
    client = server.client()
    foreign = {b"ninfer": b"1", b"ninfer:{x}:image:page-00": b"2", b"else": b"3"}
    client.mset(foreign)
    tier = opened()
    kit.put(tier, "a", bytes(1000))
    tier.delete([kit.key("a")])
    opened(capacity=1 << 20)
    assert {name: client.get(name) for name in foreign} == foreign


def test_lower_cap_keeps_the_most_valuable(opened, kit):
    tier = opened(capacity=1 << 20)
    tier.put([kit.item(n, bytes(20_000)) for n in range(10)])
    order = [kit.key(n) for n in (7, 3, 9, 1, 0, 2, 4, 5, 6, 8)]
    smaller = opened(
        capacity=70_000, by_value=lambda records: sorted(records, key=lambda r: order.index(r.key))
    )
    assert {r.key for r in smaller.records()} == {kit.key(n) for n in (7, 3, 9)}
    assert smaller.usage().capacity_bytes == 70_000
    assert smaller.check() == []
    assert kit.put(tier, "more", bytes(20_000)) is PutStatus.FULL, "the cap is one for all"
    assert tier.usage() == smaller.usage()


def test_batches_are_cut_to_the_configured_size(opened, kit):
    tier = opened(capacity=16 << 20, batch=1 << 20)
    names = range(12)
    results = tier.put([kit.item(n, kit.pattern(n, 300_000)) for n in names])
    assert {result.status for result in results} == {PutStatus.STORED}
    assert all(kit.read(tier, n, 300_000)[2] == kit.pattern(n, 300_000) for n in names)


def test_closed_tier_raises(opened, kit):
    tier = opened()
    tier.close()
    tier.close()
    for call in (
        lambda: tier.put([]),
        lambda: tier.read_into([]),
        lambda: tier.contains([]),
        lambda: tier.delete([]),
        lambda: tier.changes(b"", 1),
        tier.records,
        tier.usage,
        tier.check,
    ):
        with pytest.raises(TierClosed):
            call()


def test_image_larger_than_a_redis_value_is_refused_at_open(opened):
    with pytest.raises(ConfigError, match="536870912 at most"):
        opened(page=MAX_VALUE_BYTES - 100)


def test_password_is_needed_and_never_told(server, opened, kit, tmp_path):
    server.client().config_set("requirepass", "s3cret")
    with pytest.raises(TierUnavailable, match="uthentication"):
        opened()
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    assert kit.put(opened(password_file=secret), "a", b"1") is PutStatus.STORED
    with pytest.raises(TierUnavailable) as wrong:
        opened(url=f"redis://:wr0ng@127.0.0.1:{server.port}/0")
    assert "wr0ng" not in str(wrong.value)
    assert "s3cret" not in repr(RedisConfig(password="s3cret"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_checks_the_certificate(server, opened, kit, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    client = server.client()
    client.config_set(
        "tls-cert-file", str(certificate), "tls-key-file", str(key), "tls-auth-clients", "no"
    )
    client.config_set("tls-port", port := free_port())
    url = f"rediss://localhost:{port}/0"
    with pytest.raises(TierUnavailable, match="certificate"):
        opened(url=url)
    tier = opened(url=url, tls_ca_file=certificate)
    assert kit.put(tier, "a", bytes(100_000)) is PutStatus.STORED
    assert kit.read(opened(url=url, tls_verify=False), "a", 100_000)[0] is ReadStatus.READ


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://x"}, "url"),
        ({"prefix": "a{b}"}, "prefix"),
        ({"capacity": 10}, "capacity"),
        ({"tls_verify": False}, "rediss"),
        ({"password": "a", "password_file": "/x"}, "not both"),
        ({"tls_cert_file": "/x", "url": "rediss://h"}, "go together"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_settings_are_named(settings, problem):
    with pytest.raises(ValidationError, match=problem):
        RedisConfig(**settings)


def test_provider_offers_a_private_server_as_sample(tmp_path, opened, kit):
    (provider,) = ninfer_storage_tiers()
    sample = provider.sample_config(tmp_path).model_dump(exclude={"url", "capacity", "timeout_s"})
    tier = opened(**sample)
    kit.put(tier, "a", b"1")
    tier.close()
    tier, other = opened(**sample), opened(**sample)
    assert kit.read(other, "a", 1)[2] == b"1"
    tier.close()
    assert kit.read(other, "a", 1)[2] == b"1", "the last one ends the server"
    place = Path(other._own.socket)
    other.close()
    assert not place.exists()
    assert kit.read(opened(**sample), "a", 1)[2] == b"1"


def test_damaged_data_of_a_private_server_are_put_aside(tmp_path, opened, kit):
    (provider,) = ninfer_storage_tiers()
    sample = provider.sample_config(tmp_path).model_dump(exclude={"url", "capacity", "timeout_s"})
    tier = opened(**sample)
    kit.put(tier, "a", b"1")
    tier.close()
    (log,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"no commands at all")
    tier = opened(**sample)
    assert kit.put(tier, "b", b"1") is PutStatus.STORED
    assert (tmp_path / "redis" / "appendonlydir.damaged0").exists()
