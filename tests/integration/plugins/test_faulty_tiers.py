"""Tiers that raise, answer wrongly, lie, leak or hang: answers stay right, and /health says who failed."""

import dataclasses
import random
import threading

import pytest
from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.tier import HostTier
from structlog.testing import capture_logs

from ninfer.api import (
    ImageKey,
    ImageKind,
    ImageRecord,
    PutResult,
    PutStatus,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierContext,
    TierUsage,
)
from ninfer.cache.tier_handle import MANY_LOST, TierHandle
from ninfer.engine.plugin_watch import PluginWatch
from ninfer.engine.service import EngineService
from ninfer.obs.clock import SystemClock
from ninfer.obs.model_info import ModelInfo
from tests.fakes.dict_tier import DictTier
from tests.integration.plugins.guarded import Faulty, raises, returns
from tests.integration.scenarios.conversation import IMAGE_BYTES, VOCAB, Session, engine, host

NAME = "tier t1 (plugin acme_plugin, acme-plugin 1.2)"


class FaultyTier(StorageTier):
    """A tier that is faulty by method; see `Faulty`."""

    def __init__(self, sound, **faults):
        self.faulty = Faulty(sound, **faults)

    capabilities = property(lambda self: self.faulty.sound.capabilities)

    def put(self, items):
        return self.faulty.put(items)

    def read_into(self, items):
        return self.faulty.read_into(items)

    def contains(self, keys):
        return self.faulty.contains(keys)

    def delete(self, keys):
        return self.faulty.delete(keys)

    def usage(self):
        return self.faulty.usage()

    def stored_bytes(self, header, payload):
        return self.faulty.stored_bytes(header, payload)

    def check(self):
        return self.faulty.check()

    def records(self):
        return self.faulty.records()

    def view(self, key):
        return self.faulty.view(key)

    def view_run(self, keys):
        return self.faulty.view_run(keys)

    def allocate(self, key, header, size):
        return self.faulty.allocate(key, header, size)

    def commit(self, key):
        return self.faulty.commit(key)

    def close(self):
        return self.faulty.close()


class HostMemory:
    def allocate_host(self, num_bytes):
        return memoryview(bytearray(num_bytes))


def host_tier(num_pages):
    context = TierContext(
        tier_name="t1",
        fingerprint=bytes(32),
        clock=SystemClock(),
        host_allocator=HostMemory(),
        page_image_bytes=512,
    )
    return HostTier.open(context, HostConfig(capacity=num_pages * 1024))


def named_engine(tier, **options):
    """An engine whose handle knows the plugin, and the service over it."""
    harness = engine(32, tier, **options)
    for handle in harness.handles:
        handle.identity = dataclasses.replace(
            handle.identity, plugin="acme_plugin", distribution="acme-plugin 1.2"
        )
        handle.guard.identity = handle.identity
    loop = harness.loop
    watch = PluginWatch([handle.guard for handle in harness.handles], harness.handles)
    loop.parts = dataclasses.replace(loop.parts, watch=watch)
    info = ModelInfo(
        name="fake", max_context_tokens=4096, vocab_size=VOCAB, kv_capacity_tokens=1, created_unix=0
    )
    thread = threading.current_thread()
    return harness, EngineService(loop, thread, info, max_queue=9, is_cache_enabled=True)


def work(harness, num_rounds=3):
    sessions = [Session(harness, name, 700) for name in "ABCD"]
    for _ in range(num_rounds):
        for session in sessions:
            session.turn()


def wrong_status(method, items):
    return [PutResult(status="stored") for _ in items]


def no_header(method, items):
    return [ReadResult(status=ReadStatus.READ, header=None) for _ in items]


PLAIN = {
    "put raises": ("put", raises(ConnectionError("gone"))),
    "put exits": ("put", raises(SystemExit(1))),
    "put answers None": ("put", returns(None)),
    "put answers too few": ("put", returns([])),
    "put answers True": ("put", lambda method, items: [True] * len(items)),
    "put answers text": ("put", wrong_status),
    "put fails": (
        "put",
        lambda method, items: [PutResult(status=PutStatus.FAILED, message="EIO")] * len(items),
    ),
    "read raises": ("read_into", raises(TimeoutError())),
    "read answers None": ("read_into", returns(None)),
    "read answers numbers": ("read_into", lambda method, items: [1] * len(items)),
    "read answers no header": ("read_into", no_header),
    "read fails": (
        "read_into",
        lambda method, items: [ReadResult(status=ReadStatus.FAILED, message="EIO")] * len(items),
    ),
    "delete raises": ("delete", raises(PermissionError("read only"))),
    "sizes raise": ("stored_bytes", raises(ArithmeticError())),
    "sizes are negative": ("stored_bytes", returns(-1)),
    "sizes are fractions": ("stored_bytes", returns(868.0)),
}
IN_PLACE = {
    "view raises": ("view_run", raises(KeyError("gone"))),
    "view answers True": ("view_run", returns(True)),
    "view answers bytes": ("view_run", lambda method, keys: (b"", b"")),
    "view answers the wrong way round": (
        "view_run",
        lambda method, keys: method(keys) and method(keys)[::-1],
    ),
    "view answers too much": (
        "view_run",
        lambda method, keys: method(keys) and ([b""] * (len(keys) + 1), method(keys)[1]),
    ),
    "view answers no header": ("view_run", lambda method, keys: ([], memoryview(b""))),
    "allocate raises": ("allocate", raises(MemoryError())),
    "allocate answers bytes": ("allocate", lambda method, key, header, size: bytes(size)),
    "allocate answers less": (
        "allocate",
        lambda method, key, header, size: memoryview(bytearray(size - 1)),
    ),
    "allocate answers more": (
        "allocate",
        lambda method, key, header, size: memoryview(bytearray(size + 1)),
    ),
    "allocate answers what cannot be written": (
        "allocate",
        lambda method, key, header, size: memoryview(bytes(size)),
    ),
    "commit raises": ("commit", raises(OSError("gone"))),
}


def check_fault(tier, method):
    with capture_logs() as logs:
        harness, service = named_engine(tier)
        work(harness)
    assert tier.faulty.calls[method]
    health = service.health()
    assert health.status == "degraded"
    assert any(f"{NAME} failed: {method}" in problem for problem in health.problems), (
        health.problems
    )
    assert health.plugins["acme_plugin"] == health.problems
    assert any(entry.get("operation") == method for entry in logs)
    tier.faulty.faults.clear()
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize("fault", PLAIN)
def test_a_tier_that_fails_costs_misses_and_is_named(fault):
    method, replacement = PLAIN[fault]
    check_fault(FaultyTier(host(60), **{method: replacement}), method)


@pytest.mark.parametrize("fault", IN_PLACE)
def test_an_addressable_tier_that_fails_costs_misses_and_is_named(fault):
    method, replacement = IN_PLACE[fault]
    check_fault(FaultyTier(host_tier(60), **{method: replacement}), method)


def test_a_tier_that_works_again_is_not_degraded_any_more():
    tier = FaultyTier(host(60), put=raises(ConnectionError("gone")))
    harness, service = named_engine(tier)
    work(harness)
    assert service.health().status == "degraded"
    tier.faulty.faults.clear()
    with capture_logs() as logs:
        work(harness)
        harness.settle()
    assert service.health().status == "ok"
    assert [entry["operation"] for entry in logs if entry["event"] == "tier_works_again"] == ["put"]
    harness.close()


def test_a_tier_that_claims_more_capacity_than_it_has_refuses_and_is_named():
    small = DictTier(4 * IMAGE_BYTES)
    usage = TierUsage(capacity_bytes=10**12, used_bytes=0, num_images=0)
    harness, service = named_engine(FaultyTier(small, usage=returns(usage)))
    work(harness)
    assert "refuses images that should fit its capacity" in service.health().problems[0]
    harness.check_drained()
    harness.close()


def test_a_tier_that_leaks_what_it_deletes_fills_up_and_is_named():
    tier = FaultyTier(host(20), delete=lambda method, keys: [True] * len(keys))
    harness, service = named_engine(tier)
    work(harness, num_rounds=6)
    assert "refuses images that should fit its capacity" in service.health().problems[0]
    harness.check_drained()
    harness.close()


def test_a_tier_that_says_it_takes_no_room_refuses_and_is_named():
    tier = FaultyTier(host(12), stored_bytes=returns(0))
    harness, service = named_engine(tier)
    work(harness)
    assert "refuses images that should fit its capacity" in service.health().problems[0]
    harness.check_drained()
    harness.close()


def test_a_tier_that_stores_nothing_and_says_it_does_loses_images_and_is_named():
    def lie(method, items):
        return [PutResult(status=PutStatus.STORED) for _ in items]

    harness, service = named_engine(
        FaultyTier(host(60), put=lie, contains=lambda m, keys: [True] * len(keys))
    )
    work(harness, num_rounds=8)
    (problem,) = service.health().problems
    assert problem.startswith(f"{NAME} loses images ")
    assert harness.handles[0].counters.num_missing >= MANY_LOST
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize("seed", range(4))
def test_sizes_that_change_from_call_to_call_do_not_break_the_books(seed):
    sizes = random.Random(seed)
    tier = FaultyTier(
        host(60), stored_bytes=lambda method, header, payload: sizes.choice((1, 868, 9000))
    )
    harness, _ = named_engine(tier)
    work(harness)
    harness.check_drained()
    harness.close()


def test_a_hung_tier_is_named():
    tier = host(60)
    harness, service = named_engine(tier, deadline_s=0.1)
    sessions = [Session(harness, name, 700) for name in "ABCD"]
    for session in sessions:
        session.turn()
    tier.gate.clear()
    for session in sessions:
        session.turn()
    assert f"{NAME} does not answer; contexts there count as missing" in service.health().problems
    tier.gate.set()
    harness.settle()
    sessions[0].turn()
    harness.check_drained()
    harness.close()


RECORDS = {
    "raise": raises(OSError("unreadable")),
    "None": returns(None),
    "numbers": returns([1, 2]),
    "no header": returns([
        ImageRecord(key=ImageKey(digest=bytes(32), kind=ImageKind.PAGE), header=None, num_bytes=1)
    ]),
    "foreign": returns([
        ImageRecord(key=ImageKey(digest=bytes(32), kind=ImageKind.PAGE), header=b"?", num_bytes=1)
    ]),
}


@pytest.mark.parametrize("fault", RECORDS)
def test_a_tier_that_cannot_say_what_it_kept_starts_empty(fault):
    harness, service = named_engine(FaultyTier(host(60), records=RECORDS[fault]))
    assert (service.health().status == "degraded") == (fault != "foreign")
    work(harness)
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "returned a value of type NoneType, not TierUsage"),
        (
            TierUsage(capacity_bytes=-1, used_bytes=0, num_images=0),
            "capacity_bytes is -1, not a number of bytes",
        ),
        (
            TierUsage(capacity_bytes=1e9, used_bytes=0, num_images=0),
            "capacity_bytes is 1000000000.0, not a number",
        ),
    ],
)
def test_a_capacity_that_is_none_counts_as_nothing(answer, problem):
    handle = TierHandle(
        "up", FaultyTier(host(1), usage=returns(answer)), plugin="p", distribution="d 1"
    )
    assert handle.usage().capacity_bytes == 0
    assert f"tier up (plugin p, d 1) failed: usage: {problem}" in handle.problems()[0]


def count(handle, status):
    if status is ReadStatus.READ:
        handle.count_good(1, 1)
    else:
        handle.count_lost(status)


@pytest.mark.parametrize("status", [ReadStatus.MISSING, ReadStatus.CORRUPT])
def test_a_tier_that_loses_one_image_in_five_or_more_is_named_until_it_does_better(status):
    handle = TierHandle("up", host(1), plugin="p", distribution="d 1")
    for number in range(200):
        count(handle, status if number % 6 == 0 else ReadStatus.READ)
    assert handle.problems() == []
    for number in range(100):
        count(handle, status if number % 3 == 0 else ReadStatus.READ)
    assert handle.problems() == [
        "tier up (plugin p, d 1) loses images that it had stored, 68 so far"
    ]
    handle.count_good(40, 40)
    assert handle.problems() == []
