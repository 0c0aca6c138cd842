"""A linear layer that chooses its weight format by the number of rows. Knows nothing about models."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ninfer.kernels.linear_kernels import KernelName, MatrixKernel, build_kernel
from ninfer.kernels.weight import Weight

WeightFormat = Literal["plain", "int8", "int4"]


@dataclass(frozen=True, slots=True)
class LinearPolicy:
    """Which kernel multiplies how many rows; plain data, the same for all linear layers of a model.

    Attributes:
        few: kernel for 1 to `max_few_rows` rows.
        max_few_rows: 0 to use `many` for all.
        many: kernel for more rows.
    """

    few: KernelName = "plain"
    max_few_rows: int = 0
    many: KernelName = "plain"


class Linear:
    """`y = x W^T + b` with one or two forms of the same W."""

    def __init__(
        self, weight: Weight, bias: Tensor | None, *, policy: LinearPolicy, dtype: torch.dtype
    ) -> None:
        """Pack the weight.

        Args:
            weight: `[num_outputs, num_inputs]`; borrowed.
            bias: `[num_outputs]` in the dtype of the activations, or None.
            policy: kernels to use.
            dtype: dtype of weights that are not packed.
        """
        self.num_outputs, self.num_inputs = weight.dense.shape
        self._bias = bias
        self._many: MatrixKernel = build_kernel(policy.many, weight, dtype)
        self._few = self._many
        self._max_few_rows = policy.max_few_rows
        if policy.max_few_rows and policy.few != policy.many:
            self._few = build_kernel(policy.few, weight, dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all forms of the weight."""
        few = 0 if self._few is self._many else self._few.weight_bytes
        return self._many.weight_bytes + few

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[num_rows, num_inputs]` to `[num_rows, num_outputs]`, same dtype, new tensor."""
        kernel = self._few if x.shape[0] <= self._max_few_rows else self._many
        output = kernel(x)
        return output if self._bias is None else output.add_(self._bias)
