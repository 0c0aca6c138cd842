"""The gated activation of a feed-forward block. Knows nothing about models."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

NUM_ROWS_AT_ONCE: Final = 64
"""Rows whose float32 copies stay in a cache (measured: 0.60 instead of 0.91 ms for 512 rows of 2 x 1,536 bf16)."""


def silu_mul(gate_up: Tensor) -> Tensor:
    """Compute `silu(gate) * up`, of bf16 in float32.

    Args:
        gate_up: `[num_rows, 2 * width]`, gate first.

    Returns:
        `[num_rows, width]`, contiguous, same dtype, new.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    if gate.dtype != torch.bfloat16:
        return functional.silu(gate).mul_(up)
    active = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    parts = [torch.split(x, NUM_ROWS_AT_ONCE) for x in (gate, up, active)]
    for some_gate, some_up, result in zip(*parts, strict=True):
        wide_gate, wide_up = some_gate.float(), some_up.float()
        result.copy_(functional.silu(wide_gate, inplace=True).mul_(wide_up))
    return active
