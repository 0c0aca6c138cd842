"""The forward pass of a few rows as one program, for models of attention and plain feed-forward layers.

Knows nothing about where weights come from. Needs numba; the same in torch operators is `transformer.Transformer`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.program import Program
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.config import ModelConfig
from ninfer.models.layer_program import LayerProgram, panels_of

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler
    from ninfer.models.transformer import TransformerWeights


@dataclass(frozen=True, slots=True)
class _Programs:
    """What runs, and the tensors it works on, for up to so many rows.

    Attributes:
        layers: everything between embedding and output projection.
        output: the output projection.
        hidden: `[num_rows, hidden_size]`, result of `layers`, input of `output`.
        logits: `[num_rows, vocab_size]`, result of `output`.
    """

    layers: LayerProgram
    output: Program
    hidden: Tensor
    logits: Tensor


class CompiledStep:
    """Computes short segments of a bf16 model. Not thread-safe: works in buffers of its own."""

    def __init__(
        self, config: ModelConfig, weights: "TransformerWeights", compiler: "Compiler"
    ) -> None:
        """Compile what the model needs: seconds the first time, then it is read from the compiler's folder.

        Args:
            config: of a model that `compiling.can_compile`.
            weights: linear layers with panels.
            compiler: opened.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._config = config
        self._weights = weights
        self._compiler = compiler
        self._team = Team.of_torch()
        self._programs = self._build(4)

    def forward(self, embedded: Tensor, rotation: Tensor, contexts: Contexts, kv: KvPool) -> Tensor:
        """Compute rows.

        Args:
            embedded: `[num_rows, hidden_size]`, float32.
            rotation: of the rows, from `kernels.rope.rotations`.
            contexts: of the rows.
            kv: bf16 pool on the CPU.

        Returns:
            Normalised hidden states `[num_rows, hidden_size]`, new.

        Changes: the KV slots of the rows. Blocks.
        """
        num_rows = len(embedded)
        self._grow(num_rows)
        programs = self._programs
        programs.layers.residual[:num_rows] = embedded
        programs.layers.run(num_rows, rotation, contexts, kv)
        return programs.hidden[:num_rows].clone()

    def logits(self, hidden: Tensor) -> Tensor:
        """Project float32 `[num_rows, hidden_size]` to the vocabulary: `[num_rows, vocab_size]`, new."""
        self._grow(len(hidden))
        programs = self._programs
        programs.hidden[: len(hidden)] = hidden
        programs.output.run_rows(len(hidden))
        return programs.logits[: len(hidden)].clone()

    def _grow(self, num_rows: int) -> None:
        if num_rows > len(self._programs.hidden):
            self._programs = self._build(1 << (num_rows - 1).bit_length())

    def _build(self, num_rows: int) -> _Programs:
        config, weights = self._config, self._weights
        layers = LayerProgram(config, self._compiler, self._team, num_rows)
        for index, layer in enumerate(weights.layers):
            layers.layer(index, layer)
        hidden = torch.empty(num_rows, config.hidden_size)
        layers.normalise(layers.residual, weights.final_norm, hidden)
        panels = panels_of(weights.output)
        output = Program(self._compiler, self._team)
        logits = torch.empty(num_rows, panels.padded_outputs)
        output.product(hidden, panels, logits)
        return _Programs(layers, output, hidden, logits[:, : panels.num_outputs])
