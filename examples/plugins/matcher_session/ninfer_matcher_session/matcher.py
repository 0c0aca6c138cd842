"""Narrows the resume points of a prompt by its session key. Keeps no state, knows nothing about tiers or costs."""

from collections.abc import Iterable, Sequence
from typing import Final

from typing_extensions import override

from ninfer.api import CheckpointMatcher, Match, MatcherContext, PrefixView, PromptFacts
from ninfer_matcher_session.config import SessionConfig

_MAX_CANDIDATES: Final = 7


class SessionMatcher(CheckpointMatcher):
    """Considers the end of a session for requests that name one, and the whole path for those that do not.

    A session key says that the prompt continues a context, so what it wants is at the end of its path: points far
    before the deepest one would only be priced to lose. Without a key nobody knows, so points all along the path are
    considered. The deepest one is always the first candidate: a key narrows, it never proves and never loses a hit.

    Pure: the answer depends on the prompt and the view alone, whatever was asked before.

    Args:
        context: not used.
        config: settings.
    """

    def __init__(self, context: MatcherContext, config: SessionConfig) -> None:
        """Keep the settings."""
        del context
        self._config = config

    @classmethod
    def open(cls, context: MatcherContext, config: SessionConfig) -> "SessionMatcher":
        """Open the matcher."""
        return cls(context, config)

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        """Return at most 7 resume points, the deepest first."""
        points = view.resume_points()
        if not points:
            return []
        chosen = _deepest_per_tier(points)
        if prompt.session_key:
            first = points[-1].position_tokens - self._config.lookback_tokens
            chosen = [match for match in chosen if match.position_tokens >= first]
        else:
            chosen += _anchors(points, self._config.num_anchors)
        by_position = {match.position_tokens: match for match in [*chosen, points[-1]]}
        deepest_first = sorted(by_position.values(), key=lambda match: -match.position_tokens)
        return deepest_first[:_MAX_CANDIDATES]


def _deepest_per_tier(points: Iterable[Match]) -> list[Match]:
    """Return for each tier the deepest point whose slowest read is there; between two of them nothing is cheaper."""
    return list({match.tier_index: match for match in points}.values())


def _anchors(points: Sequence[Match], num_anchors: int) -> list[Match]:
    """Return points near one half, one quarter, one eighth of the deepest one's position."""
    anchors = []
    limit = points[-1].position_tokens // 2
    for _ in range(num_anchors):
        before = [match for match in points if match.position_tokens <= limit]
        if not before:
            break
        anchors.append(before[-1])
        limit //= 2
    return anchors
