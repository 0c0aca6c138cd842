"""The policy `lru`: recency alone. Knows nothing about costs, which makes it the baseline."""

from typing_extensions import override

from ninfer.api import ImageFacts, OutcomeFacts, PlacementPolicy, PluginConfig, PolicyContext


class LruConfig(PluginConfig):
    """Options of the policy `lru`."""

    write_through: bool = True
    """Copy idle contexts down ahead of pressure, to every tier."""


class LruPolicy(PlacementPolicy):
    """Gives up the least recently used first; prefers the outcome that computes least.

    Args:
        config: options.
    """

    def __init__(self, config: LruConfig) -> None:
        """Keep the options."""
        self._config = config

    @classmethod
    def open(cls, context: PolicyContext, config: LruConfig) -> "LruPolicy":  # noqa: ARG003
        """Open the policy."""
        return cls(config)

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        """Return the running number of the last use.

        Unreachable objects go first, then rungs, then copies of what the device holds too, then everything else.
        """
        if not facts.is_reachable:
            return -2.0
        if facts.is_rung:
            return -1.0 - 1.0 / (1.0 + facts.last_use_index)
        if facts.has_device_replica:
            return -1.0 / (1.0 + facts.last_use_index)
        return float(facts.last_use_index)

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        """Return a price that grows with tokens to compute, then with images to move."""
        num_moved = sum(transfer.num_images for transfer in outcome.transfers)
        return outcome.prefill_tokens + 1e-3 * (num_moved + len(outcome.degraded))

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        """Copy everything reachable to the next tier down."""
        is_next = target_index == facts.tier_index + 1
        return self._config.write_through and facts.is_reachable and is_next
