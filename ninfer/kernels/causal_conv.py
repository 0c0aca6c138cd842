"""Causal convolution of every channel by itself over the tokens of a lane, then SiLU. Knows nothing about models."""

import torch
from torch import Tensor
from torch.nn import functional


class CausalConv:
    """`y[t] = silu(sum over k of x[t - window + 1 + k] * weight[k])`, channel by channel."""

    def __init__(self, weight: Tensor) -> None:
        """Keep the weight.

        Args:
            weight: `[window, width]`, oldest tap first, in the dtype of the states.
        """
        self.weight = weight
        self._taps = weight.unbind(0)

    def __call__(self, windows: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve consecutive rows of several lanes.

        Args:
            windows: `[num_lanes, window - 1, width]`, the rows before, oldest first.
            rows: `[num_lanes, num_rows, width]`, any strides.

        Returns:
            `[num_lanes, num_rows, width]`, new, and `[num_lanes, window - 1 + num_rows, width]`: windows and rows. Of
            the latter, rows [r + 1, r + window) are the window after row r.
        """
        seen = torch.cat((windows, rows), dim=1)
        num_rows = rows.shape[1]
        if num_rows == 1:
            output = (seen * self.weight).sum(1, keepdim=True)
        else:
            output = seen[:, :num_rows] * self._taps[0]
            for offset, tap in enumerate(self._taps[1:], start=1):
                output.addcmul_(seen[:, offset : offset + num_rows], tap)
        return functional.silu(output, inplace=True), seen
