"""Asks the speculative decoder for guesses. Knows nothing about how they are made or verified."""

from collections.abc import Sequence

import structlog

from ninfer.api import DraftRequest, SpeculativeDecoder, Verdict
from ninfer.sched.lane import Lane

_log = structlog.get_logger(__name__)


class Drafting:
    """Guesses for lanes that decode. A decoder that fails is switched off; it costs speed only.

    Args:
        decoder: the configured decoder, None for none.
        max_tokens: guesses per lane and step at most.

    Attributes:
        max_tokens: the same.
        problem: why the decoder was switched off, empty if it was not.
    """

    def __init__(self, decoder: SpeculativeDecoder | None, *, max_tokens: int) -> None:
        """Start with no lane open."""
        self._decoder = decoder if max_tokens else None
        self.max_tokens = max_tokens
        self.problem = ""

    def open_lane(self, number: int) -> None:
        """A request got a lane."""
        if self._decoder is not None:
            self._decoder.open_lane(number)

    def close_lane(self, number: int) -> None:
        """A request left its lane."""
        if self._decoder is not None:
            self._decoder.close_lane(number)

    def draft(self, lanes: Sequence[Lane]) -> dict[int, tuple[int, ...]]:
        """Return guesses by lane number; lanes without any are left out."""
        if self._decoder is None:
            return {}
        requests = [
            DraftRequest(lane=lane.number, token_ids=lane.token_ids, max_tokens=room)
            for lane in lanes
            if (room := self._room(lane)) > 0
        ]
        if not requests:
            return {}
        try:
            drafts = self._decoder.draft(requests)
            allowed = {request.lane: request.max_tokens for request in requests}
            return {
                draft.lane: tuple(draft.token_ids[: allowed[draft.lane]])
                for draft in drafts
                if draft.token_ids
            }
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; it costs speed only
            self._switch_off(error)
            return {}

    def _room(self, lane: Lane) -> int:
        left = lane.request.max_tokens - lane.num_completion_tokens
        return min(self.max_tokens, left - 1)

    def verified(self, verdicts: Sequence[Verdict]) -> None:
        """Tell the decoder what was accepted."""
        if self._decoder is None or not verdicts:
            return
        try:
            self._decoder.verified(verdicts)
        except Exception as error:  # noqa: BLE001 - as in `draft`
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        self.problem = f"speculative decoder failed: {type(error).__name__}: {error}"
        _log.error("decoder_failed", problem=self.problem)
        self._decoder = None

    def close(self) -> None:
        """Release the decoder."""
        if self._decoder is not None:
            self._decoder.close()
