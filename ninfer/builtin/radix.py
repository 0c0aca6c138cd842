"""The matcher `radix`: the deepest resume point of each tier. Keeps no state."""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from ninfer.api import (
    CheckpointMatcher,
    Match,
    MatcherContext,
    PluginConfig,
    PrefixView,
    PromptFacts,
)

_MAX_CANDIDATES: Final = 7


class RadixConfig(PluginConfig):
    """The matcher has no options."""


class RadixMatcher(CheckpointMatcher):
    """Takes the deepest resume point, and the deepest that does without the slowest tier it reads, and so on.

    Between two such points each page costs the same to restore and nearly the same to compute, so one of the two
    is always the cheapest.
    """

    @classmethod
    def open(cls, context: MatcherContext, config: RadixConfig) -> "RadixMatcher":  # noqa: ARG003
        """Open the matcher."""
        return cls()

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        """Return at most 7 resume points, deepest first."""
        deepest: dict[int, Match] = {}
        for match in view.resume_points():
            deepest[match.tier_index] = match
        return sorted(deepest.values(), key=lambda m: -m.position_tokens)[:_MAX_CANDIDATES]
