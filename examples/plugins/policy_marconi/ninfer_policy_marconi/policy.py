"""Recency plus FLOPs saved per byte. Knows nothing about how moves happen."""

import math
from typing import Final

from typing_extensions import override

from ninfer.api import Degraded, ImageFacts, OutcomeFacts, PlacementPolicy, PolicyContext
from ninfer_policy_marconi.config import MarconiConfig
from ninfer_policy_marconi.flops import PrefillCost

_EXACT_RECENCY: Final = 1e-9
"""Weight of the use counter: breaks ties of the clock, never anything else."""
_BYTES_PER_S: Final = (400e9, 12e9, 1.5e9)
"""Device, host memory, anything slower; until the core has measured a tier."""


class MarconiPolicy(PlacementPolicy):
    """Gives up first what is least `recency + alpha x FLOP efficiency`.

    Source: Pan et al., "Marconi: Prefix Caching for the Era of Hybrid LLMs", arXiv 2411.19379, section 4.2. There both
    terms are normalised over all nodes at every eviction. Here a value is asked once and then only compared, so:

        value = last use in seconds + alpha_s x e / (1 + e)
        e     = FLOPs saved per byte, 1 for a page at the start of a prompt

    which keeps the order of the paper's efficiency and its bounds 0..1, and needs no look at other objects. Values age
    by comparison: an object that saves much is worth as much as one that was used up to `alpha_s` later.

    Args:
        context: tiers and measurements of the core.
        config: settings.
    """

    def __init__(self, context: PolicyContext, config: MarconiConfig) -> None:
        """Keep what was measured at start."""
        self._config = config
        self._tiers = tuple(context.tiers)
        self._cost = PrefillCost.of(context)

    @classmethod
    def open(cls, context: PolicyContext, config: MarconiConfig) -> "MarconiPolicy":
        """Open the policy."""
        return cls(context, config)

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        """Return seconds on the clock of uses; minus infinity for what no resume point needs.

        A replica that another tier has too saves no FLOPs, only a copy: its efficiency counts as 0.
        """
        if not facts.is_reachable:
            return -math.inf
        recency = facts.last_use_s + facts.last_use_index * _EXACT_RECENCY
        if facts.has_lower_replica or facts.has_device_replica:
            return recency
        efficiency = self._cost.efficiency(facts)
        return recency + self._config.alpha_s * efficiency / (1.0 + efficiency)

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        """Return seconds of transfers and prefill, plus the expected prefill for what is lost."""
        moving = sum(
            self._move_s(cost.source_index, cost.target_index, cost.num_bytes)
            for cost in outcome.transfers
        )
        computing = self._cost.seconds(outcome.resume_tokens, outcome.prefill_tokens)
        copying = outcome.copy_bytes / _BYTES_PER_S[0]
        return moving + computing + copying + sum(map(self._expected_loss_s, outcome.degraded))

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        """Copy to the next tier always, further down only what was used again, and never what is faster computed."""
        is_lower = facts.tier_index < target_index < len(self._tiers)
        if not is_lower or not facts.is_reachable:
            return False
        if self._move_s(target_index, 0, facts.num_bytes) >= self._cost.saved_s(facts):
            return False
        is_next = target_index == facts.tier_index + 1
        return is_next or facts.num_uses >= self._config.slow_tier_min_uses

    def _expected_loss_s(self, degraded: Degraded) -> float:
        facts, target = degraded.facts, degraded.target_index
        if not facts.is_reachable:
            return 0.0
        later_s = self._cost.saved_s(facts)
        if target is not None:
            later_s = min(later_s, self._move_s(target, 0, facts.num_bytes))
        now_s = self._move_s(facts.tier_index, 0, facts.num_bytes)
        return self._config.reuse_probability * max(later_s - now_s, 0.0)

    def _move_s(self, source: int, target: int, num_bytes: int) -> float:
        """Return the seconds of one batch; the slower end decides, nothing moves from a tier to itself."""
        if source == target or not num_bytes:
            return 0.0
        reads, writes = self._tiers[source], self._tiers[target]
        slowest = min(
            reads.read_bytes_per_s or _BYTES_PER_S[min(source, 2)],
            writes.write_bytes_per_s or _BYTES_PER_S[min(target, 2)],
        )
        return reads.read_latency_s + num_bytes / slowest
