"""Compiles operations once and keeps the machine code in a folder. Needs numba."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import numba
from numba import cfunc, types

from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.walk import walk

_OP_SIGNATURE: Final = types.void(*[types.int64] * 4)
_WALK_SIGNATURE: Final = types.void(types.voidptr)


class Compiler:
    """Addresses of compiled functions. What it compiled stays in memory as long as it does."""

    def __init__(self, folder: Path) -> None:
        """Remember where machine code is kept.

        Args:
            folder: made if it is not there. Code of other versions of the sources or of numba is not used.

        Raises:
            OSError: the folder cannot be written to. numba would look for another place by itself.
        """
        self._folder = folder / _version()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=self._folder):
            pass
        self._compiled: dict[Callable[..., None], Any] = {}

    def op(self, function: Callable[[int, int, int, int], None]) -> int:
        """Return the address of an operation, compiling it if it is new: about a second.

        Raises:
            Exception: numba cannot compile it here; of any type.
        """
        return self._address(function, _OP_SIGNATURE)

    def walk(self) -> int:
        """Return the address of `walk.walk`.

        Raises:
            Exception: as `op`.
        """
        return self._address(walk, _WALK_SIGNATURE)

    def _address(self, function: Callable[..., None], signature: Any) -> int:
        if function not in self._compiled:
            with _cache_folder(self._folder):
                self._compiled[function] = cfunc(signature, cache=True, error_model="numpy")(
                    function
                )
        address: int = self._compiled[function].address
        return address


@contextmanager
def _cache_folder(folder: Path) -> Iterator[None]:
    """Let numba keep code in a folder; it knows only one for the whole process."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _version() -> str:
    """Name the sources and the instructions that they choose: numba looks only at the file of the outermost function."""
    digest = sha256(f"{numba.__version__} {matrix_unit()}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
