"""Which instructions multiply matrices of bf16 here. Needs numba."""

import ctypes
import platform
import sys
from functools import cache
from typing import Final, Literal

from numba.core.registry import cpu_target

MatrixUnit = Literal["amx", "avx512_bf16", "avx512"]

_VECTORS: Final = ("avx512f", "avx512dq")
_ARCH_PRCTL: Final = 158
_REQUEST_PERMISSION: Final = 0x1023
_TILE_DATA: Final = 18


@cache
def matrix_unit() -> MatrixUnit | None:
    """Return the fastest instructions that numba compiles for and the system allows; None without AVX512.

    numba compiles for the processor, or for less if NUMBA_CPU_NAME or NUMBA_CPU_FEATURES say so. Other instructions than it
    compiles for end the process.
    """
    codegen = cpu_target.target_context.codegen()
    features = (codegen._get_host_cpu_features() or "").split(",")  # noqa: SLF001

    def has(*names: str) -> bool:
        return all(f"+{name}" in features for name in names)

    if not has(*_VECTORS):
        return None
    if has("amx-tile", "amx-bf16") and _may_use_amx():
        return "amx"
    return "avx512_bf16" if has("avx512bf16") else "avx512"


def _may_use_amx() -> bool:
    """Ask the system to let this process use AMX."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    answer: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return answer == 0
