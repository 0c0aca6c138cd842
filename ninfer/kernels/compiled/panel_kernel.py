"""One compiled product as a matrix kernel: to be measured beside the others. Knows nothing about models."""

import torch
from torch import Tensor

from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.panels import PanelFormat, Panels
from ninfer.kernels.compiled.program import Program
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.weight import Weight


class PanelKernel:
    """A `linear_kernels.MatrixKernel` for float32 rows, not thread-safe."""

    def __init__(
        self, weight: Weight, panel_format: PanelFormat, compiler: Compiler, *, max_rows: int
    ) -> None:
        """Pack the weight and compile, unless that has been done before.

        Args:
            weight: `[num_outputs, num_inputs]`.
            panel_format: of the packed weight.
            compiler: opened.
            max_rows: of a call.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._panels = Panels.of(weight, panel_format)
        self.weight_bytes = self._panels.num_bytes
        self._x = torch.empty(max_rows, self._panels.num_inputs)
        self._y = torch.empty(max_rows, self._panels.padded_outputs)
        self._program = Program(compiler, Team.of_torch())
        self._program.product(self._x, self._panels, self._y)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply: `[num_rows, num_inputs]` to `[num_rows, num_outputs]`, new.

        Raises:
            IndexError: more rows than `max_rows`.
        """
        num_rows = len(x)
        if num_rows > len(self._x):
            raise IndexError(f"{num_rows} rows, at most {len(self._x)}")
        self._x[:num_rows] = x
        self._program.run_rows(num_rows)
        return self._y[:num_rows, : self._panels.num_outputs].to(x.dtype, copy=True)
