"""What a tier gives back is bit for bit what it was given: real pool, real copier, real tiers, random ways."""

import hashlib
import itertools
import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ninfer_storage_host.arena import GRANULE_BYTES

from ninfer.api import ImageKey, ImageKind, PutItem
from ninfer.cache.identity import ImageHeader
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.exec.device_copy import HostCopier
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.obs.clock import SystemClock
from tests.integration.engine.real_tiers import open_tiers

NUM_PAGES = 8
HOST, DISK = 1, 2


class Ways:
    """Moves page images between a device and two tiers and remembers what each page held."""

    def __init__(self, folder, dtype):
        self.pool = KvPool(
            KvLayout(num_layers=3, num_kv_heads=2, head_dim=8, dtype=dtype), NUM_PAGES
        )
        self.page_bytes = self.pool.layout.page_bytes
        self.copier = HostCopier({"main": self.pool})
        self.tiers = open_tiers(folder, self.page_bytes, host_pages=40, disk_pages=80)
        self.wake = threading.Event()
        self.names = itertools.count()
        handles = [
            TierHandle(name, tier) for name, tier in zip(("h", "d"), self.tiers, strict=True)
        ]
        self.transfers = Transfers(
            handles, self.copier, SystemClock(), deadline_s=30.0, wake=self.wake.set
        )

    def header(self, name):
        return ImageHeader(
            kind=ImageKind.PAGE,
            end_tokens=64,
            num_uses=1,
            created_unix_s=1.0,
            last_use_unix_s=2.0,
            parent_digest=hashlib.sha256(str(name).encode()).digest(),
            domain=b"",
            tokens=b"t" * 256,
        )

    def move(self, name, source, target, page=-1):
        header = self.header(name)
        key = ImageKey(digest=header.parent_digest, kind=ImageKind.PAGE)
        return Move(
            key=key,
            header=header,
            num_bytes=self.page_bytes,
            source=source,
            target=target,
            location=page,
        )

    def do(self, *moves):
        self.transfers.start(moves)
        ended = []
        while len(ended) < len(moves):
            self.wake.wait(1.0)
            self.wake.clear()
            ended += self.transfers.poll()
        problems = [move.message or move.status for move in ended]
        assert problems == [MoveStatus.DONE] * len(moves)

    def fill(self, page, seed):
        """Random bytes, so that infinities and numbers that are none are among them."""
        content = torch.randint(
            0,
            256,
            (self.page_bytes,),
            dtype=torch.uint8,
            generator=torch.Generator().manual_seed(seed),
        )
        self.copier.copy_page_in(page, memoryview(content.numpy()))
        return content.numpy().tobytes()

    def content(self, page):
        buffer = bytearray(self.page_bytes)
        self.copier.copy_page_out(page, memoryview(buffer))
        return bytes(buffer)

    def close(self):
        self.transfers.close(10.0)
        for tier in self.tiers:
            assert tier.check() == []
            tier.close()


@pytest.fixture(params=[torch.bfloat16, torch.float64], ids=["bfloat16", "float64"])
def ways(request, tmp_path):
    ways = Ways(tmp_path, request.param)
    yield ways
    ways.close()


PATHS = st.lists(st.sampled_from([(HOST,), (DISK,), (HOST, DISK)]), min_size=1, max_size=NUM_PAGES)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(paths=PATHS, seed=st.integers(0, 2**31), targets=st.permutations(range(NUM_PAGES)))
def test_bytes_come_back_as_they_went(ways, paths, seed, targets):
    name = next(ways.names)
    contents = {page: ways.fill(page, seed + page) for page in range(len(paths))}
    for page, path in enumerate(paths):
        ways.do(ways.move((name, page), 0, path[0], page))
        for source, target in zip(path, path[1:], strict=False):
            ways.do(ways.move((name, page), source, target))
    for page in contents:
        ways.fill(page, seed - 1 - page)
    for page, path in enumerate(paths):
        ways.do(ways.move((name, page), path[-1], 0, targets[page]))
    assert {page: ways.content(targets[page]) for page in contents} == contents
    for page, path in enumerate(paths):
        for tier in path:
            ways.transfers.delete(tier, ways.move((name, page), 0, tier).key)


def test_a_batch_comes_back_page_by_page(ways):
    contents = [ways.fill(page, page) for page in range(NUM_PAGES)]
    for tier in (HOST, DISK):
        ways.do(*(ways.move(page, 0, tier, page) for page in range(NUM_PAGES)))
        ways.pool.kv.zero_()
        ways.do(*(ways.move(page, tier, 0, NUM_PAGES - 1 - page) for page in range(NUM_PAGES)))
        assert [ways.content(NUM_PAGES - 1 - page) for page in range(NUM_PAGES)] == contents
        ways.do(*(ways.move(page, tier, 0, page) for page in range(NUM_PAGES)))


def test_a_full_arena_in_pieces_holds_pages_like_any_other(ways):
    host = ways.tiers[HOST - 1]
    small = [
        ImageKey(digest=hashlib.sha256(b"small %d" % n).digest(), kind=ImageKind.PAGE)
        for n in range(host.usage().capacity_bytes // GRANULE_BYTES)
    ]
    host.put([PutItem(key=key, header=b"", payload=memoryview(b"x")) for key in small])
    host.delete(small[::2])
    contents = [ways.fill(page, page) for page in range(NUM_PAGES)]
    ways.do(*(ways.move(page, 0, HOST, page) for page in range(NUM_PAGES)))
    assert all(host.view(ways.move(page, 0, HOST).key) is None for page in range(NUM_PAGES))
    ways.do(*(ways.move(page, HOST, DISK) for page in range(NUM_PAGES)))
    for tier in (HOST, DISK):
        ways.pool.kv.zero_()
        ways.do(*(ways.move(page, tier, 0, page) for page in range(NUM_PAGES)))
        assert [ways.content(page) for page in range(NUM_PAGES)] == contents
