"""A toy head for decoders that work on hidden states, and the steps that show them. The only part that needs torch."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from typing_extensions import override

from ninfer.api import Draft, DraftRequest, LaneRows, SpeculativeDecoder, Verdict
from ninfer.testing.decoder_target import TargetModel, most_likely

PAGES_PER_LANE: Final = 512
_PAGE_TOKENS: Final = 64
_MEMORY_MODULUS: Final = 251


class ToyHead:
    """A `DraftHead` that is often right, and whose results depend on every token that it was shown of a lane.

    A row of hidden states is `[token before, last token, memory]`, memory 0 if it is the model's own. What the head
    remembers of a position depends on that row and lies in the page of that position, so rows of another lane, of rejected
    guesses or of guesses that were accepted but not shown again lead to other guesses.

    Args:
        model: whose tokens are guessed.
    """

    def __init__(self, model: TargetModel) -> None:
        """Start with empty pages."""
        self._model = model
        self._memory: dict[int, int] = {}

    def extend(self, lanes: Sequence[LaneRows], hidden: Any) -> Any:  # noqa: ANN401 - as in the contract
        """Remember more tokens of lanes; return one row per lane."""
        rows = iter(hidden.tolist())
        results = []
        for lane in lanes:
            result: list[float] = []
            for position, token in enumerate(lane.token_ids, start=lane.start_tokens):
                _, last, guessed = next(rows)
                before = self._memory.get(_slot(lane.runs, position - 1), 0) if position > 1 else 0
                remembered = int(before * 31 + token + 1 + guessed) % _MEMORY_MODULUS
                self._memory[_slot(lane.runs, position)] = remembered
                result = [last, token, remembered]
            results.append(result)
        return torch.tensor(results, dtype=torch.float64)

    def choose(self, hidden: Any) -> list[int]:  # noqa: ANN401 - as in the contract
        """Return the model's own choice, or the token after it where the memory says so."""
        chosen = []
        for before, last, remembered in hidden.tolist():
            token = most_likely(self._model.logits([int(before), int(last)]))
            is_wrong = int(remembered) % 4 == 0
            chosen.append((token + is_wrong) % (self._model.vocab_size - 1))
        return chosen


def _slot(runs: Sequence[tuple[int, int]], position: int) -> int:
    """Return where a position lies in the pages of a lane.

    Raises:
        IndexError: the lane has no page for it.
    """
    page, offset = divmod(position, _PAGE_TOKENS)
    for first, num_pages in runs:
        if page < num_pages:
            return (first + page) * _PAGE_TOKENS + offset
        page -= num_pages
    raise IndexError(f"position {position} is outside the pages of its lane")


def toy_hidden_states(token_ids: Sequence[int], start_tokens: int) -> Any:  # noqa: ANN401 - a tensor
    """Return the toy model's hidden state before each token from `start_tokens` on, `[num_tokens, 3]`."""
    rows = [
        [token_ids[at - 2] if at > 1 else 0, token_ids[at - 1], 0]
        for at in range(start_tokens, len(token_ids))
    ]
    return torch.tensor(rows, dtype=torch.float64)


class ShownSteps(SpeculativeDecoder):
    """Shows a decoder the hidden states of all tokens that are new in a request, then asks it.

    The engine does so at the end of the step that made them final.

    Args:
        decoder: one that uses hidden states.
        hidden_states: takes tokens and the position of the first that is new, returns a row per new token.
    """

    def __init__(self, decoder: SpeculativeDecoder, hidden_states: Any) -> None:  # noqa: ANN401 - returns tensors
        """Start with no lane open."""
        self._decoder = decoder
        self._hidden_states = hidden_states
        self._num_shown: dict[int, int] = {}

    @override
    def open_lane(self, lane: int) -> None:
        self._num_shown[lane] = 1
        self._decoder.open_lane(lane)

    @override
    def close_lane(self, lane: int) -> None:
        self._num_shown.pop(lane, None)
        self._decoder.close_lane(lane)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        lanes, hidden = [], []
        for request in requests:
            start = self._num_shown[request.lane]
            if len(request.token_ids) > start:
                hidden.append(self._hidden_states(request.token_ids, start))
                lanes.append(_rows_of(request, start))
                self._num_shown[request.lane] = len(request.token_ids)
        if lanes:
            self._decoder.follow(lanes, torch.cat(hidden))
        return self._decoder.draft(requests)

    @override
    def verified(self, verdicts: Sequence[Verdict]) -> None:
        self._decoder.verified(verdicts)

    @override
    def close(self) -> None:
        self._decoder.close()


def _rows_of(request: DraftRequest, start: int) -> LaneRows:
    return LaneRows(
        lane=request.lane,
        start_tokens=start,
        token_ids=list(request.token_ids[start:]),
        runs=((request.lane * PAGES_PER_LANE, PAGES_PER_LANE),),
    )
