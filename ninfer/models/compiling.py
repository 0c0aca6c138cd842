"""Which models can be computed by compiled steps, and what becomes of those that cannot. Needs no numba."""

import torch

from ninfer.api.errors import NinferError
from ninfer.kernels.compiled.panels import PANEL
from ninfer.models.config import ModelConfig


class CompilingFailed(NinferError):
    """numba could not compile a model's steps."""

    code = "compiling_failed"


def can_compile(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether `compiled_step.CompiledStep` knows all of a model's layers.

    Args:
        config: of the model.
        dtype: of its weights and KV. Only bf16, which nobody expects to be exact, is computed in float32.
    """
    fits = config.head_dim % PANEL == 0 and config.intermediate_size % PANEL == 0
    return dtype == torch.bfloat16 and config.is_plain and fits
