"""Root-mean-square normalisation. Knows nothing about models."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ninfer.kernels.compiled.row_kernels import RowKernels

MAX_FEW_ROWS: Final = 32
"""Up to here the fewest calls count, above the fewest passes over rows. Both beat `functional.rms_norm`, which is not fused on
a CPU (8 against 23 us for one row of 576, 78 against 134 us for 512)."""


class RmsNorm:
    """`y = x / sqrt(mean(x ** 2) + eps) * weight` over the last axis."""

    def __init__(
        self,
        weight: Tensor,
        eps: float,
        *,
        rows: "RowKernels | None" = None,
        dtype_of: Callable[[int], torch.dtype] | None = None,
    ) -> None:
        """Keep the weight.

        Args:
            weight: `[width]` or `[num_heads, width]`, in the dtype of the activations.
            eps: added to the mean square.
            rows: for a float32 weight `[width]` on a CPU; None to compute with torch.
            dtype_of: type of the result for a number of rows, float32 or bfloat16, if `rows` computes it; None for float32.
        """
        width = weight.shape[-1]
        self.weight = weight
        self.eps = eps
        self._rows = rows
        self._dtype_of = dtype_of
        # x / sqrt(mean + eps) = x * sqrt(width) / hypot(norm, sqrt(width * eps)): no squares, no reciprocal.
        self._scaled_weight = weight * math.sqrt(width)
        self._floor = torch.tensor(math.sqrt(width * eps), dtype=weight.dtype, device=weight.device)

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Normalise rows into a new tensor, after something was added to them.

        Args:
            x: `[num_rows, width]`, in the weight's dtype, contiguous.
            added: the same shape, the same dtype or bf16; None to add nothing.

        Returns:
            `[num_rows, width]`, in the weight's dtype unless told otherwise.

        Changes: `x`, to the sum.
        """
        if self._rows is not None:
            dtype = x.dtype if self._dtype_of is None else self._dtype_of(len(x))
            return self._rows.norm(x, added, self.weight, eps=self.eps, dtype=dtype)
        if added is not None:
            x.add_(added)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.hypot(norm, self._floor)
        if x.shape[0] > MAX_FEW_ROWS:
            return (x / scale).mul_(self._scaled_weight)
        return x * (self._scaled_weight / scale)

    def in_place(self, x: Tensor) -> None:
        """Normalise `[num_rows, num_heads, width]` where it is, any strides, bf16 or the weight's dtype."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self.weight.dtype)
        x.mul_(self._scaled_weight / torch.hypot(norm, self._floor))
