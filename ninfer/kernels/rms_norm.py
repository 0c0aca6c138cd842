"""Root-mean-square normalisation. Knows nothing about models."""

import math
from typing import Final

import torch
from torch import Tensor

MAX_FEW_ROWS: Final = 32
"""Up to here the fewest calls count, above the fewest passes over rows. Both beat `functional.rms_norm`, which is not fused on
a CPU (8 against 23 us for one row of 576, 78 against 134 us for 512)."""


class RmsNorm:
    """`y = x / sqrt(mean(x ** 2) + eps) * weight` over the last axis."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """Keep the weight.

        Args:
            weight: `[width]` or `[num_heads, width]`, in the dtype of the activations.
            eps: added to the mean square.
        """
        width = weight.shape[-1]
        self.weight = weight
        self.eps = eps
        # x / sqrt(mean + eps) = x * sqrt(width) / hypot(norm, sqrt(width * eps)): no squares, no reciprocal.
        self._scaled_weight = weight * math.sqrt(width)
        self._floor = torch.tensor(math.sqrt(width * eps), dtype=weight.dtype, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise rows `[num_rows, width]` into a new tensor."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.hypot(norm, self._floor)
        if x.shape[0] > MAX_FEW_ROWS:
            return (x / scale).mul_(self._scaled_weight)
        return x * (self._scaled_weight / scale)

    def in_place(self, x: Tensor) -> None:
        """Normalise `[num_rows, num_heads, width]` where it is, any strides, bf16 or the weight's dtype."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self.weight.dtype)
        x.mul_(self._scaled_weight / torch.hypot(norm, self._floor))
