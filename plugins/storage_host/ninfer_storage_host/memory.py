"""How much host memory is available now. Knows nothing about what it is for."""

import ctypes
import os
from pathlib import Path
from typing import Final

FALLBACK_BYTES: Final = 4 << 30
"""Assumed where the operating system does not say."""

_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_ulong),
        ("load_percent", ctypes.c_ulong),
        ("total_bytes", ctypes.c_ulonglong),
        ("available_bytes", ctypes.c_ulonglong),
        ("total_page_file", ctypes.c_ulonglong),
        ("available_page_file", ctypes.c_ulonglong),
        ("total_virtual", ctypes.c_ulonglong),
        ("available_virtual", ctypes.c_ulonglong),
        ("available_extended", ctypes.c_ulonglong),
    )


def available_memory_bytes() -> int:
    """Return bytes that can be taken without swapping, as far as the operating system tells.

    The smaller of what the machine has available and what the control group of the process leaves.
    """
    machine = _meminfo_bytes() or _windows_bytes() or _half_of_physical_bytes() or FALLBACK_BYTES
    group = _cgroup_bytes()
    return machine if group is None else min(machine, group)


def _meminfo_bytes() -> int | None:
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _cgroup_bytes() -> int | None:
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
        used = int(_CGROUP_USED.read_text(encoding="ascii"))
        return None if limit == "max" else max(int(limit) - used, 0)
    except (OSError, ValueError):
        return None


def _windows_bytes() -> int | None:
    if os.name != "nt":
        return None
    status = _MemoryStatus()
    status.length = ctypes.sizeof(_MemoryStatus)
    kernel32 = ctypes.CDLL("kernel32")
    if not kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.available_bytes)


def _half_of_physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None
