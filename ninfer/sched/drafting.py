"""Asks the speculative decoder for guesses. Knows nothing about how they are made or verified."""

from collections.abc import Sequence

from ninfer.api import DraftRequest, SpeculativeDecoder, Verdict
from ninfer.sched.lane import Lane


class Drafting:
    """Guesses for lanes that decode.

    Args:
        decoder: the configured decoder behind its guard, None for none.
        max_tokens: guesses per lane and step at most.

    Attributes:
        max_tokens: the same.
    """

    def __init__(self, decoder: SpeculativeDecoder | None, *, max_tokens: int) -> None:
        """Start with no lane open."""
        self._decoder = decoder if max_tokens else None
        self.max_tokens = max_tokens

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
        drafts = self._decoder.draft(requests)
        return {draft.lane: tuple(draft.token_ids) for draft in drafts if draft.token_ids}

    def _room(self, lane: Lane) -> int:
        left = lane.request.max_tokens - lane.num_completion_tokens
        return min(self.max_tokens, left - 1)

    def verified(self, verdicts: Sequence[Verdict]) -> None:
        """Tell the decoder what was accepted."""
        if self._decoder is None or not verdicts:
            return
        self._decoder.verified(verdicts)

    def close(self) -> None:
        """Release the decoder."""
        if self._decoder is not None:
            self._decoder.close()
