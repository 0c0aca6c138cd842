"""Host memory that a device copies to and from fast. Knows nothing about what is stored in it."""

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from ninfer.api.errors import NinferError

PIN_CHUNK_BYTES: Final = 4 * 2**30
"""Memory is pinned in pieces that end at multiples of this address, so that no single pin takes seconds and a copy
can be split where two pieces meet (one copy must not span two of them)."""


class PinFailed(NinferError):
    """Host memory could not be pinned for the device."""

    code = "pin_failed"


class HostMemory:
    """A `HostAllocator`. On CUDA memory is pinned; elsewhere it is plain and takes no room until it is written."""

    def __init__(self, device: torch.device) -> None:
        """Remember which device copies.

        Args:
            device: where copies go to and come from.
        """
        self._is_pinned = device.type == "cuda"

    def allocate_host(self, num_bytes: int) -> memoryview:
        """Return writable, zero-filled memory of `num_bytes`; freed when no view refers to it any more.

        Raises:
            ValueError: `num_bytes` is negative.
            MemoryError: there is not enough.
            PinFailed: the system refuses to pin that much.
        """
        if num_bytes < 0:
            raise ValueError(f"num_bytes must be >= 0, got {num_bytes}")
        if num_bytes == 0:
            return memoryview(bytearray())
        if self._is_pinned:
            return np.asarray(_PinnedBytes(num_bytes)).data
        return _in_small_pages(num_bytes)


def _in_small_pages(num_bytes: int) -> memoryview:
    """Return plain memory that comes in small pages as it is first written.

    A huge page comes in one go, while steps run and threads wait: 4.4 ms for 2 MiB in a virtual machine whose host takes free
    memory back, where an image of 1.4 MiB takes 0.7 ms in small ones. Copies were as fast from either.
    """
    if sys.platform != "linux":
        return np.zeros(num_bytes, np.uint8).data
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {num_bytes} bytes of host memory: {error}") from error
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(memory)


class _PinnedBytes:
    """Owns memory and its pins; alive as long as an array made of it."""

    def __init__(self, num_bytes: int) -> None:
        self._array = np.zeros(num_bytes, np.uint8)
        self._pinned: list[int] = []
        runtime = _cuda_runtime()
        for address, length in pin_ranges(self._array.ctypes.data, num_bytes):
            error = int(runtime.cudaHostRegister(address, length, 0))
            if error:
                self._unpin()
                raise PinFailed(f"cannot pin {num_bytes} bytes of host memory (CUDA error {error})")
            self._pinned.append(address)

    @property
    def __array_interface__(self) -> dict[str, object]:
        return dict(self._array.__array_interface__)

    def __del__(self) -> None:
        self._unpin()

    def _unpin(self) -> None:
        while self._pinned:
            _cuda_runtime().cudaHostUnregister(self._pinned.pop())


def _cuda_runtime() -> Any:  # noqa: ANN401 - the library has no types
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def pin_ranges(address: int, num_bytes: int) -> Iterator[tuple[int, int]]:
    """Split memory at multiples of `PIN_CHUNK_BYTES`; yield (address, length) of each piece in order."""
    end = address + num_bytes
    while address < end:
        border = min((address // PIN_CHUNK_BYTES + 1) * PIN_CHUNK_BYTES, end)
        yield address, border - address
        address = border


def trim_heap() -> None:
    """Give memory that loading freed back to the system, where the C library can (glibc); elsewhere do nothing."""
    if not sys.platform.startswith("linux"):
        return
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
