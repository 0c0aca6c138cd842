"""The forward pass of a few rows as one program, for models of attention and plain feed-forward layers.

Knows nothing about where weights come from. Needs numba; the same in torch operators is `transformer.Transformer`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ninfer.kernels.compiled import header
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.panels import PANEL, Panels
from ninfer.kernels.compiled.program import ALONE, Program, Shares
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import Linear
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.models.attention import Attention
from ninfer.models.config import ModelConfig
from ninfer.models.feed_forward import FeedForward

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler
    from ninfer.models.transformer import TransformerWeights


@dataclass(frozen=True, slots=True)
class _Programs:
    """What runs, and the tensors it works on, for up to so many rows.

    Attributes:
        layers: everything between embedding and output projection.
        output: the output projection.
        residual: `[num_rows, hidden_size]`, input of `layers`.
        hidden: `[num_rows, hidden_size]`, result of `layers`, input of `output`.
        logits: `[num_rows, vocab_size]`, result of `output`.
    """

    layers: Program
    output: Program
    residual: Tensor
    hidden: Tensor
    logits: Tensor


class CompiledStep:
    """Computes short segments of a bf16 model. Not thread-safe: works in buffers of its own."""

    def __init__(
        self, config: ModelConfig, weights: "TransformerWeights", compiler: "Compiler"
    ) -> None:
        """Compile what the model needs: seconds the first time, then it is read from the compiler's folder.

        Args:
            config: of a model that `compiled_formats.can_compile`.
            weights: linear layers with panels.
            compiler: opened.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._config = config
        self._weights = weights
        self._compiler = compiler
        self._team = Team.of_torch()
        self._shapes = HeadShapes(
            config.num_heads, config.num_kv_heads, config.head_dim, config.rotated_dim
        )
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
        size = self._config.head_dim + 2
        partial = torch.empty(len(contexts.parts), self._config.num_heads, size)
        rotation = rotation.contiguous()
        numbers = np.zeros(header.SIZE, np.int64)
        numbers[header.NUM_ROWS] = num_rows
        numbers[header.KV] = kv.kv.data_ptr()
        numbers[header.NUM_SLOTS] = kv.num_slots
        numbers[header.ROTATION] = rotation.data_ptr()
        numbers[header.PAGES] = contexts.pages.ctypes.data
        numbers[header.ROWS] = contexts.rows.ctypes.data
        numbers[header.PARTS] = contexts.parts.ctypes.data
        numbers[header.NUM_PARTS] = len(contexts.parts)
        numbers[header.PARTIAL] = partial.data_ptr()
        programs = self._programs
        programs.residual[:num_rows] = embedded
        programs.layers.run(numbers)
        return programs.hidden[:num_rows].clone()

    def logits(self, hidden: Tensor) -> Tensor:
        """Project float32 `[num_rows, hidden_size]` to the vocabulary: `[num_rows, vocab_size]`, new."""
        self._grow(len(hidden))
        programs = self._programs
        programs.hidden[: len(hidden)] = hidden
        programs.output.run_rows(len(hidden))
        return programs.logits[: len(hidden)].clone()

    def _grow(self, num_rows: int) -> None:
        if num_rows > len(self._programs.residual):
            self._programs = self._build(1 << (num_rows - 1).bit_length())

    def _build(self, num_rows: int) -> _Programs:
        config, weights = self._config, self._weights
        program = Program(self._compiler, self._team)
        output = Program(self._compiler, self._team)
        first = weights.layers[0]
        width = _panels(_block(first.feed_forward).down).padded_outputs
        stream = torch.zeros(num_rows, width)
        residual = stream[:, : config.hidden_size]
        num_threads = self._team.num_threads
        normal = torch.empty(num_threads, num_rows, config.hidden_size)
        attended = torch.empty(num_threads, num_rows, config.num_heads * config.head_dim)
        hidden = torch.empty(num_rows, config.hidden_size)
        active = torch.empty(num_rows, config.intermediate_size)
        # A thread goes on with the heads, or gates and ups, that it computed.
        by_head = Shares(num_together=config.head_dim // PANEL, waits=False)
        by_pair = Shares(num_parts=2, waits=False)
        for index, layer in enumerate(weights.layers):
            mixer, block = _attention(layer.mixer), _block(layer.feed_forward)
            parts = mixer.weights
            self._normalise(program, residual, layer.input_norm, normal)
            heads = self._project(program, normal, parts.input, shares=by_head)
            program.heads(
                heads,
                self._shapes,
                index,
                norm=None if parts.qk_norm is None else parts.qk_norm.weight,
                eps=config.rms_norm_eps,
            )
            program.attend(heads, self._shapes, index, config.head_dim**-0.5, attended)
            self._project(program, attended, parts.output, onto=stream)
            self._normalise(program, residual, layer.feed_forward_norm, normal)
            gate_up = self._project(program, normal, block.gate_up, shares=by_pair)
            program.activation(gate_up, active)
            self._project(program, active, block.down, onto=stream)
        self._normalise(program, residual, weights.final_norm, hidden)
        logits = self._project(output, hidden, weights.output)
        return _Programs(program, output, residual, hidden, logits[:, : weights.output.num_outputs])

    @staticmethod
    def _normalise(program: Program, x: Tensor, norm: RmsNorm, y: Tensor) -> None:
        program.norm(x, norm.weight, norm.eps, y)

    @staticmethod
    def _project(
        program: Program,
        x: Tensor,
        linear: Linear,
        *,
        onto: Tensor | None = None,
        shares: Shares = ALONE,
    ) -> Tensor:
        """Add a linear layer to a program; returns where its result will be."""
        panels = _panels(linear)
        bias = linear.bias
        if bias is not None:
            bias = torch.nn.functional.pad(bias, (0, panels.padded_outputs - len(bias)))
        y = torch.empty(x.shape[-2], panels.padded_outputs) if onto is None else onto
        program.product(x, panels, y, bias=bias, adds=onto is not None, shares=shares)
        return y


def _attention(mixer: object) -> Attention:
    if not isinstance(mixer, Attention):
        raise TypeError(f"{type(mixer).__name__} cannot be compiled")
    return mixer


def _block(block: object) -> FeedForward:
    if not isinstance(block, FeedForward):
        raise TypeError(f"{type(block).__name__} cannot be compiled")
    return block


def _panels(linear: Linear) -> Panels:
    if linear.panels is None:
        raise ValueError("a linear layer has no panels")
    return linear.panels
