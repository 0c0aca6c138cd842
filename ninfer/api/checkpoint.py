"""The contract of a checkpoint matcher: which resume points a prompt has. Knows nothing about tiers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A resume point for a prompt.

    Attributes:
        position_tokens: tokens already computed there; at most the prompt's length minus one.
        copied_tokens: of those, tokens in a partial page that must be copied (0..63).
        is_device_ready: every page and the state image are on the device.
        tier_index: slowest tier that has to be read, 0 if device-ready.
    """

    position_tokens: int
    copied_tokens: int
    is_device_ready: bool
    tier_index: int


class PrefixView(Protocol):
    """Read-only view of the context store along one prompt."""

    def resume_points(self) -> Sequence[Match]:
        """Return every complete resume point on the prompt's path, shallow to deep, root excluded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MatcherContext:
    """What the core hands to a matcher when it opens it. Grows by fields with defaults."""

    page_size_tokens: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """The request as a matcher sees it.

    Attributes:
        num_tokens: prompt length.
        session_key: the client's hint (`prompt_cache_key`), empty if none. Narrows, never proves.
    """

    num_tokens: int
    session_key: str = ""


class CheckpointMatcher(ABC):
    """Chooses which resume points of a prompt the planner considers.

    Pure: the same view gives the same answer and nothing is changed. The store alone decides what matches:
    a matcher can only choose among points that the store has proved with exact tokens.
    """

    @abstractmethod
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        """Return at most 7 of `view.resume_points()`, best first. Root is always added by the planner.

        A session key may narrow the choice; without one the deepest resume point is among the answer.
        """

    def close(self) -> None:
        """Release what was opened."""
