"""A gated delta layer between its projections as one call. Knows nothing about models. Needs numba."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.kernels.compiled import delta as numbers
from ninfer.kernels.compiled.call import Call
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import bits_of
from ninfer.kernels.compiled.state_table import StateTable
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.state_pool import StatePool


@dataclass(frozen=True, slots=True)
class DeltaTensors:
    """Constants of a layer, float32 and contiguous.

    Attributes:
        conv: `[window, conv_width]`, oldest tap first.
        decay_bias: `[num_value_heads]`.
        decay_rate: `[num_value_heads]`.
        norm: `[value_dim]`.
        eps: of the norm.
    """

    conv: Tensor
    decay_bias: Tensor
    decay_rate: Tensor
    norm: Tensor
    eps: float


class DeltaLayer:
    """Convolution, recurrence and gated norm of one layer. Not thread-safe: works in buffers of its own."""

    def __init__(
        self,
        tensors: DeltaTensors,
        *,
        key_heads: int,
        key_dim: int,
        compiler: Compiler,
        team: Team | None = None,
    ) -> None:
        """Compile, unless that has been done before.

        Args:
            tensors: kept.
            key_heads: a divisor of the value heads.
            key_dim: elements of a key.
            compiler: opened.
            team: threads that compute; None for torch's.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._tensors = tensors
        num_heads, value_dim = len(tensors.decay_rate), len(tensors.norm)
        group = num_heads // key_heads
        self._width = num_heads * value_dim
        team = team or Team.of_torch()
        self._scratch = torch.empty(team.num_threads, 2 * key_dim + (group + 3) * value_dim + 1)
        constants = [
            *(key_heads, group, key_dim, value_dim, len(tensors.conv)),
            *(
                tensor.data_ptr()
                for tensor in (tensors.conv, tensors.decay_bias, tensors.decay_rate, tensors.norm)
            ),
            bits_of(tensors.eps),
        ]
        self._call = Call(
            [numbers.delta], numbers.HEADER_SIZE, compiler=compiler, team=team, constants=constants
        )

    def __call__(
        self, projected: Tensor, table: StateTable, states: StatePool, layer: int
    ) -> Tensor:
        """Compute rows.

        Args:
            projected: queries, keys, values, gates, betas, decays, float32 `[num_rows, width]`, contiguous.
            table: its segments cover all rows.
            states: float32 pool on the CPU.
            layer: of the pool.

        Returns:
            `[num_rows, num_value_heads * value_dim]`, new.

        Changes: the segments' slots of the layer. Blocks.
        """
        output = torch.empty(len(projected), self._width)
        recurrent, windows = states.recurrent(layer), states.windows(layer)
        self._call((
            projected.data_ptr(),
            projected.stride(0) * 4,
            output.data_ptr(),
            self._width * 4,
            len(table.segments),
            table.segments.ctypes.data,
            table.kept.ctypes.data,
            recurrent.data_ptr(),
            windows.data_ptr(),
            recurrent.stride(0) * 4,
            self._scratch.data_ptr(),
        ))
        return output
