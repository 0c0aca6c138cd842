"""The plain feed-forward block. Knows nothing about where its weights come from."""

from dataclasses import dataclass

from torch import Tensor

from ninfer.kernels.linear import Linear
from ninfer.kernels.silu_mul import silu_mul


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Maps `[num_rows, hidden_size]` to the same shape, row by row.

    Attributes:
        gate_up: outputs are gate, then up.
        down: back to the residual stream.
    """

    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """Compute what is added to the residual stream, new."""
        active = silu_mul(self.gate_up.unconverted(x))
        return self.down.unconverted(active).to(x.dtype)
