"""The contract of a speculative decoder: cheap guesses that the model verifies. Losing a guess costs speed only.

Knows nothing about scheduling. Decoders that work on tokens see no tensor. Those that work on the model's hidden states
say so with `uses_hidden_states`; they are shown what each step computed, and draft with the `DraftHead` of the
checkpoint. What a head remembers of earlier positions lies in pages beside the model's own, so a context that comes back
from any tier drafts as one that never left.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ninfer.api.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """Consecutive tokens of one lane, with a row of hidden states each.

    Attributes:
        lane: its number.
        start_tokens: position of the first token, >= 1; the row of a token is the hidden state before it.
        token_ids: all of them final or, while drafting, guessed.
        runs: (first page, number of pages) of the lane's pages, in order.
    """

    lane: int
    start_tokens: int
    token_ids: Sequence[int]
    runs: Sequence[tuple[int, int]]


class DraftHead(Protocol):
    """A head of the checkpoint that predicts several tokens, one after the other."""

    def extend(self, lanes: Sequence[LaneRows], hidden: Any) -> Any:  # noqa: ANN401 - the contract has no tensors
        """Show the head more tokens; those at the same or later positions are forgotten.

        Args:
            lanes: any tokens of different lanes that follow what the head saw of them.
            hidden: tensor `[num_tokens, hidden_size]`, row by row for all lanes: the model's final hidden state
                before the token, or the head's own result where the token before was a guess.

        Returns:
            `[num_lanes, hidden_size]`, the result for each lane's last token, new.
        """
        ...

    def choose(self, hidden: Any) -> list[int]:  # noqa: ANN401 - as above
        """Return the most likely next token of each row of results."""
        ...


class ModelAccess(Protocol):
    """The loaded model as a decoder may see it when it opens.

    Attributes:
        family: model family, for example "llama".
        vocab_size: number of token ids.
        has_mtp_head: the checkpoint carries multi-token-prediction weights (`mtp.*`).
        module: the model object itself; decoders that use it depend on its class.
        draft_head: that head, loaded when first asked for; None without one. Asking for it takes memory for its weights
            and for a KV pool; it works from the first step on.
    """

    @property
    def family(self) -> str: ...  # noqa: D102
    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def has_mtp_head(self) -> bool: ...  # noqa: D102
    @property
    def module(self) -> Any: ...  # noqa: ANN401, D102
    @property
    def draft_head(self) -> DraftHead | None: ...  # noqa: D102


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

    Called on the engine thread between steps, `follow` at the end of a step.

    Attributes:
        uses_hidden_states: `follow` is to be called.
    """

    uses_hidden_states: bool = False

    @abstractmethod
    def open_lane(self, lane: int) -> None:
        """Begin with an empty lane."""

    @abstractmethod
    def close_lane(self, lane: int) -> None:
        """Forget a lane."""

    @abstractmethod
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return one draft per request, in order, each of at most `max_tokens` tokens.

        What is guessed depends on the lane's tokens alone; verdicts may change how many tokens are guessed.
        """

    def follow(self, lanes: Sequence[LaneRows], hidden: Any) -> None:  # noqa: ANN401 - the contract has no tensors
        """See what a step computed, prompts as well as accepted tokens, each token once or again after a resume.

        Args:
            lanes: the step's lanes with at least one token after the first of their context. If a lane sampled, its
                last token is the sampled one.
            hidden: as in `DraftHead.extend`; borrowed until the call returns.
        """

    def verified(self, verdicts: Sequence[Verdict]) -> None:
        """Learn which drafts were accepted; a lane may have been closed since, if its request ended in that step."""

    def close(self) -> None:
        """Release what was opened."""
