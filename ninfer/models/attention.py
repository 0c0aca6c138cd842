"""Softmax attention over paged KV. Knows nothing about where its weights come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ninfer.kernels.linear import Linear
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotate_
from ninfer.models.config import ModelConfig
from ninfer.models.step import Step

if TYPE_CHECKING:
    from ninfer.kernels.compiled.row_kernels import RowKernels


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Operators of one layer.

    Attributes:
        input: outputs are query heads, key heads, value heads, and a gate per query element for models with
            `attention_gate`; the rotated part of queries and keys is interleaved (see `kernels.rope`).
        qk_norm: weight `[num_heads + num_kv_heads, head_dim]`, interleaved alike; None for models without.
        output: from heads to the residual stream.
        rows: compiled operators for a model with bf16 weights on a CPU; None for torch's.
    """

    input: Linear
    qk_norm: RmsNorm | None
    output: Linear
    rows: "RowKernels | None" = None


class Attention:
    """A `Mixer` that reads everything before."""

    def __init__(
        self, index: int, config: ModelConfig, weights: AttentionWeights, *, kv_dtype: torch.dtype
    ) -> None:
        """Keep the operators.

        Args:
            index: layer of the KV pool.
            config: shapes.
            weights: operators.
            kv_dtype: element type of the pool.
        """
        self._index = index
        self.weights = weights
        self._kv_dtype = kv_dtype
        self._num_heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads
        self._rotated_dim = config.rotated_dim
        self._is_partly_rotated = config.rotated_dim < config.head_dim
        self._has_gate = config.attention_gate
        self._num_attended = self._num_rotated + config.num_kv_heads
        num_gates = config.num_heads if config.attention_gate else 0
        self._heads_shape = (-1, self._num_attended + num_gates, config.head_dim)
        self._group = config.num_heads // config.num_kv_heads
        self._grouped_shape = (-1, self._group + 2, config.num_kv_heads, config.head_dim)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """See `Mixer`. Changes the rows' KV slots of this layer."""
        weights = self.weights
        heads = weights.input.unconverted(x).view(self._heads_shape)
        self._prepare(heads[:, : self._num_rotated], step.rotation)
        attending = heads[:, : self._num_attended] if self._has_gate else heads
        attending = attending.to(self._kv_dtype)
        keys_values = attending.view(self._grouped_shape)[:, self._group :]
        attended = step.attention.attend(self._index, attending[:, : self._num_heads], keys_values)
        if self._has_gate:
            gates = heads[:, self._num_attended :]
            gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
            attended = attended * gates.sigmoid().flatten(1)
        return weights.output.unconverted(attended)

    def _prepare(self, heads: Tensor, rotation: Tensor) -> None:
        """Normalise and rotate the heads of queries and keys in place."""
        norm, rows = self.weights.qk_norm, self.weights.rows
        if rows is not None and heads.dtype == torch.bfloat16:
            weight, eps = (None, 0.0) if norm is None else (norm.weight, norm.eps)
            rows.rotate_(heads, rotation, weight, eps=eps)
            return
        if norm is not None:
            norm.in_place(heads)
        rotate_(heads[..., : self._rotated_dim] if self._is_partly_rotated else heads, rotation)
