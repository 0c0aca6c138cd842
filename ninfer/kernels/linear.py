"""A linear layer that chooses its weight format by the number of rows. Knows nothing about models."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ninfer.kernels.compiled.panels import PanelFormat, Panels, reference_product
from ninfer.kernels.linear_kernels import KernelName, build_kernel, input_dtype_of
from ninfer.kernels.weight import Weight

WeightFormat = Literal["plain", "int8", "int4"]


@dataclass(frozen=True, slots=True)
class LinearPolicy:
    """Which kernel multiplies how many rows; plain data, the same for all linear layers of a model.

    Attributes:
        few: kernel for 1 to `max_few_rows` rows.
        max_few_rows: 0 to use `many` for all.
        many: kernel for more rows; None for layers that only compiled steps use: anything else is slow.
        compiled: form of the weights for compiled steps, which do without the kernels above; None for none.
        max_compiled_rows: rows that a lane may have in a compiled step.
    """

    few: KernelName = "plain"
    max_few_rows: int = 0
    many: KernelName | None = "plain"
    compiled: PanelFormat | None = None
    max_compiled_rows: int = 0

    def input_dtype(self, num_rows: int, dtype: torch.dtype) -> torch.dtype:
        """Return the type to which kernels for so many rows convert their input, if weights that are not packed have a `dtype`."""
        name = self.few if num_rows <= self.max_few_rows else self.many
        return dtype if name is None else input_dtype_of(name, dtype)


class Linear:
    """`y = x W^T + b` with several forms of the same W.

    Attributes:
        num_outputs: of W.
        num_inputs: of W.
        bias: `[num_outputs]`, or None.
        panels: the form for compiled steps, or None.
    """

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
        self.bias = bias
        self.panels = Panels.of(weight, policy.compiled) if policy.compiled else None
        self._many = build_kernel(policy.many, weight, dtype) if policy.many else None
        self._few = self._many
        self._max_few_rows = policy.max_few_rows
        if policy.max_few_rows and policy.few != policy.many:
            self._few = build_kernel(policy.few, weight, dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all forms of the weight."""
        kernels = {id(kernel): kernel for kernel in (self._many, self._few) if kernel is not None}
        compiled = 0 if self.panels is None else self.panels.num_bytes
        return compiled + sum(kernel.weight_bytes for kernel in kernels.values())

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[num_rows, num_inputs]` to `[num_rows, num_outputs]`, same dtype, new tensor."""
        return self.unconverted(x).to(x.dtype)

    def unconverted(self, x: Tensor) -> Tensor:
        """As `__call__`, but in the dtype the kernel has its result in: bf16, or one that holds more."""
        kernel = self._few if x.shape[0] <= self._max_few_rows else self._many
        if kernel is None:
            if self.panels is None:
                raise ValueError("a linear layer has no form of its weights")
            output = reference_product(x.float(), self.panels)
        else:
            output = kernel(x)
        return output if self.bias is None else output.to(self.bias.dtype).add_(self.bias)
