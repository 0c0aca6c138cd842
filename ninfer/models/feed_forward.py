"""The plain feed-forward block. Knows nothing about where its weights come from."""

from collections.abc import Callable
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
        activate: computes `silu(gate) * up`.
    """

    gate_up: Linear
    down: Linear
    activate: Callable[[Tensor], Tensor] = silu_mul

    def __call__(self, x: Tensor) -> Tensor:
        """Compute what is added to the residual stream, new, in the type the last product has its result in."""
        return self.down.unconverted(self.activate(self.gate_up.unconverted(x)))
