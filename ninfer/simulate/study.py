"""Replays of several policies at several sizes beside Belady's optimum. Knows no files and no tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer.api import PolicyProvider
from ninfer.simulate.belady import belady_hits
from ninfer.simulate.costs import Costs
from ninfer.simulate.replay import ReplayOptions, ReplayResult, replay
from ninfer.simulate.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """What a cache that knows the future serves with the room of the first tiers together.

    Attributes:
        num_blocks: room.
        block_hit_rate: share of prompt blocks.
        token_hit_rate: share of prompt tokens.
        saved_s: prefill that is not done.
    """

    num_blocks: int
    block_hit_rate: float
    token_hit_rate: float
    saved_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One set of sizes.

    Attributes:
        capacities: blocks per tier, device first.
        results: one per policy.
        optima: for the first tier, the first two, and so on.
    """

    capacities: tuple[int, ...]
    results: tuple[ReplayResult, ...]
    optima: tuple[Optimum, ...]


def study(
    trace: Trace,
    providers: Sequence[PolicyProvider[Any]],
    capacities: Sequence[int],
    costs: Costs,
    advanced: Callable[[int], None] = lambda _count: None,
    *,
    setup: ReplayOptions | None = None,
) -> Study:
    """Replay a trace with each policy.

    Args:
        trace: what is asked.
        providers: of the policies.
        capacities: blocks per tier, device first.
        costs: of the model on the machine.
        advanced: told how many requests were just served, by any policy.
        setup: retention and write rules; None for neither.
    """
    results = [
        replay(trace, provider, capacities, costs, setup=setup, advanced=advanced)
        for provider in providers
    ]
    optima = [optimum(trace, sum(capacities[: at + 1]), costs) for at in range(len(capacities))]
    return Study(capacities=tuple(capacities), results=tuple(results), optima=tuple(optima))


def optimum(trace: Trace, num_blocks: int, costs: Costs) -> Optimum:
    """Return what Belady's algorithm serves from one cache of a size."""
    num_asked = num_hit = num_tokens = hit_tokens = 0
    saved_s = 0.0
    hits = belady_hits(trace.requests, num_blocks)
    for request, num_hits in zip(trace.requests, hits, strict=True):
        served = min(num_hits * trace.block_tokens, request.num_prompt_tokens)
        num_asked += len(request.blocks)
        num_hit += num_hits
        num_tokens += request.num_prompt_tokens
        hit_tokens += served
        saved_s += costs.prefill_s(0, served)
    return Optimum(
        num_blocks=num_blocks,
        block_hit_rate=num_hit / max(num_asked, 1),
        token_hit_rate=hit_tokens / max(num_tokens, 1),
        saved_s=saved_s,
    )
