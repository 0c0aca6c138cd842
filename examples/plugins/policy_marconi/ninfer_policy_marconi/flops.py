"""What prefill costs, in units that are proportional to FLOPs. Knows nothing about recency or plans."""

from dataclasses import dataclass
from typing import Final

from ninfer.api import ImageFacts, ImageKind, PolicyContext

_DEFAULT_TOKENS_PER_S: Final = 4000.0
"""Prefill speed until the core has measured one. Only the price in seconds depends on it, the order does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCost:
    """Cost of prefill: token p takes `per_token_s + p x per_token_squared_s`.

    The first term stands for the layers whose FLOPs per token are constant (projections, recurrent layers), the second
    for attention. At a constant rate seconds are FLOPs times a factor, and every factor cancels in `efficiency`.

    Attributes:
        per_token_s: seconds.
        per_token_squared_s: seconds per token of context before it.
        bytes_per_token: KV bytes of one token.
    """

    per_token_s: float
    per_token_squared_s: float
    bytes_per_token: int

    @classmethod
    def of(cls, context: PolicyContext) -> "PrefillCost":
        """Take over what the core measured at start."""
        return cls(
            per_token_s=1.0 / (context.prefill_tokens_per_s or _DEFAULT_TOKENS_PER_S),
            per_token_squared_s=context.prefill_seconds_per_token_squared,
            bytes_per_token=max(context.bytes_per_token, 1),
        )

    def seconds(self, start_tokens: int, num_tokens: int) -> float:
        """Return the time to prefill tokens [start, start + num)."""
        start = max(start_tokens, 0)
        positions = num_tokens * start + num_tokens * (num_tokens - 1) / 2
        return num_tokens * self.per_token_s + positions * self.per_token_squared_s

    def saved_s(self, facts: ImageFacts) -> float:
        """Return the prefill that an object saves.

        Pages between two resume points all name the same distance; each answers for its own tokens, so that they sum
        to the distance. A state image answers for all of it, as in the paper, where a node's FLOPs are those since its
        parent.
        """
        num_tokens = facts.lost_tokens
        if facts.kind is ImageKind.PAGE:
            num_tokens = min(num_tokens, max(facts.num_bytes // self.bytes_per_token, 1))
        return self.seconds(facts.position_tokens - num_tokens, num_tokens)

    def efficiency(self, facts: ImageFacts) -> float:
        """Return FLOPs saved per byte, 1.0 for a page at the very start of a prompt."""
        reference = self.per_token_s / self.bytes_per_token
        return self.saved_s(facts) / max(facts.num_bytes, 1) / reference
