"""Opens the compiler, if it can be had. Importing this needs no numba."""

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler

_log = structlog.get_logger(__name__)


def open_compiler(folder: Path) -> "Compiler | None":
    """Return the compiler, or None (and say so) where numba is missing or does not work.

    Args:
        folder: where machine code is kept; made when needed.
    """
    try:
        from ninfer.kernels.compiled.compiler import Compiler  # noqa: PLC0415 - optional extra

        compiler = Compiler(folder)
        compiler.walk()
    except ImportError as error:
        _log.info(
            "compiled_kernels_off", reason=f"numba is not installed: {error}", extra="ninfer[cpu]"
        )
        return None
    except Exception as error:  # noqa: BLE001 - whatever a compiler says, torch computes too
        _log.warning("compiled_kernels_off", reason=f"{type(error).__name__}: {error}")
        return None
    return compiler
