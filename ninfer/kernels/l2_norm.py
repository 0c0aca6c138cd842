"""Heads of unit length. Knows nothing about models."""

import math
from typing import Final

import torch
from torch import Tensor

EPSILON: Final = 1e-6
"""Added to the sum of squares. Source: `l2norm` of flash-linear-attention, with which such models were trained."""


class L2Norm:
    """`y = x * scale / sqrt(sum(x ** 2) + 1e-6)` over the last axis."""

    def __init__(self, scales: Tensor) -> None:
        """Keep the scales.

        Args:
            scales: `[num_heads, 1]`, in the dtype of the heads.
        """
        self._scales = scales
        floor = math.sqrt(EPSILON)
        self._floor = torch.tensor(floor, dtype=scales.dtype, device=scales.device)

    def __call__(self, heads: Tensor) -> Tensor:
        """Normalise `[..., num_heads, width]`, any strides, into a new tensor."""
        norm = torch.linalg.vector_norm(heads, dim=-1, keepdim=True)
        return heads * (self._scales / torch.hypot(norm, self._floor))
