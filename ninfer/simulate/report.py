"""Studies as rows of a table and as JSON. Knows nothing about how they came about."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from ninfer.simulate.costs import Costs
from ninfer.simulate.replay import TIER_NAMES, ReplayResult
from ninfer.simulate.study import Optimum, Study
from ninfer.simulate.trace import Trace

VERSION: Final = 1
_GIB: Final = 1 << 30


def header(num_tiers: int) -> tuple[str, ...]:
    """Return the titles of the columns of `rows`."""
    tiers = TIER_NAMES[:num_tiers]
    served = ("BLOCK HITS", "TOKEN HITS", *(f"FROM {name.upper()}" for name in tiers))
    return (*(name.upper() for name in tiers), "POLICY", *served, "SAVED", "RESTORING", "MOVED")


def rows(studies: Sequence[Study]) -> list[tuple[str, ...]]:
    """Return one row per policy and set of sizes, and one of Belady's optimum."""
    found: list[tuple[str, ...]] = []
    for study in studies:
        sizes = tuple(f"{blocks:,}" for blocks in study.capacities)
        found += [(*sizes, *_row(result)) for result in study.results]
        best = study.optima[-1]
        from_tiers = ("",) * len(study.capacities)
        found.append((
            *sizes,
            "belady",
            f"{best.block_hit_rate:.3f}",
            f"{best.token_hit_rate:.3f}",
            *from_tiers,
            f"{best.saved_s:,.0f} s",
            "",
            "",
        ))
    return found


def _row(result: ReplayResult) -> tuple[str, ...]:
    num_tokens = max(result.num_tokens, 1)
    moved_bytes = sum(moved.num_bytes for moved in result.moved.values())
    return (
        result.policy,
        f"{result.block_hit_rate:.3f}",
        f"{result.token_hit_rate:.3f}",
        *(f"{tokens / num_tokens:.3f}" for tokens in result.hit_tokens),
        f"{result.saved_s:,.0f} s",
        f"{result.restore_s:,.0f} s",
        f"{moved_bytes / _GIB:,.1f} GiB",
    )


def remarks(studies: Sequence[Study]) -> list[str]:
    """Return a sentence for each result about what was promised, and what the slowest tier did not take."""
    found = []
    for study in studies:
        sizes = "+".join(f"{blocks:,}" for blocks in study.capacities)
        for result in study.results:
            name = f"{sizes} {result.policy}:"
            if (kept := result.kept) is not None:
                found.append(
                    f"{name} {kept.num_granted:,} contexts retained, {kept.num_refused:,} refused; "
                    f"{kept.num_lost_blocks:,} of {kept.num_blocks:,} promised blocks were lost"
                )
            if result.num_one_time or result.num_over_budget:
                found.append(
                    f"{name} not written to the slowest tier: {result.num_one_time:,} blocks that "
                    f"nobody came back to, {result.num_over_budget:,} over budget"
                )
    return found


def to_data(trace: Trace, costs: Costs, studies: Sequence[Study]) -> dict[str, object]:
    """Return everything as JSON data."""
    return {
        "version": VERSION,
        "trace": {
            "name": trace.name,
            "block_tokens": trace.block_tokens,
            "num_requests": len(trace.requests),
            "num_blocks": sum(len(request.blocks) for request in trace.requests),
            "seconds": trace.requests[-1].time_s,
        },
        "costs": {
            "bytes_per_token": costs.bytes_per_token,
            "seconds_per_token": costs.seconds_per_token,
            "seconds_per_token_squared": costs.seconds_per_token_squared,
            "links": {
                name: {"latency_s": link.latency_s, "seconds_per_byte": link.seconds_per_byte}
                for name, link in costs.links.items()
            },
        },
        "studies": [
            {
                "blocks": dict(zip(TIER_NAMES, study.capacities, strict=False)),
                "policies": [_result_data(result) for result in study.results],
                "belady": [_optimum_data(optimum) for optimum in study.optima],
            }
            for study in studies
        ],
    }


def _result_data(result: ReplayResult) -> dict[str, object]:
    return {
        "policy": result.policy,
        "num_refused": result.num_refused,
        "block_hit_rate": result.block_hit_rate,
        "token_hit_rate": result.token_hit_rate,
        "hit_tokens": dict(zip(TIER_NAMES, result.hit_tokens, strict=False)),
        "prefill_s": result.prefill_s,
        "saved_s": result.saved_s,
        "restore_s": result.restore_s,
        "retention": None if result.kept is None else asdict(result.kept),
        "unwritten": {"one_time": result.num_one_time, "over_budget": result.num_over_budget},
        "moved": {
            f"{TIER_NAMES[source]}>{TIER_NAMES[target]}": {
                "num_images": moved.num_images,
                "num_bytes": moved.num_bytes,
                "seconds": moved.seconds,
            }
            for (source, target), moved in sorted(result.moved.items())
        },
    }


def _optimum_data(optimum: Optimum) -> dict[str, object]:
    return {
        "num_blocks": optimum.num_blocks,
        "block_hit_rate": optimum.block_hit_rate,
        "token_hit_rate": optimum.token_hit_rate,
        "saved_s": optimum.saved_s,
    }
