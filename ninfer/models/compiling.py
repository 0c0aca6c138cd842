"""Which models can be computed by compiled steps, and what becomes of those that cannot. Needs no numba."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from ninfer.api.errors import NinferError
from ninfer.kernels.compiled.panels import HALF_PANEL, PANEL
from ninfer.models.config import ModelConfig

MAX_STATE_ELEMENTS: Final = 64 * 64
"""Of one head: going through it token by token pays while it fits the fastest cache. Larger ones are left to products of
matrices, which read it once per 64 tokens."""


class CompilingFailed(NinferError):
    """numba could not compile a model's steps."""

    code = "compiling_failed"


@contextmanager
def compiling() -> Iterator[None]:
    """Raise whatever numba raises as `CompilingFailed`."""
    try:
        yield
    except Exception as error:
        raise CompilingFailed(f"{type(error).__name__}: {error}") from error


def can_compile(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether `compiled_step.CompiledStep` knows all of a model's layers.

    Args:
        config: of the model.
        dtype: of its weights and KV. Only bf16, which nobody expects to be exact, is computed in float32.
    """
    return dtype == torch.bfloat16 and config.is_plain and _fits(config)


def can_compile_head(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether `compiled_head.CompiledHead` can compute a model's head that predicts several tokens; see `can_compile`."""
    return dtype == torch.bfloat16 and not config.experts and _fits(config)


def can_compile_states(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether `delta_layer.DeltaLayer` can compute a model's recurrent layers; see `can_compile`."""
    delta = config.delta_net
    if delta is None or dtype != torch.bfloat16:
        return False
    is_small = delta.key_dim * delta.value_dim <= MAX_STATE_ELEMENTS
    return is_small and delta.value_dim % HALF_PANEL == 0


def _fits(config: ModelConfig) -> bool:
    return config.head_dim % PANEL == 0 and config.intermediate_size % PANEL == 0
