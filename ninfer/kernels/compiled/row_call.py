"""Calls one compiled operation on many rows, on as many threads as pay. Knows nothing about what it computes. Needs numba."""

from collections.abc import Callable
from typing import Final

from ninfer.kernels.compiled.call import Call
from ninfer.kernels.compiled.compiler import Compiler
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
        self._alone, self._together = (
            Call([operation], header_size, compiler=compiler, team=each) for each in (Team(1), team)
        )

    def __call__(self, num_elements: int, numbers: tuple[int, ...]) -> None:
        """Run the operation; blocks.

        Args:
            num_elements: of all rows, to know how many threads are worth it.
            numbers: its header.
        """
        call = self._alone if num_elements < LEAST_SHARED else self._together
        call(numbers)
