"""Time of one admission decision under pressure, and how it grows with the number of stored checkpoints.

The real cache manager over a device and tiers that store no bytes. Every checkpoint is a conversation of one page that
all share, three pages of its own and a tail. The device holds a quarter of them and is full, the host tier is nearly
full, the rest is on disk. Requests take turns: a new conversation, and the next turn of an old one. Only
`CacheManager.admit` is timed, each call as one decision; copies end, requests are booked and full garbage collections
are made outside the timing, as by an engine that is idle between requests.
"""

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.served import Bench, default_policy
from benchmarks.table import Row, median, quantile
from ninfer.api import (
    ImageKey,
    MatcherContext,
    PolicyContext,
    PutResult,
    PutStatus,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierCapabilities,
    TierFacts,
    TierUsage,
)
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.cache.lane_context import ContextStatus, LaneContext
from ninfer.cache.manager import Blocked, CacheManager
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.tier_space import TierSpace
from ninfer.cache.transfers import Transfers
from ninfer.core.request import CacheParams, GenerationRequest
from ninfer.core.step import PAGE_SIZE_TOKENS, DeviceLayout
from ninfer.engine.garbage import GarbagePauses
from ninfer.obs.clock import SystemClock
from ninfer.plugins.catalog import PluginCatalog

PAGE_BYTES = 512
OWN_PAGES = 3
TAIL_TOKENS = 20
ANSWER_TOKENS = 4
OBJECTS = OWN_PAGES + 1
BOUND_MS = 2.0
GROWTH_BOUND = 10.0


class EmptyTier(StorageTier):
    """Keeps headers and no payload, so that copies cost nothing."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._headers: dict[ImageKey, bytes] = {}

    @property
    def capabilities(self):
        return TierCapabilities()

    def put(self, items):
        self._headers.update({item.key: item.header for item in items})
        return [PutResult(status=PutStatus.STORED) for _ in items]

    def read_into(self, items):
        found = [self._headers.get(item.key) for item in items]
        return [
            ReadResult(status=ReadStatus.MISSING)
            if header is None
            else ReadResult(status=ReadStatus.READ, header=header)
            for header in found
        ]

    def contains(self, keys):
        return [key in self._headers for key in keys]

    def delete(self, keys):
        return [self._headers.pop(key, None) is not None for key in keys]

    def usage(self):
        return TierUsage(
            capacity_bytes=self._capacity_bytes, used_bytes=0, num_images=len(self._headers)
        )

    def stored_bytes(self, header_bytes, payload_bytes):
        return header_bytes + payload_bytes

    def check(self):
        return []

    def close(self):
        pass


class EmptyCopier:
    """A device without bytes."""

    def copy_page_out(self, page, buffer):
        pass

    copy_page_in = copy_page_out
    copy_pages_out = copy_page_out
    copy_pages_in = copy_page_out
    copy_state_out = copy_page_out
    copy_state_in = copy_page_out


class Rig:
    """A cache manager filled with conversations.

    Args:
        num_checkpoints: conversations to store.
        policy: "lru-late" copies nothing ahead of pressure, else a kind of policy.
        folder: for what the policy keeps.
    """

    def __init__(self, num_checkpoints: int, policy: str, folder: Path) -> None:
        self.clock, self._wake = SystemClock(), threading.Event()
        num_pages = max(16, num_checkpoints * OBJECTS // 4)
        layout = DeviceLayout(
            num_pages=num_pages,
            page_pool_bytes={"main": PAGE_BYTES},
            num_state_slots=0,
            state_image_bytes=0,
            num_lanes=4,
        )
        image_bytes = PAGE_BYTES + 400
        capacities = [num_checkpoints * OBJECTS * image_bytes * 6 // 10, 1 << 40]
        tiers = [TierHandle(f"t{n}", EmptyTier(size)) for n, size in enumerate(capacities)]
        spaces = [
            TierSpace(name=tier.name, capacity_bytes=size, stored_bytes=tier.stored_bytes)
            for tier, size in zip(tiers, capacities, strict=True)
        ]
        chosen = _policy(policy, self.clock, [num_pages * PAGE_BYTES, *capacities], folder)
        self.store = ContextStore(layout, spaces, chosen.keep_value, self.clock)
        self.transfers = Transfers(
            tiers, EmptyCopier(), self.clock, deadline_s=60.0, wake=self._wake.set
        )
        self.manager = CacheManager(
            self.store,
            self.transfers,
            matcher=RadixMatcher.open(MatcherContext(), RadixConfig()),
            policy=chosen,
            clock=self.clock,
            slack_tokens=0,
        )
        self._chooser = random.Random(7)
        self._numbers = iter(range(10**9))
        self._shared = self._tokens(PAGE_SIZE_TOKENS)
        self.conversations: list[list[int]] = []
        for _ in range(num_checkpoints):
            self.serve(self.new_prompt(), [])
        self.settle()
        self._garbage = GarbagePauses(self.clock)

    def _tokens(self, count: int) -> list[int]:
        return [self._chooser.randrange(50_000) for _ in range(count)]

    def new_prompt(self) -> list[int]:
        return [*self._shared, *self._tokens(OWN_PAGES * PAGE_SIZE_TOKENS + TAIL_TOKENS)]

    def next_turn(self) -> list[int]:
        at = self._chooser.randrange(len(self.conversations))
        return [*self.conversations.pop(at), *self._tokens(8)]

    def serve(self, prompt: Sequence[int], decisions_s: list[float]) -> int:
        """Run a request to its end; return how many decisions it took."""
        request = GenerationRequest(
            request_id=str(next(self._numbers)),
            prompt_token_ids=prompt,
            max_tokens=ANSWER_TOKENS,
            cache=CacheParams(),
        )
        num_decisions = 0
        while True:
            start_s = time.perf_counter()
            context = self.manager.admit(request)
            decisions_s.append(time.perf_counter() - start_s)
            num_decisions += 1
            if not isinstance(context, Blocked) and self._is_ready(context):
                break
            if num_decisions > 1000:
                raise RuntimeError(f"a request cannot be placed: {context}")
            self.settle()
        tokens = [*prompt, *self._tokens(ANSWER_TOKENS)]
        self.manager.take_copies([context])
        self.manager.copies_done([context])
        self.manager.advance(context, tokens, len(prompt))
        self.manager.finish(context, tokens, len(tokens) - 1)
        self.conversations.append(tokens[:-1])
        self.manager.poll()
        return num_decisions

    def _is_ready(self, context: LaneContext) -> bool:
        while context.status is ContextStatus.PARKED:
            self._poll()
        return context.status is ContextStatus.READY

    def settle(self) -> None:
        while self._poll() or self.transfers.num_waiting() or not self.manager.copies_down.is_idle:
            pass

    def rest(self) -> None:
        """Do what an idle engine does: end copies, and collect garbage if it is time."""
        self.settle()
        self._garbage.note_work()
        self._garbage.collect_if_due()

    def _poll(self) -> bool:
        if self.manager.poll():
            return True
        if self.transfers.num_waiting():
            self._wake.wait(0.02)
        self._wake.clear()
        return False


def _policy(name: str, clock: SystemClock, capacities: list[int], folder: Path):
    names = ["device", "t0", "t1"]
    facts = [
        TierFacts(tier_name=tier, capacity_bytes=size)
        for tier, size in zip(names, capacities, strict=True)
    ]
    context = PolicyContext(
        clock=clock,
        tiers=facts,
        bytes_per_token=PAGE_BYTES // PAGE_SIZE_TOKENS,
        prefill_tokens_per_s=1_000.0,
        cache_dir=folder,
    )
    if name == "lru-late":
        return LruPolicy.open(context, LruConfig(write_through=False))
    provider, _ = PluginCatalog.discover().policy(name)
    return provider.open(context, provider.config())


def measure(bench: Bench) -> list[Row]:
    sizes = bench.pick((100, 1_000, 10_000), (50, 200))
    num_requests = bench.pick(600, 40)
    rows = []
    for policy in (default_policy(), "lru-late"):
        found = {size: _measure_one(size, policy, num_requests, bench.folder) for size in sizes}
        rows += _rows(policy, found, is_judged=policy != "lru-late")
    return rows


def _measure_one(size: int, policy: str, num_requests: int, folder: Path) -> dict[str, list[float]]:
    rig = Rig(size, policy, folder)
    for warm_up in range(20):
        rig.serve(rig.new_prompt() if warm_up % 2 else rig.next_turn(), [])
    decisions: list[float] = []
    per_request: list[float] = []
    for number in range(num_requests):
        rig.rest()
        mine: list[float] = []
        rig.serve(rig.new_prompt() if number % 2 else rig.next_turn(), mine)
        decisions += mine
        per_request.append(sum(mine))
    free_share = rig.store.ledgers[0].free_bytes / rig.store.ledgers[0].capacity_bytes
    rig.transfers.close(5.0)
    return {
        "decisions_s": decisions,
        "requests_s": per_request,
        "free_pages": [rig.store.pages.num_free],
        "host_free_share": [free_share],
    }


def _rows(policy: str, found: dict[int, dict[str, list[float]]], *, is_judged: bool) -> list[Row]:
    rows = []
    p99 = {size: 1e3 * quantile(raw["decisions_s"], 0.99) for size, raw in found.items()}
    sizes = list(found)
    judged_size = sizes[-2]
    for size, raw in found.items():
        middle = 1e3 * median(raw["decisions_s"])
        rows.append(
            Row(
                figure=f"admission decision p99, {size:,} checkpoints, {policy}",
                measured=p99[size],
                unit="ms",
                bound=BOUND_MS if is_judged and size == judged_size else None,
                sense="at most",
                judged="measured",
                note=f"{len(raw['decisions_s'])} decisions of {len(raw['requests_s'])} requests, "
                f"p50 {middle:.3f} ms",
                raw=raw,
            )
        )
    rows.append(
        Row(
            figure=f"admission decision p99, {sizes[-1]:,} against {judged_size:,}, {policy}",
            measured=p99[sizes[-1]],
            unit="ms",
            reference=p99[judged_size],
            against=f"{judged_size:,} checkpoints",
            bound=GROWTH_BOUND if is_judged else None,
            sense="at most",
            note="linear growth would be 10x",
        )
    )
    return rows
