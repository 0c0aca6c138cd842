"""Root-mean-square normalisation of heads, then a SiLU gate. Knows nothing about models."""

from torch import Tensor
from torch.nn import functional

from ninfer.kernels.rms_norm import RmsNorm


class GatedNorm:
    """`y = rms_norm(x) * silu(gate)`, head by head."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        """Keep the weight.

        Args:
            weight: `[width]`, in the dtype of the heads.
            eps: added to the mean square.
        """
        self.norm = RmsNorm(weight, eps)

    def __call__(self, heads: Tensor, gate: Tensor) -> Tensor:
        """Normalise and gate.

        Args:
            heads: `[num_rows, num_heads, width]`, contiguous; overwritten.
            gate: `[num_rows, num_heads * width]`, any strides.

        Returns:
            `[num_rows, num_heads * width]`.
        """
        self.norm.in_place(heads)
        return heads.flatten(1).mul_(functional.silu(gate))
