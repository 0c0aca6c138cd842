"""Calls one compiled operation with a table of numbers. Knows nothing about what it computes. Needs numba."""

from collections.abc import Callable, Sequence

import numpy as np

from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import OP_SIZE
from ninfer.kernels.compiled.team import Team


class Call:
    """An operation, its constants, the table it reads, and the threads that do it. Not thread-safe."""

    def __init__(
        self,
        operation: Callable[[int, int, int, int], None],
        header_size: int,
        *,
        compiler: Compiler,
        team: Team,
        constants: Sequence[int] = (),
    ) -> None:
        """Compile, unless that has been done before.

        Args:
            operation: as `compiler.Compiler.op` takes it.
            header_size: numbers of the table.
            compiler: opened.
            team: threads that compute.
            constants: numbers of its own, behind its address.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team
        self._op = np.zeros(OP_SIZE, np.int64)
        self._op[: 1 + len(constants)] = (compiler.op(operation), *constants)
        self._header = np.zeros(header_size, np.int64)
        self._start = np.array(
            [
                *(team.thread_number, team.num_threads, team.barrier, 1),
                *(self._op.ctypes.data, self._header.ctypes.data),
            ],
            np.int64,
        )
        self._start_address = self._start.ctypes.data
        self._walk = compiler.walk()

    def __call__(self, numbers: Sequence[int]) -> None:
        """Run the operation on a table of numbers; blocks."""
        self._header[:] = numbers
        self._team.run(self._walk, self._start_address)
