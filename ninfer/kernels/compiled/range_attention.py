"""Attention of many rows to one range of KV before them, on processors with matrix tiles. Needs numba."""

import ctypes
import platform
import sys
from typing import Final

import llvmlite.binding as llvm
import numpy as np
import torch
from torch import Tensor

from ninfer.kernels.compiled import attend_range as numbers
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import OP_SIZE
from ninfer.kernels.compiled.team import Team

_ARCH_PRCTL: Final = 158
_REQUEST_PERMISSION: Final = 0x1023
_TILE_DATA: Final = 18
_FEATURES: Final = ("amx-tile", "amx-bf16", "avx512f")


class RangeAttention:
    """A `paged_attention.RangeKernel`. Not thread-safe."""

    def __init__(self, compiler: Compiler, team: Team | None = None) -> None:
        """Compile, unless that has been done before.

        Args:
            compiler: opened; `has_tiles` is true.
            team: threads that compute; None for torch's.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team or Team.of_torch()
        self._op = np.zeros(OP_SIZE, np.int64)
        self._op[0] = compiler.op(numbers.attend_range)
        # Palette 1: eight tiles of 16 rows and 64 bytes.
        self._config = np.zeros(64, np.uint8)
        self._config[0] = 1
        self._config[16:32:2] = 64
        self._config[48:56] = 16
        self._header = np.zeros(numbers.HEADER_SIZE, np.int64)
        self._start = np.array(
            [
                *(self._team.thread_number, self._team.num_threads, self._team.barrier, 1),
                *(self._op.ctypes.data, self._header.ctypes.data),
            ],
            np.int64,
        )
        self._walk = compiler.walk()

    def takes(self, num_queries: int, keys: Tensor) -> bool:
        """See `paged_attention.RangeKernel`."""
        num_keys, head_dim = keys.shape[2:]
        return (
            keys.dtype == torch.bfloat16
            and head_dim % numbers.KEYS_STEP == 0
            and keys.stride(1) == head_dim
            and num_queries >= numbers.MIN_QUERIES
            and num_keys >= numbers.BLOCK_KEYS
            and num_keys % numbers.KEYS_STEP == 0
        )

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `paged_attention.RangeKernel`."""
        _, num_heads, num_queries, head_dim = queries.shape
        queries = queries.contiguous()
        output = torch.empty(queries.shape)
        log_sums = torch.empty(queries.shape[:-1])
        num_threads = self._team.num_threads
        own = numbers.scratch_bytes(num_queries, head_dim, num_threads)
        scratch = torch.empty(num_threads, own, dtype=torch.uint8)
        self._header[:] = (
            queries.data_ptr(),
            *(num_heads, num_queries, head_dim),
            keys.data_ptr(),
            values.data_ptr(),
            keys.stride(2) * 2,
            keys.shape[2],
            output.data_ptr(),
            log_sums.data_ptr(),
            int(np.float64(scale).view(np.int64)),
            scratch.data_ptr(),
            own,
            self._config.ctypes.data,
        )
        self._team.run(self._walk, self._start.ctypes.data)
        return output, log_sums


def has_tiles() -> bool:
    """Whether the processor has matrix tiles for bf16, and the system lets this process use them; asks it to."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    features = llvm.get_host_cpu_features()
    if not all(features.get(name, False) for name in _FEATURES):
        return False
    answer: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return answer == 0
