"""How many KV pages a device gets. Knows nothing about tensors or who uses pages."""

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ninfer.api.errors import ConfigError
from ninfer.core.step import PAGE_SIZE_TOKENS

CPU_SHARE: Final = 0.4
"""Default share of available host memory for KV: the rest is for the operating system, tiers and activations."""
CUDA_SHARE: Final = 0.9
"""Default share of free device memory for KV, after the weights are loaded."""
_UNKNOWN_SHARE: Final = 0.5
"""Share of all memory taken to be available where the system does not say."""


@dataclass(frozen=True, slots=True)
class PageBudget:
    """What was decided about device memory.

    Attributes:
        num_pages: pages of 64 tokens.
        page_bytes: bytes of one page, all typed pools.
        reason: for people: where the number comes from.
    """

    num_pages: int
    page_bytes: int
    reason: str

    @property
    def num_tokens(self) -> int:
        """Tokens that fit."""
        return self.num_pages * PAGE_SIZE_TOKENS


def plan_pages(
    page_bytes: int,
    device: torch.device,
    *,
    capacity_tokens: int | None = None,
    share: float | None = None,
    max_tokens: int | None = None,
    state_bytes: int = 0,
    state_share: float = 0.0,
) -> PageBudget:
    """Decide how many pages a device gets.

    Args:
        page_bytes: bytes of one page, all typed pools.
        device: where the pages will live; weights are there already.
        capacity_tokens: configured number of tokens, rounded up to pages; None to measure.
        share: part of free memory to use when measuring, in (0, 1]; None for the device's default.
        max_tokens: bound when measuring, for example lanes times context length; None for none.
        state_bytes: bytes of recurrent states that there must be, whatever the number of pages.
        state_share: bytes of more states, as a part of those of KV; given up where memory is short.

    Raises:
        ConfigError: not even one page fits, or the configured capacity is more than the free memory.
    """
    free_bytes = free_device_bytes(device)
    if capacity_tokens is not None:
        num_pages = -(-capacity_tokens // PAGE_SIZE_TOKENS)
        kv_free_bytes = max(free_bytes - state_bytes, 0)
        if num_pages < 1 or num_pages * page_bytes > kv_free_bytes:
            fitting = kv_free_bytes // page_bytes * PAGE_SIZE_TOKENS
            states = f" beside {state_bytes} bytes of recurrent states" if state_bytes else ""
            raise ConfigError(
                f"a KV capacity of {capacity_tokens} tokens needs {num_pages * page_bytes} bytes{states}, "
                f"{free_bytes} bytes are free on {device} (that is {fitting} tokens)"
            )
        return PageBudget(num_pages, page_bytes, f"configured: {capacity_tokens} tokens")
    if share is None:
        share = CUDA_SHARE if device.type == "cuda" else CPU_SHARE
    kv_bytes = max(int(free_bytes * share) - state_bytes, 0) / (1.0 + state_share)
    num_pages = int(kv_bytes) // page_bytes
    reason = f"{share:.0%} of {free_bytes} free bytes on {device}"
    if max_tokens is not None and num_pages * PAGE_SIZE_TOKENS > max_tokens:
        num_pages = -(-max_tokens // PAGE_SIZE_TOKENS)
        reason = f"bound of {max_tokens} tokens"
    if num_pages < 1:
        states = f" beside {state_bytes} bytes of recurrent states" if state_bytes else ""
        raise ConfigError(f"no KV page of {page_bytes} bytes fits{states}: {reason}")
    return PageBudget(num_pages, page_bytes, reason)


def free_device_bytes(device: torch.device) -> int:
    """Return bytes that can still be allocated on a device."""
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return int(free_bytes)
    return available_host_bytes()


def available_host_bytes(root: Path = Path("/")) -> int:
    """Return host memory that can be used without swapping, limits of control groups respected.

    Args:
        root: where `proc` and `sys` are.

    Linux says it; on other systems, and if files are unreadable, a share of all memory.
    """
    bounds = [_linux_available(root), _cgroup_available(root)]
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known else int(_total_host_bytes() * _UNKNOWN_SHARE)


def _linux_available(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _cgroup_available(root: Path) -> int | None:
    """Return what the container may still take, None without a limit."""
    folder = root / "sys/fs/cgroup"
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit = int((folder / limit_name).read_text(encoding="ascii"))
            used = int((folder / used_name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        return max(limit - used + _inactive_file_bytes(folder / Path(limit_name).parent), 0)
    return None


def _inactive_file_bytes(folder: Path) -> int:
    """Return bytes of file cache that a control group gives back when asked for memory."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        return int(dict(line.split(" ", 1) for line in lines)["inactive_file"])
    except (OSError, ValueError, KeyError):
        return 0


def _total_host_bytes() -> int:
    if sys.platform == "win32":
        return _total_windows_bytes()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _MemoryStatus(ctypes.Structure):
    """`MEMORYSTATUSEX` of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_bytes", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 6),
    )


def _total_windows_bytes() -> int:
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    library = ctypes.CDLL("kernel32")
    library.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.total_bytes)
