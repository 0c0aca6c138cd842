"""The head that predicts several tokens as one program, for a few rows.

Knows nothing about where weights come from. Needs numba; the same in torch operators is `mtp_head.MtpHead`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.segment import Segment
from ninfer.models.config import ModelConfig
from ninfer.models.layer_program import LayerProgram

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler
    from ninfer.models.mtp_head import MtpWeights

MAX_ROWS: Final = 32
"""Of a call; more are products of matrices."""
MAX_LANE_ROWS: Final = 8
"""Of one lane: what a part of its keys gives each of them takes room until all are put together."""
MAX_KEYS: Final = 1 << 13
"""That all rows of a call look at, where each attends for itself: torch is faster for more (measured)."""


class CompiledHead:
    """Computes a few rows of the head of a bf16 model. Not thread-safe: works in buffers of its own."""

    def __init__(self, config: ModelConfig, weights: "MtpWeights", compiler: "Compiler") -> None:
        """Compile what the head needs: seconds the first time, then it is read from the compiler's folder.

        Args:
            config: of a model whose head `compiling.can_compile_head`.
            weights: linear layers with panels.
            compiler: opened.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        width = config.hidden_size
        program = LayerProgram(config, compiler, Team.of_torch(), MAX_ROWS)
        self._embedded = torch.empty(MAX_ROWS, width)
        self._hidden = torch.empty(MAX_ROWS, width)
        self._results = torch.empty(MAX_ROWS, width)
        joined = program.own_rows(2 * width)
        program.normalise(self._embedded, weights.embedding_norm, joined[..., :width])
        program.normalise(self._hidden, weights.hidden_norm, joined[..., width:])
        program.project(joined, weights.join, into=program.stream)
        program.layer(0, weights.layer)
        program.normalise(program.residual, weights.norm, self._results)
        self._program = program

    def takes(self, segments: Sequence[Segment]) -> bool:
        """Whether it computes these rows, and is faster."""
        counts = [segment.num_rows for segment in segments]
        if sum(counts) > MAX_ROWS or max(counts) > MAX_LANE_ROWS:
            return False
        num_keys = sum(segment.num_rows * segment.position_end for segment in segments)
        return self._program.has_tiles or num_keys <= MAX_KEYS

    def results(
        self, embedded: Tensor, hidden: Tensor, rotation: Tensor, contexts: Contexts, kv: KvPool
    ) -> Tensor:
        """Compute rows.

        Args:
            embedded: of their tokens, float32 `[num_rows, hidden_size]`, at most `MAX_ROWS`.
            hidden: the states before them, alike.
            rotation: of the rows, from `kernels.rope.rotations`.
            contexts: of the rows.
            kv: the head's own bf16 pool on the CPU.

        Returns:
            `[num_rows, hidden_size]`, borrowed until the next call.

        Changes: the KV slots of the rows. Blocks.
        """
        num_rows = len(embedded)
        self._embedded[:num_rows] = embedded
        self._hidden[:num_rows] = hidden
        self._program.run(num_rows, rotation, contexts, kv)
        return self._results[:num_rows]
