"""The gated activation of a feed-forward block. Knows nothing about models."""

from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor) -> Tensor:
    """Compute `silu(gate) * up`.

    Args:
        gate_up: `[num_rows, 2 * width]`, gate first.

    Returns:
        `[num_rows, width]`, contiguous, new.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
