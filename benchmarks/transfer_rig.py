"""A KV pool and lower tiers with the engine's own transfer threads between them, without an engine."""

import gc
import os
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ninfer.api import ImageKey, ImageKind, TierContext
from ninfer.cache.copies_down import IN_FLIGHT_BYTES, MAX_IN_FLIGHT
from ninfer.cache.identity import ImageHeader, encode_tokens, sha256
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.exec.device_copy import build_copier
from ninfer.exec.host_memory import HostMemory
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.obs.clock import SystemClock
from ninfer.plugins.catalog import PluginCatalog

READ_BYTES = 1 << 20
DEADLINE_S = 300.0


def _layout(num_layers: int, num_kv_heads: int, head_dim: int) -> KvLayout:
    return KvLayout(
        num_layers=num_layers,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=torch.bfloat16,
    )


SMOLLM2 = {"main": _layout(30, 3, 64)}
TINY_HYBRID = {"draft": _layout(1, 1, 32), "main": _layout(2, 1, 32)}


class TransferRig:
    """Pools of a model's shape, filled with random bytes, and tiers below them once they are open.

    Args:
        layouts: typed pools by name.
        num_pages: pages of the pools.
    """

    def __init__(self, layouts: Mapping[str, KvLayout], num_pages: int) -> None:
        self.num_pages = num_pages
        self.pools = {name: KvPool(layout, num_pages) for name, layout in layouts.items()}
        for pool in self.pools.values():
            pool.kv.view(torch.int16).random_(-30_000, 30_000)
        self.page_bytes = sum(layout.page_bytes for layout in layouts.values())

    def open(self, folder: Path, kinds: Iterable[str]) -> None:
        """Open tiers, fastest first, with room for all pages; the disk tier's files are in `folder`."""
        catalog, clock = PluginCatalog.discover(), SystemClock()
        room = self.num_pages * (self.page_bytes + self.page_bytes // 8 + 8192) + (4 << 20)
        device = next(iter(self.pools.values())).device
        self.handles = []
        for kind in kinds:
            provider, _ = catalog.tier(kind)
            context = TierContext(
                tier_name=kind,
                fingerprint=sha256(b"bench"),
                clock=clock,
                host_allocator=HostMemory(device),
                page_image_bytes=self.page_bytes,
                cache_dir=folder,
            )
            options = {"path": folder / "tier"} if kind == "disk" else {}
            config = provider.config(capacity=room, **options)
            self.handles.append(TierHandle(kind, provider.open(context, config)))
        gc.collect()
        gc.freeze()  # as the engine does when it starts
        self._wake = threading.Event()
        copier = build_copier(self.pools)
        self.transfers = Transfers(
            self.handles, copier, clock, deadline_s=60.0, wake=self._wake.set
        )

    @property
    def memory(self) -> list[np.ndarray]:
        """The bytes of each pool, flat."""
        return [pool.kv.view(torch.uint8).numpy().reshape(-1) for pool in self.pools.values()]

    def moves(self, source: int, target: int, pages: Iterable[int]) -> list[Move]:
        """Return one move for each page; the image of a page is that of its place in `pages`."""
        return [self._move(source, target, number, page) for number, page in enumerate(pages)]

    def restore(self, moves: list[Move]) -> float:
        """Start all moves at once, as a request that resumes does; return seconds until the last ended."""
        start_s = time.perf_counter()
        self.transfers.start(moves)
        self._wait(moves, lambda _: None)
        return time.perf_counter() - start_s

    def spill(self, moves: list[Move]) -> float:
        """Start moves one by one, a number of them under way, as copies down do; return seconds."""
        start_s = time.perf_counter()
        waiting = iter(moves)

        def start(count: int) -> None:
            with self.transfers.together():
                for move in islice(waiting, count):
                    self.transfers.start([move])

        start(max(MAX_IN_FLIGHT, -(-IN_FLIGHT_BYTES // self.page_bytes)))
        self._wait(moves, start)
        return time.perf_counter() - start_s

    def _wait(self, moves, then) -> None:
        num_ended = 0
        until_s = time.perf_counter() + DEADLINE_S
        while num_ended < len(moves):
            if time.perf_counter() > until_s:
                raise TimeoutError(f"{len(moves) - num_ended} of {len(moves)} moves did not end")
            self._wake.wait(1.0)
            self._wake.clear()
            ended = self.transfers.poll()
            num_ended += len(ended)
            then(len(ended))
        bad = [move for move in moves if move.status is not MoveStatus.DONE]
        if bad:
            raise RuntimeError(f"{len(bad)} of {len(moves)} moves failed: {bad[0].message}")

    def forget(self, tier: int) -> None:
        """Delete everything from a tier and wait for it."""
        handle = self.handles[tier - 1]
        with self.transfers.together():
            for record in handle.records():
                self.transfers.delete(tier, record.key)
        while handle.usage().num_images:
            time.sleep(0.01)

    def _move(self, source: int, target: int, number: int, page: int) -> Move:
        tokens = encode_tokens(range(64 * number, 64 * number + 64))
        header = ImageHeader(
            kind=ImageKind.PAGE,
            end_tokens=64,
            num_uses=1,
            created_unix_s=0.0,
            last_use_unix_s=0.0,
            parent_digest=bytes(32),
            domain=b"",
            tokens=tokens,
        )
        return Move(
            key=ImageKey(digest=sha256(tokens), kind=ImageKind.PAGE),
            header=header,
            num_bytes=self.page_bytes,
            source=source,
            target=target,
            location=page,
        )

    def close(self) -> None:
        self.transfers.close(10.0)
        for handle in self.handles:
            handle.close()


def read_plainly(path: Path, targets: Iterable[memoryview]) -> float:
    """Read a file from its begin to its end into `targets`, one thread, 1 MiB at a time; return seconds."""
    start_s = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        for target in targets:
            at = 0
            while at < len(target):
                count = file.readinto(target[at : at + READ_BYTES])
                if not count:
                    raise RuntimeError(f"{path.name} is too short")
                at += count
    return time.perf_counter() - start_s


def write_plainly(path: Path, sources: Iterable[memoryview]) -> float:
    """Write a file from its begin to its end, one thread, 1 MiB at a time, and flush it; return seconds.

    A file that exists is written over.
    """
    start_s = time.perf_counter()
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        for source in sources:
            for at in range(0, len(source), READ_BYTES):
                file.write(source[at : at + READ_BYTES])
        os.fsync(file.fileno())
    return time.perf_counter() - start_s
