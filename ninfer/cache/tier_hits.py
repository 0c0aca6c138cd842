"""How much of prompts came from which tier. Counts only."""

from ninfer.cache.lane_context import LaneContext
from ninfer.cache.node import DEVICE


class TierHits:
    """Sums over started requests that may use the cache. Written on the engine thread, read by anyone.

    Args:
        num_tiers: tiers, the device included.

    Attributes:
        num_hits: by tier, requests that took tokens from it.
        num_misses: by tier, requests that took none from it.
        num_tokens: by tier, prompt tokens taken from it.
    """

    def __init__(self, num_tiers: int) -> None:
        """Start at zero."""
        self.num_hits = [0] * num_tiers
        self.num_misses = [0] * num_tiers
        self.num_tokens = [0] * num_tiers

    def add(self, context: LaneContext) -> None:
        """Count a request that starts."""
        if not context.is_cached:
            return
        restored = context.restored_tokens
        for tier in range(len(self.num_hits)):
            num_tokens = restored.get(tier, 0)
            if tier == DEVICE:
                num_tokens = context.resume_tokens - sum(restored.values())
            self.num_hits[tier] += num_tokens > 0
            self.num_misses[tier] += num_tokens <= 0
            self.num_tokens[tier] += max(0, num_tokens)
