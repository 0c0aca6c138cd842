"""The checkpoint matcher as the core uses it: wrong answers and faults are replaced. Matches nothing itself."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from typing_extensions import override

from ninfer.api import CheckpointMatcher, Match, PrefixView, PromptFacts
from ninfer.core.plugin_guard import PluginGuard, WrongAnswer

_MAX_CANDIDATES: Final = 7


class MatcherHandle(CheckpointMatcher):
    """A plugin's matcher behind a guard. Whatever it does, the answer is a few resume points of the view.

    Args:
        matcher: the plugin's.
        fallback: answers when the plugin does not.
        guard: counts faults.
    """

    def __init__(
        self, matcher: CheckpointMatcher, *, fallback: CheckpointMatcher, guard: PluginGuard
    ) -> None:
        """Wrap a matcher that is open."""
        self._matcher = matcher
        self._fallback = fallback
        self._guard = guard

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        return self._guard.ask(
            "candidates", self._candidates, self._fallback.candidates, prompt, view
        )

    def _candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        offered = _Offered(view.resume_points())
        answer: object = self._matcher.candidates(prompt, offered)
        if not isinstance(answer, Iterable):
            raise WrongAnswer(f"returned a value of type {type(answer).__qualname__}, not a list")
        found = list(islice(answer, _MAX_CANDIDATES + 1))
        if len(found) > _MAX_CANDIDATES:
            raise WrongAnswer(f"returned more than {_MAX_CANDIDATES} candidates")
        for match in found:
            if not isinstance(match, Match):
                kind = type(match).__qualname__
                raise WrongAnswer(f"returned a value of type {kind} where Match is wanted")
            if not offered.has(match):
                raise WrongAnswer(f"returned {match}, which the view does not have")
        return found

    @override
    def close(self) -> None:
        self._guard.close(self._matcher.close)


class _Offered:
    """The view of one call: points are made once and cannot be changed by the plugin."""

    def __init__(self, points: Sequence[Match]) -> None:
        self._points = tuple(points)

    def resume_points(self) -> Sequence[Match]:
        return self._points

    def has(self, match: Match) -> bool:
        """Tell whether a point is one of these; a logarithm, since they lie shallow to deep."""
        position = match.position_tokens
        at = bisect_left(self._points, position, key=lambda point: point.position_tokens)
        return at < len(self._points) and self._points[at] == match
