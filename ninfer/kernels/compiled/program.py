"""A list of operations as one table of numbers, and how it is run. Knows nothing about models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ninfer.kernels.compiled.activation import activation
from ninfer.kernels.compiled.attend import attend_of
from ninfer.kernels.compiled.attend_lanes import attend_lanes, merge_lanes, widen
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import (
    NUM_ROWS,
    OP_SIZE,
    PART_TOKENS,
    SCORES,
    SIZE,
    WAITS,
    bits_of,
)
from ninfer.kernels.compiled.heads import heads
from ninfer.kernels.compiled.merge import merge
from ninfer.kernels.compiled.norm import norm
from ninfer.kernels.compiled.panels import PANEL, Panels
from ninfer.kernels.compiled.product import product_of
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.team import Team


@dataclass(frozen=True, slots=True)
class Shares:
    """How the panels of a product are divided among threads.

    Attributes:
        num_together: panels that stay together, such as those of one head.
        num_parts: equal parts, of each of which every thread does its share.
        waits: False where what follows needs only what the same thread computed.
    """

    num_together: int = 1
    num_parts: int = 1
    waits: bool = True


ALONE: Final = Shares()


class Program:
    """Operations on tensors of fixed places, run one after another without returning to Python.

    Tensors are float32 with the last axis contiguous, `[at least the rows of a run, width]`; they are kept alive. Not
    thread-safe; one run at a time. Blocks.
    """

    def __init__(self, compiler: Compiler, team: Team) -> None:
        """Begin with no operations.

        Args:
            compiler: compiles operations when they are added.
            team: threads that run them.
        """
        self._compiler = compiler
        self._team = team
        self._walk = compiler.walk()
        self._ops: list[list[int]] = []
        self._kept: list[Tensor] = []
        self._table = np.empty((0, OP_SIZE), np.int64)
        self._start = np.zeros(0, np.int64)
        self._num_scores = 0
        self._scores = torch.empty(0)

    def product(
        self,
        x: Tensor,
        panels: Panels,
        y: Tensor,
        *,
        bias: Tensor | None = None,
        adds: bool = False,
        shares: Shares = ALONE,
    ) -> None:
        """Compute `y = x W^T + bias`, or add it to `y`.

        Args:
            x: `[rows, num_inputs]`, or one such buffer per thread, `[num_threads, rows, num_inputs]`.
            panels: W.
            y: `[rows, padded_outputs]`.
            bias: `[padded_outputs]`.
            adds: to what is in `y`.
            shares: how panels are divided among threads.

        Raises:
            ValueError: the shapes do not fit.
        """
        if x.shape[-1] != panels.num_inputs or y.shape[-1] != panels.padded_outputs:
            raise ValueError(
                f"{panels.num_outputs} x {panels.num_inputs} does not map {tuple(x.shape)} to {tuple(y.shape)}"
            )
        num_panels = panels.padded_outputs // PANEL
        if num_panels % shares.num_parts:
            raise ValueError(f"{num_panels} panels are not {shares.num_parts} equal parts")
        numbers = [*self._rows(x), *self._keep(panels.codes, panels.scales), panels.num_inputs]
        numbers += [
            num_panels,
            *self._rows(y),
            int(adds),
            *(self._keep(bias) if bias is not None else [0]),
        ]
        numbers += [_own_bytes(x), shares.num_together, shares.num_parts]
        self._add(product_of(panels.format), numbers, waits=shares.waits)

    def norm(self, x: Tensor, weight: Tensor, eps: float, y: Tensor) -> None:
        """Normalise `x` with a weight `[width]` into `y`: `[rows, width]`, or `[num_threads, rows, width]` for all.

        Threads do not wait after the latter.
        """
        numbers = [*self._rows(x), *self._rows(y), *self._keep(weight), x.shape[-1], bits_of(eps)]
        self._add(norm, [*numbers, _own_bytes(y)], waits=not _own_bytes(y))

    def heads(
        self,
        x: Tensor,
        shapes: HeadShapes,
        layer: int,
        *,
        norm: Tensor | None,
        eps: float,
        queries: Tensor | None = None,
    ) -> None:
        """Normalise and rotate query and key heads in place, store keys and values in a layer of the pool.

        Args:
            x: per row query heads, key heads, value heads.
            shapes: of the heads.
            layer: of the pool.
            norm: weight `[query and key heads, head_dim]`, None for no norm.
            eps: of the norm.
            queries: bf16 `[rows, num_heads * head_dim]`, where query heads are written to as well; None for nowhere.
        """
        weight = 0 if norm is None else self._keep(norm)[0]
        counts = [shapes.num_heads, shapes.num_kv_heads, shapes.head_dim, shapes.rotated_dim]
        numbers = [*self._rows(x), *counts, weight, bits_of(eps), layer]
        numbers += [0, 0] if queries is None else self._rows(queries, torch.bfloat16)
        self._add(heads, numbers)

    def attend(
        self,
        x: Tensor,
        shapes: HeadShapes,
        layer: int,
        scale: float,
        y: Tensor,
        *,
        gates: Tensor | None = None,
    ) -> None:
        """Attend, and put the result in every thread's own buffer.

        Args:
            x: query heads are at the beginning of its rows.
            shapes: of the heads.
            layer: of the pool.
            scale: of the scores.
            y: `[num_threads, rows, num_heads * head_dim]`.
            gates: `[rows, num_heads * head_dim]`, whose sigmoid the result is multiplied with; None for none.
        """
        group = shapes.num_heads // shapes.num_kv_heads
        self._num_scores = max(self._num_scores, group * PART_TOKENS)
        counts = [shapes.num_heads, shapes.num_kv_heads, layer, bits_of(scale)]
        self._add(attend_of(shapes.head_dim, group), [*self._rows(x), *counts])
        numbers = [*self._rows(y), shapes.num_heads, shapes.head_dim, _own_bytes(y)]
        numbers += [0, 0] if gates is None else self._rows(gates)
        self._add(merge, numbers, waits=False)

    def attend_tiles(
        self, layer: int, attended: Tensor, y: Tensor, *, gates: Tensor | None
    ) -> None:
        """As `attend`, in matrix tiles: queries, weights and results are rounded to bf16. The header says where queries are.

        Args:
            layer: of the pool.
            attended: bf16 `[rows, num_heads * head_dim]`, where the header says that results go.
            y: `[num_threads, rows, num_heads * head_dim]`.
            gates: see `attend`.
        """
        self._add(attend_lanes, [layer])
        self._add(merge_lanes, [layer])
        numbers = [
            *self._rows(attended, torch.bfloat16),
            *self._rows(y),
            _own_bytes(y),
            y.shape[-1],
        ]
        numbers += [0, 0] if gates is None else self._rows(gates)
        self._add(widen, numbers, waits=False)

    def activation(self, x: Tensor, y: Tensor) -> None:
        """Compute `silu(gate) * up` of rows `[gate, up]`."""
        self._add(activation, [*self._rows(x), *self._rows(y), y.shape[-1]])

    def run(self, header: np.ndarray) -> None:
        """Run all operations.

        Args:
            header: int64 `[SIZE]`, see `compiled.header`; SCORES is filled in here. What it points to must live on.
        """
        if len(self._table) != len(self._ops):
            self._seal()
        header[SCORES] = self._scores.data_ptr()
        self._start[-1] = header.ctypes.data
        self._team.run(self._walk, self._start.ctypes.data)

    def run_rows(self, num_rows: int) -> None:
        """Run operations that know nothing of contexts."""
        header = np.zeros(SIZE, np.int64)
        header[NUM_ROWS] = num_rows
        self.run(header)

    def _seal(self) -> None:
        team = self._team
        self._scores = torch.empty(team.num_threads, self._num_scores)
        self._table = np.array(self._ops, np.int64)
        self._start = np.array(
            [
                team.thread_number,
                team.num_threads,
                team.barrier,
                len(self._ops),
                self._table.ctypes.data,
                0,
            ],
            np.int64,
        )

    def _add(
        self,
        function: Callable[[int, int, int, int], None],
        numbers: Sequence[int],
        *,
        waits: bool = True,
    ) -> None:
        padding = [0] * (WAITS - 1 - len(numbers))
        self._ops.append([self._compiler.op(function), *numbers, *padding, int(waits)])

    def _rows(self, rows: Tensor, dtype: torch.dtype = torch.float32) -> tuple[int, int]:
        """Return address and bytes from row to row."""
        if rows.dtype != dtype or rows.stride(-1) != 1:
            raise ValueError(f"rows are {dtype} and contiguous, not {rows.dtype}, {rows.stride()}")
        self._kept.append(rows)
        return rows.data_ptr(), rows.stride(-2) * rows.element_size()

    def _keep(self, *tensors: Tensor) -> list[int]:
        """Return addresses."""
        if not all(tensor.is_contiguous() for tensor in tensors):
            raise ValueError("a tensor is not contiguous")
        self._kept.extend(tensors)
        return [tensor.data_ptr() for tensor in tensors]


def _own_bytes(rows: Tensor) -> int:
    """Return bytes from one thread's buffer to the next; 0 for one buffer."""
    return rows.stride(0) * rows.element_size() if rows.dim() > 2 else 0
