"""Replays one trace through the real context store, planner and a policy. Knows no files and no tables.

A block of the trace takes the place of one page of the store, whose 64 tokens then stand for the tokens of a block. Its
first token is the number of the block, so that two blocks share no leading tokens. Requests are served one after
another, each at its time in the trace; computing and copying take no time, but are priced.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ninfer.api import (
    MatcherContext,
    PolicyContext,
    PolicyProvider,
    PrefillObserved,
    TierFacts,
)
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.cache.lane_context import ContextStatus, LaneContext
from ninfer.cache.manager import Blocked, CacheManager
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_space import TierSpace, WriteRules
from ninfer.core.request import CacheParams, GenerationRequest
from ninfer.core.retention import Retention
from ninfer.core.step import PAGE_SIZE_TOKENS, DeviceLayout
from ninfer.simulate.costs import Costs
from ninfer.simulate.promises import Kept, Promises
from ninfer.simulate.simulated_transfers import Moved, SimulatedTransfers
from ninfer.simulate.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from ninfer.cache.transfers import Transfers

TIER_NAMES: Final = ("device", "host", "disk")
_START_S: Final = 1e6
"""Clock of the first request. Not 0, so that an age is never confused with a time."""
_END_TOKEN: Final = 0xFFFF_FFFF
"""Stands after every prompt: a request computes at least one token, and this one is on no block."""
_MAX_TRIES: Final = 1_000


class TraceClock:
    """Stands still between requests."""

    def __init__(self) -> None:
        """Start."""
        self.now_s = _START_S

    def monotonic_s(self) -> float:
        """Return the time of the present request."""
        return self.now_s

    def unix_s(self) -> float:
        """Return the same."""
        return self.now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How the cache is set up and used, beside its sizes.

    Attributes:
        retention_s: every request asks that its context stays so long; 0.0 for not at all.
        rules: what may be written to the slowest tier.
    """

    retention_s: float = 0.0
    rules: WriteRules = field(default_factory=WriteRules)


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """What one policy made of a trace. Rates are of prompt blocks and prompt tokens.

    Attributes:
        policy: its kind.
        capacities: blocks per tier, device first.
        num_requests: all of them.
        num_refused: larger than the device; they are computed and not stored.
        num_blocks: prompt blocks asked for.
        num_hit_blocks: of them, served.
        num_tokens: prompt tokens asked for.
        hit_tokens: of them, served, by the tier they came from.
        prefill_s: what all prompts cost without a cache.
        saved_s: prefill that was not done.
        restore_s: spent on reading from slower tiers for it.
        moved: by (source, target) index.
        kept: what became of retentions, if requests asked for them.
        num_one_time: blocks that the slowest tier did not take because nobody came back to them.
        num_over_budget: blocks that it did not take because its write budget was used up.
    """

    policy: str
    capacities: tuple[int, ...]
    num_requests: int = 0
    num_refused: int = 0
    num_blocks: int = 0
    num_hit_blocks: int = 0
    num_tokens: int = 0
    hit_tokens: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    saved_s: float = 0.0
    restore_s: float = 0.0
    moved: dict[tuple[int, int], Moved] = field(default_factory=dict)
    kept: Kept | None = None
    num_one_time: int = 0
    num_over_budget: int = 0

    @property
    def block_hit_rate(self) -> float:
        """Share of prompt blocks served."""
        return self.num_hit_blocks / max(self.num_blocks, 1)

    @property
    def token_hit_rate(self) -> float:
        """Share of prompt tokens served."""
        return sum(self.hit_tokens) / max(self.num_tokens, 1)


def replay(
    trace: Trace,
    provider: PolicyProvider[Any],
    capacities: Sequence[int],
    costs: Costs,
    *,
    options: dict[str, object] | None = None,
    setup: ReplayOptions | None = None,
    advanced: Callable[[int], None] = lambda _count: None,
) -> ReplayResult:
    """Serve all requests of a trace.

    Args:
        trace: what is asked.
        provider: of the policy.
        capacities: blocks per tier, device first, one to three of them.
        costs: of the model on the machine, per token of the trace.
        options: of the policy.
        setup: retention and write rules; None for neither.
        advanced: told how many requests were just served.
    """
    setup = setup or ReplayOptions()
    return _Replay(trace, provider, capacities, costs, options or {}, setup).run(advanced)


class _Replay:
    def __init__(
        self,
        trace: Trace,
        provider: PolicyProvider[Any],
        capacities: Sequence[int],
        costs: Costs,
        options: dict[str, object],
        setup: ReplayOptions,
    ) -> None:
        self._trace = trace
        self._costs = costs
        self._page_costs = costs.per_block(trace.block_tokens, PAGE_SIZE_TOKENS)
        self._page_bytes = self._page_costs.bytes_per_token * PAGE_SIZE_TOKENS
        self._clock = TraceClock()
        names = TIER_NAMES[: len(capacities)]
        links = {
            (source, target): costs.links[f"{names[source]}>{names[target]}"]
            for source in range(len(names))
            for target in range(len(names))
            if source != target
        }
        self._transfers = SimulatedTransfers(links)
        settings = {"save_calibration": False} if _has_option(provider, "save_calibration") else {}
        self._policy = provider.open(
            self._policy_context(capacities), provider.config(**{**settings, **options})
        )
        spaces = [
            TierSpace(
                name=name,
                capacity_bytes=blocks * self._page_bytes,
                stored_bytes=lambda _header_bytes, payload_bytes: payload_bytes,
                rules=setup.rules if name == names[-1] else WriteRules(),
            )
            for name, blocks in zip(names[1:], capacities[1:], strict=True)
        ]
        layout = DeviceLayout(
            num_pages=capacities[0] + 1,
            page_pool_bytes={"main": self._page_bytes},
            num_state_slots=0,
            state_image_bytes=0,
            num_lanes=1,
        )
        self._store = ContextStore(layout, spaces, self._policy.keep_value, self._clock)
        self._manager = CacheManager(
            self._store,
            cast("Transfers", self._transfers),
            matcher=RadixMatcher.open(MatcherContext(), RadixConfig()),
            policy=self._policy,
            clock=self._clock,
            slack_tokens=0,
        )
        self._promises = Promises(setup.retention_s) if setup.retention_s else None
        wish = Retention(seconds=setup.retention_s) if setup.retention_s else None
        self._cache_params = CacheParams(retention=wish)
        self._result = ReplayResult(
            policy=provider.kind,
            capacities=tuple(capacities),
            hit_tokens=[0] * len(capacities),
            moved=self._transfers.moved,
            kept=self._promises.kept if self._promises is not None else None,
        )

    def _policy_context(self, capacities: Sequence[int]) -> PolicyContext:
        facts = [TierFacts(tier_name="device", capacity_bytes=capacities[0] * self._page_bytes)]
        for name, blocks in zip(TIER_NAMES[1:], capacities[1:], strict=False):
            read, write = self._costs.links[f"{name}>device"], self._costs.links[f"device>{name}"]
            facts.append(
                TierFacts(
                    tier_name=name,
                    capacity_bytes=blocks * self._page_bytes,
                    read_bytes_per_s=1 / read.seconds_per_byte,
                    write_bytes_per_s=1 / write.seconds_per_byte,
                    read_latency_s=read.latency_s,
                )
            )
        return PolicyContext(
            clock=self._clock,
            tiers=facts,
            bytes_per_token=self._page_costs.bytes_per_token,
            prefill_tokens_per_s=1 / self._page_costs.seconds_per_token,
            prefill_seconds_per_token_squared=self._page_costs.seconds_per_token_squared,
        )

    def run(self, advanced: Callable[[int], None]) -> ReplayResult:
        for request in self._trace.requests:
            self._clock.now_s = _START_S + request.time_s
            self._serve(request)
            advanced(1)
        for writes in self._manager.writes[-1:]:
            self._result.num_one_time = writes.num_one_time
            self._result.num_over_budget = writes.num_over_budget
        self._policy.close()
        return self._result

    def _serve(self, request: TraceRequest) -> None:
        result, costs = self._result, self._costs
        result.num_requests += 1
        result.num_blocks += len(request.blocks)
        result.num_tokens += request.num_prompt_tokens
        result.prefill_s += costs.prefill_s(0, request.num_prompt_tokens)
        if len(request.blocks) > self._store.layout.num_pages - 1:
            result.num_refused += 1
            return
        tokens = self._tokens_of(request)
        prompt = np.append(tokens, np.uint32(_END_TOKEN))
        context = self._admit(
            GenerationRequest(
                request_id=str(result.num_requests),
                prompt_token_ids=cast("Sequence[int]", prompt),
                max_tokens=0,
                cache=self._cache_params,
            )
        )
        self._count_hits(request, context)
        self._run(context, tokens)
        if self._promises is not None:
            is_granted = context.retained_s > 0
            self._promises.left(request.blocks, self._clock.now_s, is_granted=is_granted)

    def _tokens_of(self, request: TraceRequest) -> "np.ndarray[Any, np.dtype[np.uint32]]":
        """Return a prompt as tokens of the store; a last block that is filled in part is a part of a page."""
        tokens = np.zeros((len(request.blocks), PAGE_SIZE_TOKENS), dtype=np.uint32)
        tokens[:, 0] = request.blocks
        missing_tokens = len(request.blocks) * self._trace.block_tokens - request.num_prompt_tokens
        num_missing = max(0, missing_tokens) * PAGE_SIZE_TOKENS // self._trace.block_tokens
        return tokens.reshape(-1)[: tokens.size - num_missing]

    def _admit(self, request: GenerationRequest) -> LaneContext:
        for _ in range(_MAX_TRIES):
            context = self._manager.admit(request)
            if isinstance(context, Blocked):
                self._manager.poll()
                continue
            while context.status is ContextStatus.PARKED:
                self._manager.poll()
            if context.status is ContextStatus.READY:
                return context
        msg = f"request {request.request_id} of the trace found no place in {_MAX_TRIES} tries"
        raise RuntimeError(msg)

    def _count_hits(self, request: TraceRequest, context: LaneContext) -> None:
        result, block_tokens = self._result, self._trace.block_tokens
        point = context.outcome.point
        num_hits = point.num_pages + (point.partial is not None)
        num_tokens = min(num_hits * block_tokens, request.num_prompt_tokens)
        result.num_hit_blocks += num_hits
        if self._promises is not None:
            self._promises.returned(request.blocks, num_hits, self._clock.now_s)
        result.saved_s += self._costs.prefill_s(0, num_tokens)
        tiers = self._num_by_tier(context, num_hits)
        for tier, count in enumerate(tiers):
            result.hit_tokens[tier] += round(num_tokens * count / max(num_hits, 1))
        self._policy.observe_prefill(self._observed(context, len(request.blocks)))

    def _num_by_tier(self, context: LaneContext, num_hits: int) -> list[int]:
        counts = [0] * len(self._result.capacities)
        for tier, num_bytes in context.restored_bytes.items():
            counts[tier] = num_bytes // self._page_bytes
            link = self._costs.links[f"{TIER_NAMES[tier]}>device"]
            self._result.restore_s += link.seconds(num_bytes)
        counts[0] = num_hits - sum(counts)
        return counts

    def _observed(self, context: LaneContext, num_blocks: int) -> PrefillObserved:
        start = context.resume_tokens
        num_tokens = max(num_blocks * PAGE_SIZE_TOKENS - start, 1)
        return PrefillObserved(
            start_tokens=start,
            num_tokens=num_tokens,
            seconds=self._page_costs.prefill_s(start, num_tokens),
        )

    def _run(self, context: LaneContext, tokens: Iterable[int]) -> None:
        """Compute the rest, which is nothing, and leave the context behind."""
        token_ids = cast("Sequence[int]", tokens)
        self._manager.take_copies([context])
        self._manager.copies_done([context])
        self._manager.advance(context, token_ids, len(token_ids))
        self._manager.finish(context, token_ids, len(token_ids))
        while self._manager.poll() or not self._manager.copies_down.is_idle:
            pass


def _has_option(provider: PolicyProvider[Any], name: str) -> bool:
    return name in provider.config.model_fields
