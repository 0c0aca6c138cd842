"""One decoder layer of the dense families. Knows nothing about where its weights come from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.kernels.linear import Linear
from ninfer.kernels.paged_attention import AttentionPlan
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotate_
from ninfer.kernels.silu_mul import silu_mul
from ninfer.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Operators of one layer.

    Attributes:
        input_norm: before attention.
        qkv: outputs are query heads, key heads, value heads; queries and keys interleaved (see `kernels.rope`).
        qk_norm: weight `[num_heads + num_kv_heads, head_dim]`, interleaved; None for models without.
        attention_output: from heads to the residual stream.
        feed_forward_norm: before the feed-forward block.
        gate_up: outputs are gate, then up.
        down: back to the residual stream.
    """

    input_norm: RmsNorm
    qkv: Linear
    qk_norm: RmsNorm | None
    attention_output: Linear
    feed_forward_norm: RmsNorm
    gate_up: Linear
    down: Linear


class DecoderLayer:
    """Attention and feed-forward block around a residual stream."""

    def __init__(
        self, index: int, config: ModelConfig, weights: LayerWeights, *, kv_dtype: torch.dtype
    ) -> None:
        """Keep the operators.

        Args:
            index: layer of the KV pool.
            config: shapes.
            weights: operators.
            kv_dtype: element type of the pool.
        """
        self._index = index
        self._weights = weights
        self._kv_dtype = kv_dtype
        self._num_heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads
        self._heads_shape = (-1, self._num_rotated + config.num_kv_heads, config.head_dim)
        self._group = config.num_heads // config.num_kv_heads
        self._grouped_shape = (-1, self._group + 2, config.num_kv_heads, config.head_dim)

    def add_to(self, x: Tensor, rotation: Tensor, plan: AttentionPlan) -> None:
        """Run the layer.

        Args:
            x: residual stream `[num_rows, hidden_size]`; updated in place.
            rotation: from `kernels.rope.rotations`.
            plan: attention of this step.

        Changes: `x`, and the rows' KV slots of this layer.
        """
        weights = self._weights
        heads = weights.qkv(weights.input_norm(x)).view(self._heads_shape)
        rotated = heads[:, : self._num_rotated]
        if weights.qk_norm is not None:
            weights.qk_norm.in_place(rotated)
        rotate_(rotated, rotation)
        heads = heads.to(self._kv_dtype)
        keys_values = heads.view(self._grouped_shape)[:, self._group :]
        attended = plan.attend(self._index, heads[:, : self._num_heads], keys_values)
        x.add_(weights.attention_output(attended.to(x.dtype)))
        x.add_(weights.down(silu_mul(weights.gate_up(weights.feed_forward_norm(x)))))
