"""Seconds to take a disk tier over at start, against the number of images in it: journal read, tree rebuilt, no payload read.

Images are small, since payloads are not read: what counts is their number and the length of their headers.
"""

import random
import shutil
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.served import Bench
from benchmarks.table import Row
from ninfer.api import (
    ImageFacts,
    ImageKey,
    ImageKind,
    PutItem,
    PutStatus,
    TierContext,
    TierProvider,
)
from ninfer.cache.identity import ImageHeader, domain_key, encode_tokens, sha256
from ninfer.cache.recovery import by_value, recover
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.tier_space import TierSpace
from ninfer.core.step import PAGE_SIZE_TOKENS, DeviceLayout
from ninfer.core.without_collections import without_collections
from ninfer.obs.clock import SystemClock
from ninfer.plugins.catalog import PluginCatalog

PAGE_BYTES = 4096
PAGES_PER_CONTEXT = 100
BATCH = 256
IMAGE_BYTES = 24_000
"""Room for one image: its block, and what the journal entry is charged."""


class _NoHostMemory:
    def allocate_host(self, num_bytes: int) -> memoryview:
        raise NotImplementedError(f"a disk tier asked for {num_bytes} B of host memory")


def measure(bench: Bench) -> list[Row]:
    counts = bench.pick((1_000, 10_000, 50_000), (500, 2_000))
    return [_row(count, start_seconds(bench.folder / f"images-{count}", count)) for count in counts]


def _row(count: int, seconds: dict[str, float]) -> Row:
    return Row(
        figure=f"start with {count:,} images on disk",
        measured=seconds["total"],
        unit="s",
        bound=max(1.0, count / 10_000),
        sense="at most",
        judged="measured",
        note="opening the tier and rebuilding the tree; page cache filled; bound: 1 s per 10,000 images",
        raw=seconds,
    )


def start_seconds(folder: Path, num_images: int) -> dict[str, float]:
    """Fill a disk tier, close it, and take it over as a server does.

    Args:
        folder: removed afterwards.
        num_images: how many, in contexts of 100 pages.

    Returns:
        Seconds to "open" it, to "recover" the tree, and in "total"; "cpu" is processor time of all.

    Raises:
        RuntimeError: not every image was stored and found again.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with_images = _open(folder, num_images)
        images = _images(num_images)
        while batch := list(islice(images, BATCH)):
            if any(result.status is not PutStatus.STORED for result in with_images.put(batch)):
                raise RuntimeError("an image was not stored")
        with_images.close()
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        with without_collections():
            handle = _open(folder, num_images)
            opened_s = time.perf_counter()
            found = recover(_store(handle), handle, 1)
        ended_s, cpu_s = time.perf_counter(), time.process_time() - start_cpu_s
        handle.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found.num_kept != num_images:
        raise RuntimeError(f"{found.num_kept} of {num_images} images were found")
    return {
        "open": opened_s - start_s,
        "recover": ended_s - opened_s,
        "total": ended_s - start_s,
        "cpu": cpu_s,
    }


@cache
def _provider() -> TierProvider[Any]:
    return PluginCatalog.discover().tier("disk")[0]


def _open(folder: Path, num_images: int) -> TierHandle:
    provider = _provider()
    context = TierContext(
        tier_name="disk",
        fingerprint=bytes(32),
        clock=SystemClock(),
        host_allocator=_NoHostMemory(),
        page_image_bytes=PAGE_BYTES,
        cache_dir=folder,
        by_value=by_value,
    )
    options = {"path": folder / "disk", "capacity": num_images * IMAGE_BYTES + (4 << 20)}
    config = provider.config(**options, sync="none")
    return TierHandle("disk", provider.open(context, config))


def _store(handle: TierHandle) -> ContextStore:
    def last_use(facts: ImageFacts) -> float:
        return float(facts.last_use_index)

    space = TierSpace(
        name="disk",
        capacity_bytes=handle.usage().capacity_bytes,
        stored_bytes=handle.stored_bytes,
    )
    layout = DeviceLayout(
        num_pages=16,
        page_pool_bytes={"main": PAGE_BYTES},
        num_state_slots=0,
        state_image_bytes=0,
        num_lanes=1,
    )
    return ContextStore(layout, [space], last_use, SystemClock())


def _images(num_images: int) -> Iterator[PutItem]:
    rng = random.Random(1)
    payload = memoryview(rng.randbytes(PAGE_BYTES))
    now_s = time.time()
    domain = domain_key(salt="")
    parent, end_tokens = b"", 0
    for number in range(num_images):
        if number % PAGES_PER_CONTEXT == 0:
            parent, end_tokens = sha256(b"domain" + domain), 0
        tokens = encode_tokens([rng.randrange(50_000) for _ in range(PAGE_SIZE_TOKENS)])
        end_tokens += PAGE_SIZE_TOKENS
        header = ImageHeader(
            kind=ImageKind.PAGE,
            end_tokens=end_tokens,
            num_uses=1,
            created_unix_s=now_s,
            last_use_unix_s=now_s + number // PAGES_PER_CONTEXT,
            parent_digest=parent,
            domain=domain,
            tokens=tokens,
        )
        parent = sha256(b"page" + parent + tokens)
        key = ImageKey(digest=parent, kind=ImageKind.PAGE)
        yield PutItem(key=key, header=header.pack(), payload=payload)
