"""The host tier against a plain dict, under random operations and threads."""

import hashlib

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ninfer_storage_host.arena import round_up
from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.plugin import ninfer_storage_tiers
from ninfer_storage_host.tier import HostTier

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutStatus,
    ReadItem,
    ReadStatus,
    TierContext,
    TierError,
)


class PlainAllocator:
    def __init__(self):
        self.sizes = []

    def allocate_host(self, num_bytes):
        self.sizes.append(num_bytes)
        return memoryview(np.zeros(num_bytes, np.uint8))


class StoppedClock:
    def monotonic_s(self):
        return 0.0

    def unix_s(self):
        return 0.0


def open_tier(capacity=64 << 10, page=4096, state=10_000, allocator=None):
    context = TierContext(
        tier_name="ram",
        fingerprint=b"f" * 32,
        clock=StoppedClock(),
        host_allocator=allocator or PlainAllocator(),
        page_image_bytes=page,
        state_image_bytes=state,
    )
    return HostTier.open(context, HostConfig(capacity=capacity))


def key(name, kind=ImageKind.PAGE):
    return ImageKey(digest=hashlib.sha256(str(name).encode()).digest(), kind=kind)


def put(tier, name, payload, header=b"h"):
    return tier.put([PutItem(key=key(name), header=header, payload=memoryview(payload))])[0].status


def read(tier, name, num_bytes):
    buffer = bytearray(num_bytes)
    result = tier.read_into([ReadItem(key=key(name), buffer=memoryview(buffer))])[0]
    return result.status, result.header, bytes(buffer)


def test_delete_gives_back_what_was_allocated():
    tier = open_tier()
    tier.allocate(key(1), b"", 1000)
    assert put(tier, 1, b"x") is PutStatus.FAILED
    tier.delete([key(1)])
    assert tier.usage().used_bytes == 0
    assert tier.check() == []


def test_memory_that_was_given_out_outlives_the_tier():
    tier = open_tier()
    view = tier.allocate(key(2), b"", 4)
    tier.close()
    view[:] = b"safe"
    assert bytes(view) == b"safe"


def test_memory_is_asked_in_chunks_of_whole_pages():
    from ninfer_storage_host.arena import Arena

    allocator = PlainAllocator()
    arena = Arena(allocator, 100_000, slot_bytes=3000, max_chunk_bytes=40_000)
    assert allocator.sizes == [39936, 39936, 19968]
    assert sum(allocator.sizes) == arena.capacity_bytes
    assert len([1 for _ in range(100) if arena.take(3000)]) == 13 + 13 + 6


def test_capacity_is_a_quantity_or_auto():
    assert HostConfig(capacity="4GiB").resolve_capacity_bytes() == 4 << 30
    assert HostConfig(capacity=5).resolve_capacity_bytes() == 5
    assert 0 < HostConfig().resolve_capacity_bytes() <= 8 << 30
    with pytest.raises(ValueError):
        HostConfig(capacity="much")


def test_provider_opens_its_own_sample(tmp_path):
    (provider,) = ninfer_storage_tiers()
    context = TierContext(
        tier_name="t", fingerprint=b"", clock=StoppedClock(), host_allocator=PlainAllocator()
    )
    tier = provider.open(context, provider.sample_config(tmp_path))
    assert tier.usage().capacity_bytes == 1 << 20


class HostMachine(RuleBasedStateMachine):
    names = st.integers(0, 12)
    lengths = st.sampled_from([0, 1, 255, 256, 257, 1000, 4096, 4096, 4096, 10_000, 10_000])

    def __init__(self):
        super().__init__()
        self.tier = open_tier()
        self.images = {}
        self.pending = {}
        self.counter = 0

    def bytes_of(self, length):
        self.counter += 1
        return (self.counter.to_bytes(4, "little") * (length // 4 + 1))[:length]

    @rule(name=names, length=lengths)
    def put(self, name, length):
        payload = self.bytes_of(length)
        status = put(self.tier, name, payload, b"%d" % name)
        if status is PutStatus.STORED:
            assert name not in self.pending
            self.images[name] = payload
        elif status is PutStatus.FAILED:
            assert name in self.pending
        else:
            assert self.tier._arena.free_bytes < round_up(length), "it fits if its bytes are free"

    def largest_free(self):
        return max(self.tier._arena._lengths.values(), default=0)

    @rule(name=names, length=lengths)
    def allocate(self, name, length):
        target = self.tier.allocate(key(name), b"%d" % name, length)
        if name in self.images or name in self.pending:
            assert target is None
        elif target is None:
            assert self.largest_free() < round_up(length)
        else:
            payload = self.bytes_of(length)
            target[:] = payload
            self.pending[name] = payload

    @rule(name=names)
    def commit(self, name):
        if name in self.pending:
            self.tier.commit(key(name))
            self.images[name] = self.pending.pop(name)
        else:
            with pytest.raises(TierError):
                self.tier.commit(key(name))

    @rule(name=names)
    def delete(self, name):
        assert self.tier.delete([key(name)]) == [name in self.images]
        self.images.pop(name, None)
        self.pending.pop(name, None)

    @rule()
    def put_again(self):
        for name, payload in self.images.items():
            before = self.tier.usage()
            assert put(self.tier, name, payload, b"%d" % name) is PutStatus.STORED
            assert self.tier.usage() == before

    @invariant()
    def agrees_with_the_dict(self):
        assert self.tier.check() == []
        usage = self.tier.usage()
        everything = [*self.images.values(), *self.pending.values()]
        assert usage.used_bytes == sum(self.tier.stored_bytes(1, len(p)) for p in everything)
        assert usage.num_images == len(self.images)
        assert {r.key: r.num_bytes for r in self.tier.records()} == {
            key(n): len(p) for n, p in self.images.items()
        }
        for name, payload in self.images.items():
            assert read(self.tier, name, len(payload)) == (ReadStatus.READ, b"%d" % name, payload)
            view = self.tier.view(key(name))
            is_whole = len(self.tier._images[key(name)].extents) == 1
            assert view == ((b"%d" % name, payload) if is_whole else None)


HostMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHostMachine = HostMachine.TestCase


@pytest.mark.parametrize("what", ["ninfer_storage_host.tier._copy", "numpy.array_equal"])
def test_a_put_that_runs_out_of_memory_holds_nothing(what, monkeypatch):
    tier = open_tier()
    assert put(tier, 1, b"x" * 1000) is PutStatus.STORED
    used = tier.usage().used_bytes

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(what, fail)
        with pytest.raises(MemoryError):
            put(tier, 1, b"y" * 1000)
    assert tier.usage().used_bytes == used
    assert not tier.check()
    assert all(image.num_users == 0 for image in tier._images.values()), "a delete would wait"
    assert tier.delete([key(1)]) == [True]
    assert tier.usage().used_bytes == 0
