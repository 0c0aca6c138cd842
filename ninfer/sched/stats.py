"""What a request cost, as numbers. Pure."""

from collections.abc import Sequence

from ninfer.cache.tier_space import TierSpace
from ninfer.core.request import RequestStats
from ninfer.sched.lane import Lane
from ninfer.sched.waiting import Waiting


def waiting_stats(waiting: Waiting, now_s: float) -> RequestStats:
    """Return the stats of a request that never got a lane."""
    return RequestStats(
        num_prompt_tokens=len(waiting.request.prompt_token_ids),
        queue_s=now_s - waiting.submitted_s,
    )


def finished_stats(lane: Lane, tiers: Sequence[TierSpace], now_s: float) -> RequestStats:
    """Return the stats of a request that ends now."""
    first_token_s = lane.first_token_s if lane.first_token_s is not None else now_s
    return RequestStats(
        num_prompt_tokens=lane.num_prompt_tokens,
        num_cached_tokens=lane.context.resume_tokens,
        num_completion_tokens=lane.num_completion_tokens,
        queue_s=lane.started_s - lane.submitted_s,
        prefill_s=first_token_s - lane.started_s,
        decode_s=now_s - first_token_s,
        restored_bytes={
            tiers[tier - 1].name: num_bytes
            for tier, num_bytes in sorted(lane.context.restored_bytes.items())
        },
        restored_tokens={
            tier.name: lane.context.restored_tokens.get(number, 0)
            for number, tier in enumerate(tiers, start=1)
        },
        retention_s=lane.context.retained_s,
        retention_expires_unix_s=lane.context.retain_until_unix_s,
        reuse_path=lane.context.reuse_path,
        drafted_at=tuple(lane.drafts.drafted),
        accepted_at=tuple(lane.drafts.accepted),
    )
