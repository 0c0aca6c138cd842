"""Decoder layers of attention and plain feed-forward as operations of one program. Knows nothing about whole models.

Needs numba; the same in torch operators is `decoder_layer.DecoderLayer`.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from ninfer.kernels.compiled import header
from ninfer.kernels.compiled.attend_tiles import KEYS_STEP
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.lane_tables import LaneTables
from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.panels import PANEL, Panels
from ninfer.kernels.compiled.program import ALONE, Program, Shares
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import Linear
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.models.attention import Attention, AttentionWeights
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer
from ninfer.models.feed_forward import FeedForward

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler

MIN_GROUP: Final = 3
"""Query heads to a head of keys from which a single row attends in matrix tiles no slower than by itself: a tile has room for 16
of them (measured with AVX512_BF16, 1,000 and 4,000 keys in a cache: two heads take 1.2 to 1.7 times as long, three as long)."""
MAX_SMALL_HEAD: Final = 32
"""Elements of heads that tiles always take: for a row by itself so few are a third to all of the time (measured)."""
_BY_PAIR: Final = Shares(num_parts=2, waits=False)
"""A thread goes on with the gates and ups that it computed."""


class LayerProgram:
    """A program, the buffers its layers share, and how they are added to it. Not thread-safe.

    Attributes:
        residual: `[num_rows, hidden_size]`, float32: what layers read and add to.
        stream: the same with the zeros that fill the last panel, `[num_rows, padded hidden_size]`.
    """

    def __init__(
        self, config: ModelConfig, compiler: "Compiler", team: Team, num_rows: int
    ) -> None:
        """Begin with no operations.

        Args:
            config: of a model that `compiling` says can be compiled.
            compiler: opened.
            team: threads that compute.
            num_rows: at most.
        """
        self._config = config
        self._shapes = HeadShapes(
            config.num_heads, config.num_kv_heads, config.head_dim, config.rotated_dim
        )
        self._num_rows = num_rows
        self._num_threads = team.num_threads
        self._program = Program(compiler, team)
        width = -(-config.hidden_size // PANEL) * PANEL
        self.stream = torch.zeros(num_rows, width)
        self.residual = self.stream[:, : config.hidden_size]
        self._normal = self.own_rows(config.hidden_size)
        self._attended = self.own_rows(config.num_heads * config.head_dim)
        self._active = torch.empty(num_rows, config.intermediate_size)
        self._tables: LaneTables | None = None
        if matrix_unit() and _attends_in_tiles(self._shapes):
            self._tables = LaneTables(
                self._shapes,
                num_rows,
                num_threads=team.num_threads,
                scale=config.head_dim**-0.5,
            )

    @property
    def has_tiles(self) -> bool:
        """Whether the rows of a lane attend together, so that its keys are read once."""
        return self._tables is not None

    def own_rows(self, width: int) -> Tensor:
        """Return a buffer for each thread, `[num_threads, num_rows, width]`."""
        return torch.empty(self._num_threads, self._num_rows, width)

    def layer(self, index: int, layer: DecoderLayer) -> None:
        """Add a layer.

        Args:
            index: of the KV pool.
            layer: of attention and plain feed-forward, whose linear layers have panels.

        Raises:
            TypeError: it consists of something else.
            ValueError: a linear layer has no panels.
        """
        mixer, block = layer.mixer, layer.feed_forward
        if not isinstance(mixer, Attention) or not isinstance(block, FeedForward):
            msg = f"{type(mixer).__name__} and {type(block).__name__} cannot be compiled"
            raise TypeError(msg)
        self.normalise(self.residual, layer.input_norm, self._normal)
        self._attention(index, mixer.weights)
        self.normalise(self.residual, layer.feed_forward_norm, self._normal)
        gate_up = self.project(self._normal, block.gate_up, shares=_BY_PAIR)
        self._program.activation(gate_up, self._active)
        self.project(self._active, block.down, onto=self.stream)

    def normalise(self, x: Tensor, norm: RmsNorm, y: Tensor) -> None:
        """Add a norm from `x` to `y`; see `Program.norm`."""
        self._program.norm(x, norm.weight, norm.eps, y)

    def project(
        self,
        x: Tensor,
        linear: Linear,
        *,
        into: Tensor | None = None,
        onto: Tensor | None = None,
        shares: Shares = ALONE,
    ) -> Tensor:
        """Add a linear layer; returns where its result will be.

        Args:
            x: see `Program.product`.
            linear: with panels.
            into: where the result is put, `[num_rows, padded_outputs]`; None for a new buffer.
            onto: what it is added to instead.
            shares: see `Program.product`.

        Raises:
            ValueError: it has no panels, or shapes do not fit.
        """
        panels = panels_of(linear)
        bias = linear.bias
        if bias is not None:
            bias = torch.nn.functional.pad(bias, (0, panels.padded_outputs - len(bias)))
        y = into if onto is None else onto
        if y is None:
            y = torch.empty(self._num_rows, panels.padded_outputs)
        self._program.product(x, panels, y, bias=bias, adds=onto is not None, shares=shares)
        return y

    def run(self, num_rows: int, rotation: Tensor, contexts: Contexts, kv: KvPool) -> None:
        """Compute rows.

        Args:
            num_rows: of those in the buffers.
            rotation: of the rows, from `kernels.rope.rotations`.
            contexts: of the rows.
            kv: bf16 pool on the CPU.

        Changes: the buffers, and the KV slots of the rows. Blocks.
        """
        config, tables = self._config, self._tables
        rotation = rotation.contiguous()
        numbers = np.zeros(header.SIZE, np.int64)
        numbers[header.NUM_ROWS] = num_rows
        numbers[header.KV] = kv.kv.data_ptr()
        numbers[header.NUM_SLOTS] = kv.num_slots
        numbers[header.ROTATION] = rotation.data_ptr()
        numbers[header.PAGES] = contexts.pages.ctypes.data
        numbers[header.ROWS] = contexts.rows.ctypes.data
        if tables is not None:
            lanes = tables.tables(contexts, kv)
            numbers[header.LANES] = lanes.ctypes.data
            numbers[header.NUM_LANES] = len(contexts.lanes)
        else:
            partial = torch.empty(len(contexts.parts), config.num_heads, config.head_dim + 2)
            numbers[header.PARTS] = contexts.parts.ctypes.data
            numbers[header.NUM_PARTS] = len(contexts.parts)
            numbers[header.PARTIAL] = partial.data_ptr()
        self._program.run(numbers)

    def _attention(self, index: int, weights: AttentionWeights) -> None:
        config, program, shapes, tables = self._config, self._program, self._shapes, self._tables
        # A thread goes on with the heads that it computed; gates would change whose they are.
        by_head = Shares(num_together=config.head_dim // PANEL, waits=config.attention_gate)
        heads = self.project(self._normal, weights.input, shares=by_head)
        norm = None if weights.qk_norm is None else weights.qk_norm.weight
        queries = None if tables is None else tables.queries
        program.heads(heads, shapes, index, norm=norm, eps=config.rms_norm_eps, queries=queries)
        gates = None
        if config.attention_gate:
            gates = heads[:, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim :]
        if tables is not None:
            program.attend_tiles(index, tables.attended, self._attended, gates=gates)
        else:
            scale = config.head_dim**-0.5
            program.attend(heads, shapes, index, scale, self._attended, gates=gates)
        self.project(self._attended, weights.output, onto=self.stream)


def _attends_in_tiles(shapes: HeadShapes) -> bool:
    """Tell whether matrix tiles suit the heads. The number of rows must not matter: a guess has the bits of a single row."""
    group = shapes.num_heads // shapes.num_kv_heads
    is_suited = group >= MIN_GROUP or shapes.head_dim <= MAX_SMALL_HEAD
    return is_suited and shapes.head_dim % KEYS_STEP == 0


def panels_of(linear: Linear) -> Panels:
    """Return the form for compiled steps.

    Raises:
        ValueError: there is none.
    """
    if linear.panels is None:
        raise ValueError("a linear layer has no panels")
    return linear.panels
