"""A weight matrix in the order in which compiled products read it, and what it stands for. Knows nothing about numba."""

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.kernels.weight import GROUP, Grid4, Weight

PanelFormat = Literal["bf16", "int8", "int4"]

PANEL: Final = 16
"""Outputs that lie beside each other: two vectors of eight numbers."""
HALF_PANEL: Final = PANEL // 2


@dataclass(frozen=True, slots=True)
class Panels:
    """A matrix cut into panels of 16 outputs; in each, all of an input's weights, input after input.

    Attributes:
        format: of the codes.
        num_outputs: without the zeros that fill the last panel.
        num_inputs: of the matrix; for "int4" a multiple of 32.
        codes: bf16 or int8 `[num_panels, num_inputs, 16]`; for "int4" uint8 `[num_panels, num_inputs, 8]`, output i in the
            low and i + 8 in the high four bits.
        scales: for "int8" float32 `[num_panels, 16]`; for "int4" float16 `[num_panels, num_inputs / 32, 2, 16]`, scales,
            then minima; empty for "bf16".
    """

    format: PanelFormat
    num_outputs: int
    num_inputs: int
    codes: Tensor
    scales: Tensor

    @staticmethod
    def of(weight: Weight, wanted: PanelFormat) -> "Panels":
        """Pack a matrix. Copies.

        Args:
            weight: `[num_outputs, num_inputs]`.
            wanted: format; int8 in place of int4 where the inputs are not a multiple of 32.
        """
        num_outputs, num_inputs = weight.dense.shape
        if wanted == "int4" and num_inputs % GROUP:
            wanted = "int8"
        if wanted == "bf16":
            codes, scales = _panels(weight.dense.to(torch.bfloat16)), torch.empty(0)
        elif wanted == "int8":
            codes, scales = _int8(weight.dense.float())
        else:
            codes, scales = _int4(weight.grid or Grid4.nearest(weight.dense))
        return Panels(wanted, num_outputs, num_inputs, codes, scales)

    @property
    def num_bytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    @property
    def padded_outputs(self) -> int:
        """Outputs with the zeros that fill the last panel."""
        return len(self.codes) * PANEL

    def dense(self) -> Tensor:
        """Return the matrix that products are computed with: float32 `[num_outputs, num_inputs]`, new."""
        if self.format == "int4":
            codes = torch.cat((self.codes & 15, self.codes >> 4), dim=-1).float()
            scale, minimum = self.scales.float().repeat_interleave(GROUP, dim=1).unbind(2)
            values = codes * scale + minimum
        elif self.format == "int8":
            values = self.codes.float() * self.scales.unsqueeze(1)
        else:
            values = self.codes.float()
        return values.transpose(1, 2).flatten(0, 1)[: self.num_outputs].contiguous()


def reference_product(x: Tensor, panels: Panels) -> Tensor:
    """Multiply in plain torch: float32 `[num_rows, num_inputs]` to `[num_rows, num_outputs]`."""
    return functional.linear(x, panels.dense())


def _panels(matrix: Tensor) -> Tensor:
    """Cut `[num_outputs, width]` into `[num_panels, width, 16]`, the last one filled with zeros."""
    padded = functional.pad(matrix, (0, 0, 0, -len(matrix) % PANEL))
    return padded.view(-1, PANEL, padded.shape[1]).transpose(1, 2).contiguous()


def _int8(dense: Tensor) -> tuple[Tensor, Tensor]:
    scale = dense.abs().amax(dim=1).clamp_min(1e-30) / 127
    codes = (dense / scale.unsqueeze(1)).round_().clamp_(-127, 127).to(torch.int8)
    return _panels(codes), _panels(scale.unsqueeze(1)).squeeze(1)


def _int4(grid: Grid4) -> tuple[Tensor, Tensor]:
    codes = _panels(grid.codes)
    codes = codes[..., :HALF_PANEL] | codes[..., HALF_PANEL:] << 4
    scales = [_panels(part.float()).half() for part in (grid.scale, grid.minimum)]
    return codes.contiguous(), torch.stack(scales, dim=2).contiguous()
