"""Matrix kernels, one per weight format.

Each maps activations `[num_rows, num_inputs]` of any dtype to `[num_rows, num_outputs]` in the dtype it leaves sums in. Knows nothing about
which one is fastest where.
"""

from typing import Final, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.kernels.weight import GROUP, Grid4, Weight

KernelName = Literal["plain", "upcast", "half", "int8", "int4"]

MAX_HALF: Final = 65504.0
"""Largest float16."""

_INT8_INPUTS: Final = 32
_PACKED_INPUTS: Final = 512
_PACKED_OUTPUTS: Final = 16
"""FBGEMM packs float16 matrices in blocks of this size and fills them up (measured: 1.78 times for 576 inputs)."""


class MatrixKernel(Protocol):
    """A weight in the form one kernel wants."""

    weight_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply: `[num_rows, num_inputs]` to `[num_rows, num_outputs]`, new."""
        ...


class PlainKernel:
    """`functional.linear` in the weight's own dtype."""

    def __init__(self, weight: Tensor) -> None:
        """Keep `[num_outputs, num_inputs]`."""
        self._weight = weight
        self.weight_bytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """See `MatrixKernel`."""
        return functional.linear(x.to(self._weight.dtype), self._weight)


class UpcastKernel:
    """bf16 weights, converted to float32 on every call: for CPUs that multiply bf16 matrices slowly."""

    def __init__(self, weight: Tensor) -> None:
        """Keep `[num_outputs, num_inputs]`."""
        self._weight = weight
        self.weight_bytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """See `MatrixKernel`."""
        return functional.linear(x.to(torch.float32), self._weight.to(torch.float32))


class HalfKernel:
    """Weights packed as float16, activations and sums in float32 (FBGEMM).

    float16 holds every bf16 of magnitude 2 ** -17 to 65504 exactly; smaller ones lose less than 2 ** -25. As fast for
    six rows as for one, and as fast as a float32 product for hundreds, on CPUs without bf16 instructions.
    """

    def __init__(self, dense: Tensor) -> None:
        """Pack `[num_outputs, num_inputs]`.

        Raises:
            RuntimeError: this build of torch has no FBGEMM.
            ValueError: a weight does not fit float16.
        """
        if not fits_half(dense):
            raise ValueError("a weight is too large for float16")
        self._packed = torch.ops.quantized.linear_prepack_fp16(dense.float().contiguous(), None)
        self._multiply = torch.ops.quantized.linear_dynamic_fp16.default
        num_outputs, num_inputs = dense.shape
        padded_inputs = -(-num_inputs // _PACKED_INPUTS) * _PACKED_INPUTS
        self.weight_bytes = -(-num_outputs // _PACKED_OUTPUTS) * _PACKED_OUTPUTS * padded_inputs * 2

    def __call__(self, x: Tensor) -> Tensor:
        """See `MatrixKernel`."""
        num_rows = x.shape[0]
        num_added = _num_added_rows(num_rows)
        rows = x.to(torch.float32)
        if num_rows == 1:
            rows = rows.expand(1 + num_added, -1)
        elif num_added:
            rows = functional.pad(rows, (0, 0, 0, num_added))
        output: Tensor = self._multiply(rows, self._packed)
        return output[:num_rows] if num_added else output


def _num_added_rows(num_rows: int) -> int:
    """Count the rows that keep FBGEMM from using blocks of one or two rows.

    It cuts rows into blocks of up to six within 120. Blocks of one and two add up in another order than the larger
    ones. Without them a row's result does not depend on the rows beside it: a request gets the same bits alone and in
    a batch. Measured with the AVX2 kernels for all counts below 400.
    """
    rest = num_rows % 120
    if rest in {7, 14}:
        return 1
    if 2 < rest <= 30:
        return 0
    return (0, 2, 1, 0, 0, 0)[rest % 6]


class Int8Kernel:
    """Weights as int8 with one bf16 scale per output; activations in bf16."""

    def __init__(self, dense: Tensor) -> None:
        """Round `[num_outputs, num_inputs]` to int8."""
        dense = dense.float()
        scale = dense.abs().amax(dim=1).clamp_min(1e-30) / 127
        self._scale = scale.to(torch.bfloat16)
        steps = dense / self._scale.float().unsqueeze(1)
        # torch reads vectors: of other widths it reads beyond the end, and can end the process.
        self._num_missing = -dense.shape[1] % _INT8_INPUTS
        codes = steps.round_().clamp_(-127, 127).to(torch.int8)
        self._codes = functional.pad(codes, (0, self._num_missing))
        self.weight_bytes = self._codes.nbytes + self._scale.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """See `MatrixKernel`."""
        rows = x.to(torch.bfloat16)
        if self._num_missing:
            rows = functional.pad(rows, (0, self._num_missing))
        return torch._weight_int8pack_mm(rows, self._codes, self._scale)  # noqa: SLF001


class Int4Kernel:
    """Weights as 4-bit codes with a bf16 scale and zero per 32 inputs; activations in bf16."""

    def __init__(self, grid: Grid4) -> None:
        """Pack a grid.

        The kernel computes (code - 8) * scale + zero, so zero = minimum + 8 * scale.
        """
        codes = grid.codes.to(torch.int32)
        self._codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)  # noqa: SLF001
        zero = grid.minimum.float() + 8 * grid.scale.float()
        pairs = torch.stack((grid.scale.float().t(), zero.t()), dim=-1)
        self._scale_zero = pairs.to(torch.bfloat16).contiguous()
        self._multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default  # noqa: SLF001
        self.weight_bytes = self._codes.nbytes + self._scale_zero.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """See `MatrixKernel`."""
        rows = x.to(torch.bfloat16)
        output: Tensor = self._multiply(rows, self._codes, GROUP, self._scale_zero)
        return output


def fits_half(dense: Tensor) -> bool:
    """Whether all values are in the range of float16."""
    low, high = dense.aminmax()
    return float(low) >= -MAX_HALF and float(high) <= MAX_HALF


def input_dtype_of(name: KernelName, dtype: torch.dtype) -> torch.dtype:
    """Return the type to which a kernel converts its input; `dtype` as in `build_kernel`."""
    if name == "plain":
        return dtype
    return torch.float32 if name in {"upcast", "half"} else torch.bfloat16


def build_kernel(name: KernelName, weight: Weight, dtype: torch.dtype) -> MatrixKernel:
    """Bring a weight into a kernel's form.

    Args:
        name: which kernel.
        weight: the matrix; borrowed.
        dtype: dtype of the weights in the plain and upcast kernels.

    Returns:
        The kernel. A 4-bit kernel falls back to 8 bits where its shape rules do not hold (inputs a multiple of 32,
        outputs of 16), a half kernel to upcast where a weight does not fit.
    """
    num_outputs, num_inputs = weight.dense.shape
    if name == "int4" and num_inputs % GROUP == 0 and num_outputs % 16 == 0:
        return Int4Kernel(weight.grid or Grid4.nearest(weight.dense))
    if name in {"int4", "int8"}:
        return Int8Kernel(weight.dense)
    if name == "half" and fits_half(weight.dense):
        return HalfKernel(weight.dense)
    dense = weight.dense.to(dtype).contiguous()
    return PlainKernel(dense) if name == "plain" else UpcastKernel(dense)
