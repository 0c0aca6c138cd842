"""How the decoder suite opens decoders, asks them and tells them what was accepted. Contains no test."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import ClassVar, Final, ParamSpec, Self, TypeVar

from typing_extensions import override

from ninfer.api import (
    DecoderContext,
    DecoderProvider,
    Draft,
    DraftRequest,
    ModelAccess,
    PluginConfig,
    SpeculationError,
    SpeculativeDecoder,
    Verdict,
)
from ninfer.testing.base import ConformanceSuite
from ninfer.testing.decoder_target import TargetModel, ToyAccess, ToyModel

MAX_LANES: Final = 4
MAX_DRAFT_TOKENS: Final = 5
P = ParamSpec("P")
R = TypeVar("R")


class DecoderHarness(ConformanceSuite):
    """Opens decoders over a target model. A subclass says how to open one.

    A decoder that needs more of the model than tokens brings its own: see `open_target` and `model_access`. One that
    refuses the model of the suite, with a `SpeculationError`, is not applicable beyond the refusal itself.
    """

    kind: ClassVar[str] = "decoder"

    @abstractmethod
    def open_decoder(self, context: DecoderContext) -> SpeculativeDecoder:
        """Return a new decoder for `context.model`."""

    def open_target(self) -> TargetModel:
        """Return a new model to guess for; two of them give the same scores. Override it for another model."""
        return ToyModel()

    def model_access(self, target: TargetModel) -> ModelAccess:
        """Return what a decoder sees of a model that `open_target` made. Override it for another model."""
        return ToyAccess(target)

    @classmethod
    @override
    def bound_to(cls, provider: DecoderProvider[PluginConfig]) -> type[Self]:
        def open_decoder(self: Self, context: DecoderContext) -> SpeculativeDecoder:
            return provider.open(context, provider.sample_config(self.folder))

        return cls.derived(f"Test_{provider.kind}", {"open_decoder": open_decoder})

    def context(
        self, target: TargetModel | None = None, *, max_lanes: int = MAX_LANES
    ) -> DecoderContext:
        """Return what the core would hand to a decoder.

        Args:
            target: model to guess for, None for a new one.
            max_lanes: lanes that can draft at once.
        """
        return DecoderContext(
            clock=self.clock,
            model=self.model_access(target or self.open_target()),
            max_lanes=max_lanes,
            max_draft_tokens=MAX_DRAFT_TOKENS,
        )

    def opened(self, context: DecoderContext | None = None) -> "closing[SpeculativeDecoder]":
        """Return a decoder that is closed at the end of a `with` block, or end the test if it refuses the model."""
        try:
            return closing(self.open_decoder(context or self.context()))
        except SpeculationError as refusal:
            self.not_applicable(f"it refuses the model of the suite: {refusal}")

    def attempt(self, what: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of a call; fail the requirement if it raises.

        Args:
            what: what the call does, for the message.
            call: the call.
            args: its arguments.
            kwargs: its arguments by name.
        """
        try:
            return call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - reported with what was done
            self.fail(what, got=error, wanted="no error")


def guess(
    decoder: SpeculativeDecoder,
    lane: int,
    token_ids: Sequence[int],
    max_tokens: int = MAX_DRAFT_TOKENS,
) -> tuple[int, ...]:
    """Return a decoder's guesses for one open lane; the list it gets is made for this call."""
    (draft,) = decoder.draft([request(lane, token_ids, max_tokens)])
    return draft.token_ids


def request(
    lane: int, token_ids: Sequence[int], max_tokens: int = MAX_DRAFT_TOKENS
) -> DraftRequest:
    """Return a request with a list of its own."""
    return DraftRequest(lane=lane, token_ids=list(token_ids), max_tokens=max_tokens)


class Stream:
    """Tokens of one lane that are known beforehand: guesses are accepted as far as they agree with them.

    Args:
        lane: an open lane.
        token_ids: all tokens.
        num_known: tokens of the prompt, at least 1.

    Attributes:
        lane: the same.
        guesses: all guesses so far, step by step.
    """

    def __init__(self, lane: int, token_ids: Sequence[int], num_known: int = 2) -> None:
        """Start after the prompt."""
        self.lane = lane
        self.guesses: list[tuple[int, ...]] = []
        self._token_ids = list(token_ids)
        self._num_known = min(num_known, len(token_ids))

    @property
    def is_over(self) -> bool:
        """True if all tokens were accepted."""
        return self._num_known >= len(self._token_ids)

    def request(self) -> DraftRequest:
        """Return the next request."""
        return request(self.lane, self._token_ids[: self._num_known])

    def take(self, draft: Draft) -> Verdict:
        """Accept what agrees, and one token more; return what a decoder is told about it."""
        drafted = draft.token_ids
        self.guesses.append(drafted)
        following = self._token_ids[self._num_known :]
        num_accepted = 0
        for guessed, actual in zip(drafted, following, strict=False):
            if guessed != actual:
                break
            num_accepted += 1
        self._num_known = min(self._num_known + num_accepted + 1, len(self._token_ids))
        return Verdict(lane=self.lane, num_drafted=len(drafted), num_accepted=num_accepted)


def run_together(decoder: SpeculativeDecoder, streams: Sequence[Stream]) -> None:
    """Run streams to their ends, all lanes that are not over in each call, as the scheduler does."""
    while running := [stream for stream in streams if not stream.is_over]:
        drafts = decoder.draft([stream.request() for stream in running])
        verdicts = [stream.take(draft) for stream, draft in zip(running, drafts, strict=True)]
        told = [verdict for verdict in verdicts if verdict.num_drafted]
        if told:
            decoder.verified(told)
