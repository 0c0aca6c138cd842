"""Calls one compiled operation on many rows. Knows nothing about what it computes. Needs numba."""

from collections.abc import Callable
from typing import Final

import numpy as np

from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import OP_SIZE
from ninfer.kernels.compiled.team import Team

LEAST_SHARED: Final = 16_384
"""Elements for which threads are woken; fewer are done sooner than another thread begins."""


class RowCall:
    """An operation and a table of numbers it reads. Not thread-safe."""

    def __init__(
        self,
        operation: Callable[[int, int, int, int], None],
        header_size: int,
        *,
        compiler: Compiler,
        team: Team,
    ) -> None:
        """Compile, unless that has been done before.

        Args:
            operation: as `compiler.Compiler.op` takes it; works without numbers of its own.
            header_size: numbers it reads.
            compiler: opened.
            team: threads that compute.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._op = np.zeros(OP_SIZE, np.int64)
        self._op[0] = compiler.op(operation)
        self._header = np.zeros(header_size, np.int64)
        self._walk = compiler.walk()
        self._alone, self._together = Team(1), team
        self._starts = [self._start(self._alone), self._start(team)]
        self._addresses = [start.ctypes.data for start in self._starts]

    def _start(self, team: Team) -> np.ndarray:
        return np.array(
            [
                *(team.thread_number, team.num_threads, team.barrier, 1),
                *(self._op.ctypes.data, self._header.ctypes.data),
            ],
            np.int64,
        )

    def __call__(self, num_elements: int, numbers: tuple[int, ...]) -> None:
        """Run the operation; blocks.

        Args:
            num_elements: of all rows, to know how many threads are worth it.
            numbers: its header.
        """
        self._header[:] = numbers
        if num_elements < LEAST_SHARED:
            self._alone.run(self._walk, self._addresses[0])
        else:
            self._together.run(self._walk, self._addresses[1])
