"""The forward pass of a decoder. Knows nothing about where its weights come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.paged_attention import SegmentKernel, plan_attention
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotations
from ninfer.kernels.state_pool import StateLayout, StatePool
from ninfer.models.attending import attending_segments
from ninfer.models.batch import ForwardBatch
from ninfer.models.build_options import BuildOptions
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer
from ninfer.models.residual_stream import ResidualStream
from ninfer.models.state_plan import StatePlan
from ninfer.models.step import Step

if TYPE_CHECKING:
    from ninfer.models.compiled_step import CompiledStep


@dataclass(frozen=True, slots=True)
class TransformerWeights:
    """Everything a model multiplies with.

    Attributes:
        embedding: `[vocab_size, hidden_size]`.
        layers: in order.
        final_norm: before the output projection.
        output: from the residual stream to the vocabulary.
        inverse_frequencies: float32 `[rotated_dim / 2]`.
        has_mtp_head: the checkpoint has a head that predicts several tokens.
    """

    embedding: Tensor
    layers: Sequence[DecoderLayer]
    final_norm: RmsNorm
    output: Linear
    inverse_frequencies: Tensor
    has_mtp_head: bool = False


class Transformer:
    """A loaded model. Stateless between calls: everything that lasts is in the KV pool and the state pool.

    Attributes:
        config: shape and constants.
        kv_spec: layout of the pool that `forward` needs.
        state_layout: layout of the state pool that `forward` needs; None for a model without recurrent state.
        device: where tensors must be.
        options: how it is held.
        has_mtp_head: the checkpoint has a head that predicts several tokens.
        segment_kernel: attends; None for torch's kernel.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: TransformerWeights,
        options: BuildOptions,
        compiled: "CompiledStep | None" = None,
        segment_kernel: SegmentKernel | None = None,
    ) -> None:
        """Keep the weights.

        Args:
            config: shape and constants.
            weights: operators.
            options: how they were built.
            compiled: for segments of at most `options.policy.max_compiled_rows` rows.
            segment_kernel: attends; None for torch's kernel.
        """
        self.config = config
        num_kv_layers = len(config.attention_layers)
        self.kv_spec = KvLayout(num_kv_layers, config.num_kv_heads, config.head_dim, options.dtype)
        self.state_layout = state_layout(config, options.state_dtype)
        self.device = weights.embedding.device
        self.options = options
        self.has_mtp_head = weights.has_mtp_head
        self._weights = weights
        self._compiled = compiled
        self.segment_kernel = segment_kernel
        self._activation_dtype = options.activation_dtype
        self._scale = config.head_dim**-0.5

    @property
    def linear_policy(self) -> LinearPolicy:
        """Kernels in use."""
        return self.options.policy

    @property
    def dtype(self) -> torch.dtype:
        """Element type of KV and of unpacked weights."""
        return self.kv_spec.dtype

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KvPool, states: StatePool | None = None) -> Tensor:
        """Compute all rows of a batch.

        Args:
            batch: rows; every segment's earlier KV must be in the pool, and its state in its slot.
            kv: a pool of layout `kv_spec` on `device`.
            states: a pool of layout `state_layout` on `device`; not used by a model without recurrent state.

        Returns:
            Normalised hidden states `[num_rows, hidden_size]` for `logits`, new.

        Raises:
            ValueError: a segment's page runs are too short, or it lacks a state slot. Nothing was changed.

        Changes: the KV slots of the rows, and the segments' state slots. Blocks on a CPU.
        """
        if self._compiled is None:
            return self._forward(batch, kv, states)
        compiled = self._compiled
        max_rows = self.linear_policy.max_compiled_rows
        short, long = batch.parted(lambda segment: segment.num_rows <= max_rows)
        if short is None:
            return self._forward(batch, kv, states)
        rotation = rotations(
            short.batch.positions, self._weights.inverse_frequencies, self._activation_dtype
        )
        embedded = self.embed(short.batch.token_ids)
        contexts = Contexts(short.batch.segments)
        if long is None:
            return compiled.forward(embedded, rotation, contexts, kv)
        others = self._forward(long.batch, kv, states)
        hidden = torch.empty(len(batch.token_ids), others.shape[1], dtype=others.dtype)
        hidden[long.rows] = others
        hidden[short.rows] = compiled.forward(embedded, rotation, contexts, kv)
        return hidden

    def _forward(self, batch: ForwardBatch, kv: KvPool, states: StatePool | None) -> Tensor:
        weights, dtype = self._weights, self._activation_dtype
        attention = plan_attention(
            kv,
            attending_segments(batch.segments, kv.layout, self.segment_kernel),
            num_heads=self.config.num_heads,
            scale=self._scale,
            kernel=self.segment_kernel,
        )
        rotation = rotations(batch.positions, weights.inverse_frequencies, dtype)
        step = Step(rotation, attention, self._plan_states(batch, states))
        stream = ResidualStream(self.embed(batch.token_ids))
        for layer in weights.layers:
            layer.add_to(stream, step)
        hidden = stream.normalised(weights.final_norm)
        if step.states is not None:
            step.states.keep_hidden(hidden)
        return hidden

    def embed(self, token_ids: Tensor) -> Tensor:
        """Look int64 `[num_rows]` token ids up: `[num_rows, hidden_size]` in the activation type, new."""
        return functional.embedding(token_ids, self._weights.embedding).to(self._activation_dtype)

    def _plan_states(self, batch: ForwardBatch, states: StatePool | None) -> StatePlan | None:
        if self.state_layout is None:
            return None
        if states is None or states.layout != self.state_layout:
            raise ValueError("the model keeps state and needs a state pool of its layout")
        return StatePlan(states, batch.segments)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states to the vocabulary.

        Args:
            hidden: rows of `forward`'s result, `[num_rows, hidden_size]`.

        Returns:
            `[num_rows, vocab_size]`, float32 (float64 for a float64 model).
        """
        if self._compiled is not None:
            return self._compiled.logits(hidden)
        scores = self._weights.output(hidden)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))


def state_layout(config: ModelConfig, dtype: torch.dtype) -> StateLayout | None:
    """Return what a lane's state consists of; None for a model without recurrent state.

    Args:
        config: shape of the model.
        dtype: element type of states.
    """
    delta = config.delta_net
    if delta is None or not config.delta_layers:
        return None
    return StateLayout(
        num_layers=len(config.delta_layers),
        num_heads=delta.num_value_heads,
        key_dim=delta.key_dim,
        value_dim=delta.value_dim,
        window_rows=delta.window - 1,
        window_width=delta.conv_width,
        hidden_size=config.hidden_size,
        dtype=dtype,
    )
