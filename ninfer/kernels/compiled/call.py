"""Calls compiled operations with a table of numbers. Knows nothing about what it computes. Needs numba."""

from collections.abc import Callable, Sequence

import numpy as np

from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import OP_SIZE, WAITS
from ninfer.kernels.compiled.team import Team


class Call:
    """Operations, their constants, the table they read, and the threads that do them. Not thread-safe."""

    def __init__(
        self,
        operations: Sequence[Callable[[int, int, int, int], None]],
        header_size: int,
        *,
        compiler: Compiler,
        team: Team,
        constants: Sequence[int] = (),
    ) -> None:
        """Compile, unless that has been done before.

        Args:
            operations: as `compiler.Compiler.op` takes them; threads wait for each other in between.
            header_size: numbers of the table.
            compiler: opened.
            team: threads that compute.
            constants: numbers of each operation, behind its address.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team
        self._ops = np.zeros((len(operations), OP_SIZE), np.int64)
        for row, operation in zip(self._ops, operations, strict=True):
            row[: 1 + len(constants)] = (compiler.op(operation), *constants)
        self._ops[:-1, WAITS] = 1
        self._header = np.zeros(header_size, np.int64)
        self._start = np.array(
            [
                *(team.thread_number, team.num_threads, team.barrier, len(operations)),
                *(self._ops.ctypes.data, self._header.ctypes.data),
            ],
            np.int64,
        )
        self._start_address = self._start.ctypes.data
        self._walk = compiler.walk()

    def __call__(self, numbers: Sequence[int]) -> None:
        """Run the operations on a table of numbers; blocks."""
        self._header[:] = numbers
        self._team.run(self._walk, self._start_address)
