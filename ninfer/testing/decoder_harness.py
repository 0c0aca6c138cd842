"""How the decoder suite opens decoders, asks them and tells them what was accepted. Contains no test."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, ParamSpec, Self, TypeVar

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
_HEAD_MODULE: Final = "ninfer.testing.decoder_head"
"""Loaded when it is needed, because it needs torch."""
P = ParamSpec("P")
R = TypeVar("R")


class DecoderHarness(ConformanceSuite):
    """Opens decoders over a target model. A subclass says how to open one.

    A decoder is offered a toy model without a head, then, if it refuses that with a `SpeculationError`, one with a toy
    head (which needs torch). One that refuses both is not applicable beyond the refusal itself, unless it brings a
    model of its own: see `open_target`, `model_access` and `hidden_states`.
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

    def hidden_states(
        self, target: TargetModel, token_ids: Sequence[int], start_tokens: int
    ) -> Any:  # noqa: ANN401
        """Return what a model computed before each token from `start_tokens` on: a tensor, one row per token.

        Asked only for decoders with `uses_hidden_states`. Override it for another model.
        """
        del target
        return import_module(_HEAD_MODULE).toy_hidden_states(token_ids, start_tokens)

    @classmethod
    @override
    def bound_to(cls, provider: DecoderProvider[PluginConfig]) -> type[Self]:
        def open_decoder(self: Self, context: DecoderContext) -> SpeculativeDecoder:
            return provider.open(context, provider.sample_config(self.folder))

        return cls.derived(f"Test_{provider.kind}", {"open_decoder": open_decoder})

    def context(self, model: ModelAccess, *, max_lanes: int = MAX_LANES) -> DecoderContext:
        """Return what the core would hand to a decoder.

        Args:
            model: what it sees of the model.
            max_lanes: lanes that can draft at once.
        """
        return DecoderContext(
            clock=self.clock, model=model, max_lanes=max_lanes, max_draft_tokens=MAX_DRAFT_TOKENS
        )

    def opened(
        self, target: TargetModel | None = None, *, max_lanes: int = MAX_LANES
    ) -> "closing[SpeculativeDecoder]":
        """Return a decoder that is closed at the end of a `with` block, or end the test if it refuses all models.

        Args:
            target: model to guess for, None for a new one.
            max_lanes: lanes that can draft at once.
        """
        model = target or self.open_target()
        access = self.model_access(model)
        try:
            decoder = self.open_decoder(self.context(access, max_lanes=max_lanes))
        except SpeculationError:
            decoder = self._opened_with_head(model, max_lanes)
        if decoder.uses_hidden_states:
            states = partial(self.hidden_states, model)
            decoder = import_module(_HEAD_MODULE).ShownSteps(decoder, states)
        return closing(decoder)

    def _opened_with_head(self, model: TargetModel, max_lanes: int) -> SpeculativeDecoder:
        self.requires("torch, for a model with a head", holds=find_spec("torch") is not None)
        access = ToyAccess(model, import_module(_HEAD_MODULE).ToyHead(model))
        try:
            return self.open_decoder(self.context(access, max_lanes=max_lanes))
        except SpeculationError as refusal:
            reason = str(refusal).partition(". ")[0]
            self.not_applicable(f"it refuses the suite's models: {reason}")

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
