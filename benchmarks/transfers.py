"""Bandwidth of bringing pages back to the device, end to end over queue, worker thread, tier and copier.

The ceilings are measured in turn with them: one thread that copies the same bytes in memory, and one that reads a
file of the same bytes, with the page cache dropped for both or filled for both.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.served import THREADS, Bench
from benchmarks.table import Row, median
from benchmarks.ttft import page_cache_state
from ninfer.api import ImageKey, ImageKind, TierContext
from ninfer.cache.identity import ImageHeader, encode_tokens, sha256
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Move, MoveStatus, Transfers
from ninfer.exec.device_copy import build_copier
from ninfer.exec.host_memory import HostMemory
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.obs.clock import SystemClock
from ninfer.plugins.catalog import PluginCatalog

SHAPE = KvLayout(num_layers=30, num_kv_heads=3, head_dim=64, dtype=torch.bfloat16)
BOUND = 0.6
READ_BYTES = 1 << 20


class Rig:
    """A KV pool of SmolLM2's shape and the two tiers, with the engine's own transfer threads between them."""

    def __init__(self, folder: Path, num_pages: int) -> None:
        self.num_pages = num_pages
        self.pool = KvPool(SHAPE, 2 * num_pages)
        self.pool.kv.view(torch.int16).random_(-30_000, 30_000)
        catalog, clock = PluginCatalog.discover(), SystemClock()
        room = 2 * num_pages * SHAPE.page_bytes
        self.handles = []
        for kind, options in (("host", {}), ("disk", {"path": folder / "tier"})):
            provider, _ = catalog.tier(kind)
            context = TierContext(
                tier_name=kind,
                fingerprint=sha256(b"bench"),
                clock=clock,
                host_allocator=HostMemory(self.pool.device),
                page_image_bytes=SHAPE.page_bytes,
                cache_dir=folder,
            )
            config = provider.config(capacity=room, **options)
            self.handles.append(TierHandle(kind, provider.open(context, config)))
        self._wake = threading.Event()
        copier = build_copier({"main": self.pool})
        self.transfers = Transfers(
            self.handles, copier, clock, deadline_s=60.0, wake=self._wake.set
        )

    def move(self, source: int, target: int, first_page: int) -> float:
        """Move all pages between the device and a tier; return seconds."""
        moves = [self._move(source, target, n, first_page + n) for n in range(self.num_pages)]
        start_s = time.perf_counter()
        self.transfers.start(moves)
        ended: list[Move] = []
        while len(ended) < len(moves):
            self._wake.wait(1.0)
            self._wake.clear()
            ended += self.transfers.poll()
        seconds = time.perf_counter() - start_s
        assert all(move.status is MoveStatus.DONE for move in ended), ended
        return seconds

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
            num_bytes=SHAPE.page_bytes,
            source=source,
            target=target,
            location=page,
        )

    def close(self) -> None:
        self.transfers.close(10.0)
        for handle in self.handles:
            handle.close()


def measure(bench: Bench) -> list[Row]:
    torch.set_num_threads(THREADS)
    num_pages, rounds = bench.pick(64, 8), bench.pick(9, 3)
    folder = bench.folder / "transfers"
    rig = Rig(folder, num_pages)
    num_bytes = num_pages * SHAPE.page_bytes
    spill_s = [rig.move(0, tier, 0) for tier in (1, 2)]
    source = np.random.default_rng(0).integers(0, 255, num_bytes, np.uint8)
    target = np.zeros(num_bytes, np.uint8)
    plain = folder / "plain"
    with plain.open("wb") as file:
        file.write(source.data)
        os.fsync(file.fileno())

    def copy() -> float:
        return _seconds(lambda: np.copyto(target, source))

    def read() -> float:
        return _seconds(lambda: _read(plain, memoryview(target)))

    host: dict[str, list[float]] = {"restore": [], "copy": []}
    for turn in range(rounds + 1):
        restore_s, copy_s = rig.move(1, 0, num_pages), copy()
        if turn:
            host["restore"].append(restore_s)
            host["copy"].append(copy_s)
    assert np.array_equal(*_halves(rig.pool, num_pages)), "restored bytes differ"
    disk: dict[str, list[float]] = {}
    states = {}
    for state in ("dropped", "filled"):
        disk[f"restore {state}"], disk[f"read {state}"] = [], []
        for _ in range(rounds):
            states[state] = page_cache_state(folder, is_dropped=state == "dropped")
            disk[f"restore {state}"].append(rig.move(2, 0, num_pages))
            disk[f"read {state}"].append(read())
    assert np.array_equal(*_halves(rig.pool, num_pages)), "restored bytes differ"
    rig.close()
    rows = [
        _row("host restore", host["restore"], host["copy"], num_bytes, "one thread copying memory")
    ]
    for state in ("dropped", "filled"):
        against = f"one thread reading a file, page cache {state}"
        figure = f"disk restore, page cache {state}"
        row = _row(figure, disk[f"restore {state}"], disk[f"read {state}"], num_bytes, against)
        row.raw["page_cache"] = states[state]
        rows.append(row)
    for row in rows:
        row.raw["first_spill_s"] = spill_s
    return rows


def _halves(pool: KvPool, num_pages: int):
    view = pool.kv.view(torch.int16).numpy()
    slots = 64 * num_pages
    return view[:, :, :slots], view[:, :, slots:]


def _seconds(run: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s


def _read(path: Path, buffer: memoryview) -> None:
    with path.open("rb", buffering=0) as file:
        at = 0
        while count := file.readinto(buffer[at : at + READ_BYTES]):
            at += count


def _row(
    figure: str, restore_s: list[float], plain_s: list[float], num_bytes: int, against: str
) -> Row:
    return Row(
        figure=f"{figure}, {num_bytes / 1e6:.0f} MB",
        measured=num_bytes / median(restore_s) / 1e9,
        unit="GB/s",
        reference=num_bytes / median(plain_s) / 1e9,
        against=against,
        bound=BOUND,
        ratio_unit="%",
        note="queue to last page on the device; payload bytes counted once",
        raw={"restore_s": restore_s, "plain_s": plain_s, "num_bytes": num_bytes},
    )
