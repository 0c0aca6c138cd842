"""Prompts and the resume points that a store might have found for them. Knows nothing about matchers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from ninfer.api import Match, PromptFacts

PAGE_TOKENS: Final = 64
MAX_TIERS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question to a matcher.

    Attributes:
        facts: the request.
        points: what the store proved, shallow to deep.
    """

    facts: PromptFacts
    points: tuple[Match, ...]


class FixedView:
    """A `PrefixView` over given points. Hands out a new list each time.

    Args:
        points: shallow to deep.

    Attributes:
        num_looks: how often it was asked.
    """

    def __init__(self, points: Sequence[Match]) -> None:
        """Keep the points."""
        self._points = points
        self.num_looks = 0

    def resume_points(self) -> Sequence[Match]:
        """Return the points."""
        self.num_looks += 1
        return list(self._points)


class SharedView:
    """A `PrefixView` that hands out its own list, so that a matcher could change it.

    Args:
        points: the list.
    """

    def __init__(self, points: list[Match]) -> None:
        """Keep the list itself."""
        self._points = points

    def resume_points(self) -> Sequence[Match]:
        """Return the list itself."""
        return self._points


def point(position_tokens: int, tier_index: int) -> Match:
    """Return a resume point at a position whose slowest replica is on a tier."""
    return Match(
        position_tokens=position_tokens,
        copied_tokens=position_tokens % PAGE_TOKENS,
        is_device_ready=tier_index == 0,
        tier_index=tier_index,
    )


def prompt_of(points: Sequence[Match], *, extra_tokens: int = 2, session_key: str = "") -> Prompt:
    """Return a prompt that goes on for some tokens after its deepest resume point.

    Args:
        points: shallow to deep.
        extra_tokens: tokens after the deepest point; at least 1.
        session_key: the client's hint.
    """
    deepest = points[-1].position_tokens if points else 0
    facts = PromptFacts(num_tokens=deepest + extra_tokens, session_key=session_key)
    return Prompt(facts=facts, points=tuple(points))


@st.composite
def prompts(
    draw: st.DrawFn, *, extra_tokens: st.SearchStrategy[int] | None = None, session_key: str = ""
) -> Prompt:
    """Draw prompts with 1 to 40 resume points on up to five tiers.

    Deeper pages are on the same tier or a slower one; a point can need something slower than its pages.
    """
    positions = sorted(draw(st.sets(st.integers(1, 3_000), min_size=1, max_size=40)))
    points, pages_tier = [], 0
    for position in positions:
        pages_tier = min(pages_tier + draw(st.sampled_from((0, 0, 0, 1))), MAX_TIERS - 1)
        points.append(point(position, draw(st.integers(pages_tier, MAX_TIERS - 1))))
    extra = draw(extra_tokens if extra_tokens is not None else st.integers(2, 500))
    return prompt_of(points, extra_tokens=extra, session_key=session_key)
