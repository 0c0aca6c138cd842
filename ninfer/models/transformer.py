"""The forward pass of dense decoders (Llama, Qwen3). Knows nothing about where its weights come from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.paged_attention import plan_attention
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotations
from ninfer.kernels.state_pool import StateLayout, StatePool
from ninfer.models.batch import ForwardBatch
from ninfer.models.config import ModelConfig
from ninfer.models.decoder_layer import DecoderLayer


@dataclass(frozen=True, slots=True)
class TransformerWeights:
    """Everything a model multiplies with.

    Attributes:
        embedding: `[vocab_size, hidden_size]`.
        layers: in order.
        final_norm: before the output projection.
        output: from the residual stream to the vocabulary.
        inverse_frequencies: float32 `[head_dim / 2]`.
        policy: kernels that the linear layers were built with.
    """

    embedding: Tensor
    layers: Sequence[DecoderLayer]
    final_norm: RmsNorm
    output: Linear
    inverse_frequencies: Tensor
    policy: LinearPolicy


class Transformer:
    """A loaded model. Stateless between calls: everything that lasts is in the KV pool and the state pool.

    Attributes:
        config: shape and constants.
        kv_spec: layout of the pool that `forward` needs.
        state_layout: layout of the state pool that `forward` needs; None for a model without recurrent state.
        device: where tensors must be.
        linear_policy: kernels in use.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: TransformerWeights,
        *,
        dtype: torch.dtype,
        activation_dtype: torch.dtype,
    ) -> None:
        """Keep the weights.

        Args:
            config: shape and constants.
            weights: operators.
            dtype: element type of KV and of unpacked weights.
            activation_dtype: element type of the residual stream.
        """
        self.config = config
        self.kv_spec = KvLayout(config.num_layers, config.num_kv_heads, config.head_dim, dtype)
        self.state_layout: StateLayout | None = None
        self.device = weights.embedding.device
        self.linear_policy = weights.policy
        self._weights = weights
        self._activation_dtype = activation_dtype
        self._scale = config.head_dim**-0.5

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
        weights = self._weights
        plan = plan_attention(
            kv, batch.segments, num_heads=self.config.num_heads, scale=self._scale
        )
        dtype = self._activation_dtype
        rotation = rotations(batch.positions, weights.inverse_frequencies, dtype)
        x = functional.embedding(batch.token_ids, weights.embedding).to(dtype)
        for layer in weights.layers:
            layer.add_to(x, rotation, plan)
        return weights.final_norm(x)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states to the vocabulary.

        Args:
            hidden: rows of `forward`'s result, `[num_rows, hidden_size]`.

        Returns:
            `[num_rows, vocab_size]`, float32 (float64 for a float64 model).
        """
        scores = self._weights.output(hidden)
        return scores.to(torch.promote_types(scores.dtype, torch.float32))
