"""The threads that torch computes with, for functions that are not torch's. Knows nothing about what they do.

A second team of threads would fight with torch's for the processors: its threads spin for a while after each piece of
work. So compiled functions run on torch's own OpenMP team, found through the library that torch brought along.
"""

import ctypes
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Team:
    """How to run a function on all threads.

    Attributes:
        num_threads: that it is cut for. OpenMP may start fewer (`OMP_DYNAMIC`, `OMP_THREAD_LIMIT`); `walk` shares the work
            of the others out among them.
        thread_number: address of the addresses of two C functions: which tells a thread which one it is, and how many
            there are; 0 for a team of one.
        barrier: address of the C function that waits for the other threads; 0 for a team of one.
        parallel: address of the C function that starts them; 0 for a team of one.
        kept: what must live as long as the team.
    """

    num_threads: int
    thread_number: int = 0
    barrier: int = 0
    parallel: int = 0
    kept: object = field(default=None, repr=False, compare=False)

    @staticmethod
    def of_torch(num_threads: int | None = None) -> "Team":
        """Return torch's team, or a team of one thread where its OpenMP library is not found.

        Args:
            num_threads: None for as many as torch uses.
        """
        num_threads = num_threads or torch.get_num_threads()
        library = _library() if num_threads > 1 else None
        if library is None:
            return Team(1)
        parallel, barrier, *told = (_address(library, name) for name in _SYMBOLS)
        functions = (ctypes.c_int64 * len(told))(*told)
        return Team(num_threads, ctypes.addressof(functions), barrier, parallel, functions)

    def run(self, function: int, argument: int) -> None:
        """Call the C function at an address with one pointer, on every thread; returns when all are done."""
        if self.num_threads == 1:
            _CALL(function)(argument)
            return
        _PARALLEL(self.parallel)(function, argument, self.num_threads, 0)


_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
_SYMBOLS = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _library() -> ctypes.CDLL | None:
    """Open the OpenMP library that came with torch; it is loaded already."""
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted(folder.glob("lib*omp*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        if all(hasattr(library, name) for name in _SYMBOLS):
            return library
    return None
