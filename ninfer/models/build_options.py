"""How a model is held in memory. Knows nothing about models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ninfer.kernels.linear import LinearPolicy

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Types, kernels and device of a model.

    Attributes:
        dtype: element type of KV and of unpacked weights: bfloat16, float32 or float64.
        policy: kernels of the linear layers.
        device: where tensors go.
        compiler: for whatever of the model can be compiled; None to compute with torch alone.
    """

    dtype: torch.dtype
    policy: LinearPolicy
    device: torch.device
    compiler: "Compiler | None" = None

    @property
    def activation_dtype(self) -> torch.dtype:
        """float32 for bf16 models on a CPU, whose vector units have no bf16 arithmetic; otherwise `dtype`."""
        if self.device.type == "cpu" and self.dtype == torch.bfloat16:
            return torch.float32
        return self.dtype

    @property
    def state_dtype(self) -> torch.dtype:
        """Element type of recurrent states: they add up over the whole context, so float32 at least."""
        return torch.promote_types(self.dtype, torch.float32)
