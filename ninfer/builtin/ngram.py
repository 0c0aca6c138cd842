"""The decoder `ngram`: guesses that what followed the last tokens before will follow again (prompt lookup).

Source: the idea of prompt lookup decoding; here with an index per lane, so that a guess costs a dictionary look-up,
whatever the length of the context.
"""

from collections.abc import Sequence

from pydantic import Field
from typing_extensions import override

from ninfer.api import (
    DecoderContext,
    Draft,
    DraftRequest,
    PluginConfig,
    SpeculativeDecoder,
)


class NgramConfig(PluginConfig):
    """Options of the decoder `ngram`."""

    max_ngram: int = Field(default=4, ge=1, le=16)
    """Longest run of last tokens that is looked up. Unit: tokens."""
    min_ngram: int = Field(default=2, ge=1, le=16)
    """Shortest run. Unit: tokens."""


class _Lane:
    """Where each run of tokens was last followed by something: `ngram -> position after it`."""

    def __init__(self) -> None:
        self.positions: dict[tuple[int, ...], int] = {}
        self.num_indexed = 0


class NgramDecoder(SpeculativeDecoder):
    """Prompt lookup over each lane's own tokens.

    Indexing costs a few dictionary writes per new token, once; the index grows with the context.

    Args:
        config: options.
    """

    def __init__(self, config: NgramConfig) -> None:
        """Start with no lane open."""
        self._lengths = range(config.min_ngram, max(config.min_ngram, config.max_ngram) + 1)
        self._lanes: dict[int, _Lane] = {}

    @classmethod
    def open(cls, context: DecoderContext, config: NgramConfig) -> "NgramDecoder":  # noqa: ARG003
        """Open the decoder."""
        return cls(config)

    @override
    def open_lane(self, lane: int) -> None:
        """Begin with an empty index."""
        self._lanes[lane] = _Lane()

    @override
    def close_lane(self, lane: int) -> None:
        """Forget the index."""
        self._lanes.pop(lane, None)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return for each lane what followed its longest known ending."""
        return [Draft(lane=request.lane, token_ids=self._guess(request)) for request in requests]

    def _guess(self, request: DraftRequest) -> tuple[int, ...]:
        lane = self._lanes[request.lane]
        token_ids = request.token_ids
        self._index(lane, token_ids)
        num_tokens = len(token_ids)
        for length in reversed(self._lengths):
            if num_tokens <= length:
                continue
            at = lane.positions.get(tuple(token_ids[num_tokens - length : num_tokens]))
            if at is not None:
                return tuple(token_ids[at : at + request.max_tokens])
        return ()

    def _index(self, lane: _Lane, token_ids: Sequence[int]) -> None:
        """Index every run that ends before the last token: the last one has no continuation yet."""
        for end in range(lane.num_indexed + 1, len(token_ids)):
            for length in self._lengths:
                if length <= end:
                    lane.positions[tuple(token_ids[end - length : end])] = end
        lane.num_indexed = max(lane.num_indexed, len(token_ids) - 1)
