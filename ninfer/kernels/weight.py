"""A weight matrix as loaded: dense values, and the 4-bit grid they lie on if there is one. Knows nothing about kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

GROUP: Final = 32
"""Elements along the input axis that share a scale and a minimum; the block of Q4_1."""


@dataclass(frozen=True, slots=True)
class Grid4:
    """A 4-bit affine grid: `value = codes * scale + minimum` per group of 32 inputs.

    Attributes:
        codes: uint8 `[num_outputs, num_inputs]`, 0 to 15.
        scale: float `[num_outputs, num_inputs / 32]`.
        minimum: like `scale`.
    """

    codes: Tensor
    scale: Tensor
    minimum: Tensor

    @staticmethod
    def nearest(dense: Tensor) -> "Grid4":
        """Round a dense matrix `[num_outputs, num_inputs]` to the grid that spans each group's range."""
        groups = dense.float().reshape(len(dense), -1, GROUP)
        minimum, maximum = groups.aminmax(dim=-1)
        scale = (maximum - minimum) / 15
        steps = (groups - minimum.unsqueeze(-1)) / scale.clamp_min(1e-30).unsqueeze(-1)
        codes = steps.round_().clamp_(0, 15).to(torch.uint8).flatten(1)
        return Grid4(codes, scale, minimum)


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix `[num_outputs, num_inputs]`.

    Attributes:
        dense: float32 or the source's dtype.
        grid: the exact 4-bit form, if the source has one.
    """

    dense: Tensor
    grid: Grid4 | None = None

    @staticmethod
    def stack(weights: Sequence["Weight"]) -> "Weight":
        """Concatenate along the outputs; the grid survives if all have one."""
        dense = torch.cat([weight.dense for weight in weights])
        grids = [weight.grid for weight in weights if weight.grid is not None]
        if len(grids) < len(weights):
            return Weight(dense)
        return Weight(
            dense,
            Grid4(
                torch.cat([grid.codes for grid in grids]),
                torch.cat([grid.scale for grid in grids]),
                torch.cat([grid.minimum for grid in grids]),
            ),
        )

    def select_outputs(self, order: Tensor) -> "Weight":
        """Reorder the outputs by an index `[num_outputs]`."""
        if self.grid is None:
            return Weight(self.dense[order])
        grid = self.grid
        return Weight(
            self.dense[order], Grid4(grid.codes[order], grid.scale[order], grid.minimum[order])
        )
