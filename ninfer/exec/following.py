"""What a step computed, as a speculative decoder that works on hidden states sees it. Knows nothing about decoders.

A token's row is the hidden state before it. That of the first token of a chunk was computed in an earlier step, maybe by
an earlier process: it is part of the state that the chunk starts from.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ninfer.api import LaneRows
from ninfer.core.step import ChunkOutput, LaneChunk
from ninfer.kernels.segment import Segment
from ninfer.kernels.state_pool import StatePool


class Following:
    """Collects the lanes of one step.

    Attributes:
        lanes: those with tokens to show.
    """

    def __init__(self, states: StatePool, segments: Sequence[Segment]) -> None:
        """Copy the hidden states before the chunks; the forward pass overwrites them.

        Args:
            states: of all lanes.
            segments: of the step, each with a state slot.
        """
        slots = [segment.state_slot for segment in segments]
        self._before = states.last_hidden[torch.tensor(slots, device=states.device)]
        self._segments = segments
        self.lanes: list[LaneRows] = []
        self._rows: list[int] = []

    def add(self, chunk: LaneChunk, output: ChunkOutput, segment: int) -> None:
        """Add the tokens of a chunk that are final: what it was sure of, accepted guesses, the sampled token.

        Args:
            chunk: what was computed.
            output: what came out, without error.
            segment: index of the chunk's segment.
        """
        num_final = len(chunk.token_ids) - chunk.num_draft + output.num_accepted
        token_ids = [*chunk.token_ids[:num_final], *output.token_ids[-1:]]
        first = self._segments[segment].row_start
        rows = [-1 - segment, *range(first, first + num_final)][: len(token_ids)]
        start = chunk.start_tokens
        if start == 0:
            start, token_ids, rows = 1, token_ids[1:], rows[1:]
        if token_ids:
            self.lanes.append(
                LaneRows(lane=chunk.lane, start_tokens=start, token_ids=token_ids, runs=chunk.runs)
            )
            self._rows.extend(rows)

    def rows(self, hidden: Tensor) -> Tensor:
        """Return the hidden state before each token of `lanes`.

        Args:
            hidden: result of the forward pass, `[num_rows, hidden_size]`.

        Returns:
            `[num_tokens, hidden_size]`, new.
        """
        num_rows = len(hidden)
        index = [row if row >= 0 else num_rows - 1 - row for row in self._rows]
        both = torch.cat((hidden, self._before.to(hidden.dtype)))
        return both.index_select(0, torch.tensor(index, device=hidden.device))
