"""The matcher `radix`: deepest first, spread over the path. Keeps no state."""

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
    """Takes the deepest resume point, then points at half the distance to the root, again and again."""

    @classmethod
    def open(cls, context: MatcherContext, config: RadixConfig) -> "RadixMatcher":  # noqa: ARG003
        """Open the matcher."""
        return cls()

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        """Return at most 7 resume points, deepest first."""
        points = view.resume_points()
        picked: list[Match] = []
        at = len(points) - 1
        while at >= 0 and len(picked) < _MAX_CANDIDATES:
            picked.append(points[at])
            at = at // 2 if at > 0 else -1
        return picked
