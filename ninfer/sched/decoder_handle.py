"""The speculative decoder as the core uses it: faults and wrong guesses cost speed only. Guesses nothing itself."""

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from ninfer.api import Draft, DraftRequest, LaneRows, SpeculativeDecoder, Verdict
from ninfer.core.plugin_guard import PluginGuard, WrongAnswer


class DecoderHandle(SpeculativeDecoder):
    """A plugin's decoder behind a guard. Whatever it does, drafts are short runs of known token ids.

    A draft that is wrong costs its lane the draft; a call that fails costs all lanes theirs.

    Args:
        decoder: the plugin's.
        vocab_size: number of token ids; a guess outside would be read beyond the embedding table.
        guard: counts faults.
    """

    def __init__(self, decoder: SpeculativeDecoder, *, vocab_size: int, guard: PluginGuard) -> None:
        """Wrap a decoder that is open."""
        self._decoder = decoder
        self._vocab_size = vocab_size
        self._guard = guard
        self.uses_hidden_states = decoder.uses_hidden_states

    @override
    def open_lane(self, lane: int) -> None:
        self._guard.ask("open_lane", self._decoder.open_lane, _nothing, lane)

    @override
    def close_lane(self, lane: int) -> None:
        self._guard.ask("close_lane", self._decoder.close_lane, _nothing, lane)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = self._guard.ask("draft", self._drafts, _no_drafts, requests)
        return [draft for draft in drafts if draft.token_ids]

    def _drafts(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        answer: object = self._decoder.draft(requests)
        if not isinstance(answer, list | tuple):
            raise WrongAnswer(f"returned a value of type {type(answer).__qualname__}, not a list")
        if len(answer) != len(requests):
            raise WrongAnswer(f"returned {len(answer)} drafts for {len(requests)} requests")
        return [
            self._checked(draft, request) for draft, request in zip(answer, requests, strict=True)
        ]

    def _checked(self, draft: object, request: DraftRequest) -> Draft:
        """Return a draft as it may be verified; an empty one if it is wrong."""
        problem = self._mistake(draft, request)
        if not problem and isinstance(draft, Draft):
            return Draft(lane=request.lane, token_ids=tuple(draft.token_ids[: request.max_tokens]))
        self._guard.fault("draft", problem)
        return Draft(lane=request.lane, token_ids=())

    def _mistake(self, draft: object, request: DraftRequest) -> str:
        if not isinstance(draft, Draft):
            return f"returned a value of type {type(draft).__qualname__} where Draft is wanted"
        if draft.lane != request.lane:
            return f"returned a draft of lane {draft.lane!r} where lane {request.lane} is wanted"
        token_ids: object = draft.token_ids
        if not isinstance(token_ids, tuple | list):
            return f"token_ids are of type {type(token_ids).__qualname__}, not a tuple"
        if len(token_ids) > request.max_tokens:
            return f"drafted {len(token_ids)} tokens where {request.max_tokens} are wanted"
        return self._token_mistake(token_ids)

    def _token_mistake(self, token_ids: Iterable[object]) -> str:
        for token in token_ids:
            if type(token) is not int:
                return f"drafted a value of type {type(token).__qualname__} as a token id"
            if not 0 <= token < self._vocab_size:
                return f"drafted token {token}, the vocabulary has {self._vocab_size}"
        return ""

    @override
    def follow(self, lanes: Sequence[LaneRows], hidden: Any) -> None:
        self._guard.ask("follow", self._decoder.follow, _nothing, lanes, hidden)

    @override
    def verified(self, verdicts: Sequence[Verdict]) -> None:
        self._guard.ask("verified", self._decoder.verified, _nothing, verdicts)

    @override
    def close(self) -> None:
        self._guard.close(self._decoder.close)


def _nothing(*_arguments: object) -> None:
    """Do nothing."""


def _no_drafts(_requests: Sequence[DraftRequest]) -> list[Draft]:
    return []
