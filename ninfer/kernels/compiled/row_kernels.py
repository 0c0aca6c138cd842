"""Small operators on many rows, each one pass in one compiled call. Knows nothing about models. Needs numba.

Rows are computed alike whatever their number, so a row's bits do not depend on the rows beside it.
"""

import torch
from torch import Tensor

from ninfer.kernels.compiled import activation_rows, norm_rows, rotation_rows
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import bits_of
from ninfer.kernels.compiled.row_call import RowCall
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.silu_mul import silu_mul


class RowKernels:
    """Norm, activation and rotation for models with bf16 weights. Not thread-safe: one call at a time."""

    def __init__(self, compiler: Compiler, team: Team | None = None) -> None:
        """Compile, unless that has been done before.

        Args:
            compiler: opened.
            team: threads that compute; None for torch's.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team or Team.of_torch()
        self._norm, self._activation, self._rotation = (
            RowCall(operation, size, compiler=compiler, team=self._team)
            for operation, size in (
                (norm_rows.norm_rows, norm_rows.HEADER_SIZE),
                (activation_rows.activation_rows, activation_rows.HEADER_SIZE),
                (rotation_rows.rotation_rows, rotation_rows.HEADER_SIZE),
            )
        )

    def norm(
        self, x: Tensor, added: Tensor | None, weight: Tensor, *, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """Add to rows, then normalise them.

        Args:
            x: float32 `[num_rows, width]`, contiguous.
            added: like `x`, or bf16; None to add nothing.
            weight: float32 `[width]`.
            eps: added to the mean square.
            dtype: of the result: bfloat16 or float32.

        Returns:
            `[num_rows, width]`, new.

        Changes: `x`, to the sum. Blocks.
        """
        num_rows, width = x.shape
        y = torch.empty(x.shape, dtype=dtype)
        numbers = [num_rows, width, x.data_ptr(), 0, 0, weight.data_ptr(), bits_of(eps)]
        if added is not None:
            added = added.contiguous()
            numbers[3:5] = added.data_ptr(), added.itemsize
        self._norm(x.numel(), (*numbers, y.data_ptr(), y.itemsize))
        return y

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Compute `silu(gate) * up`.

        Args:
            gate_up: `[num_rows, 2 * width]`, contiguous, gate first; of anything but bf16 torch computes it.

        Returns:
            `[num_rows, width]`, same dtype, new. Blocks.
        """
        if gate_up.dtype != torch.bfloat16:
            return silu_mul(gate_up)
        num_rows, width = len(gate_up), gate_up.shape[1] // 2
        y = torch.empty(num_rows, width, dtype=gate_up.dtype)
        self._activation(y.numel(), (num_rows, width, gate_up.data_ptr(), y.data_ptr()))
        return y

    def rotate_(
        self, heads: Tensor, rotation: Tensor, weight: Tensor | None, *, eps: float
    ) -> None:
        """Normalise heads, then rotate them, in place.

        Args:
            heads: bf16 `[num_rows, num_heads, head_dim]`, contiguous but for the first axis; interleaved, see `kernels.rope`.
            rotation: complex64 `[num_rows, 1, rotated_dim / 2]`, contiguous, from `kernels.rope.rotations`.
            weight: of the norm, float32 `[num_heads, head_dim]`, contiguous; None for no norm.
            eps: added to the mean square.

        Changes: `heads`. Blocks.
        """
        num_rows, num_heads, head_dim = heads.shape
        scratch = torch.empty(self._team.num_threads, head_dim)
        numbers = (
            *(num_rows, num_heads, head_dim),
            *(heads.data_ptr(), heads.stride(0) * heads.itemsize),
            *(2 * rotation.shape[-1], rotation.data_ptr()),
            0 if weight is None else weight.data_ptr(),
            bits_of(eps),
            scratch.data_ptr(),
        )
        self._rotation(heads.numel(), numbers)
