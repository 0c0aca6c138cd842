"""The contract of a speculative decoder: cheap guesses that the model verifies. Losing a guess costs speed only.

Knows nothing about scheduling. Tensors never cross it in version 1.0 for decoders that work on tokens; decoders
that need the model's hidden states declare it and get a `ModelAccess`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ninfer.api.clock import Clock


class ModelAccess(Protocol):
    """The loaded model as a decoder may see it when it opens.

    Attributes:
        family: model family, for example "llama".
        vocab_size: number of token ids.
        has_mtp_head: the checkpoint carries multi-token-prediction weights (`mtp.*`).
        module: the model object itself; decoders that use it depend on its class.
    """

    @property
    def family(self) -> str: ...  # noqa: D102
    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def has_mtp_head(self) -> bool: ...  # noqa: D102
    @property
    def module(self) -> Any: ...  # noqa: ANN401, D102


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderContext:
    """What the core hands to a decoder when it opens it. Grows by fields with defaults.

    Attributes:
        clock: source of time.
        model: the loaded model.
        max_lanes: lanes that can draft at once; lane numbers are below it.
        max_draft_tokens: bound on the length of a draft.
    """

    clock: Clock
    model: ModelAccess
    max_lanes: int
    max_draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRequest:
    """One lane that may draft now.

    Attributes:
        lane: its number.
        token_ids: prompt and all accepted tokens; borrowed until the call returns, never changed by it.
        max_tokens: drafts wanted at most, >= 1.
    """

    lane: int
    token_ids: Sequence[int]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Guessed continuation of one lane; `token_ids` may be empty."""

    lane: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification said about one lane's draft."""

    lane: int
    num_drafted: int
    num_accepted: int


class SpeculativeDecoder(ABC):
    """Guesses the next tokens of lanes. Lanes do not influence each other.

    Called on the engine thread between steps.
    """

    @abstractmethod
    def open_lane(self, lane: int) -> None:
        """Begin with an empty lane."""

    @abstractmethod
    def close_lane(self, lane: int) -> None:
        """Forget a lane."""

    @abstractmethod
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return one draft per request, in order, each of at most `max_tokens` tokens."""

    def verified(self, verdicts: Sequence[Verdict]) -> None:
        """Learn which drafts were accepted."""

    def close(self) -> None:
        """Release what was opened."""
