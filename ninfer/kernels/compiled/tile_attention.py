"""Attention of many rows of a lane, on processors with matrix tiles. Needs numba."""

import ctypes
import platform
import sys
from typing import Final

import numpy as np
import torch
from numba.core.registry import cpu_target
from torch import Tensor

from ninfer.kernels.compiled import attend_tiles as numbers
from ninfer.kernels.compiled.call import Call
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import bits_of
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.segment import Segment

MIN_ROWS: Final = 32
"""Fewer leave tiles empty."""
_ARCH_PRCTL: Final = 158
_REQUEST_PERMISSION: Final = 0x1023
_TILE_DATA: Final = 18
_FEATURES: Final = ("amx-tile", "amx-bf16", "avx512f", "avx512dq")


class TileAttention:
    """A `paged_attention.SegmentKernel`. Not thread-safe."""

    def __init__(self, compiler: Compiler, team: Team | None = None) -> None:
        """Compile, unless that has been done before.

        Args:
            compiler: opened; `has_tiles` is true.
            team: threads that compute; None for torch's.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team or Team.of_torch()
        self._call = Call(
            numbers.attend_tiles, numbers.HEADER_SIZE, compiler=compiler, team=self._team
        )
        # Palette 1: eight tiles of 16 rows and 64 bytes.
        self._config = np.zeros(64, np.uint8)
        self._config[0] = 1
        self._config[16:32:2] = 64
        self._config[48:56] = 16

    def takes(self, num_rows: int, layout: KvLayout) -> bool:
        """See `paged_attention.SegmentKernel`."""
        fits = layout.dtype == torch.bfloat16 and layout.head_dim % numbers.KEYS_STEP == 0
        return fits and num_rows >= MIN_ROWS

    def __call__(
        self, pool: KvPool, layer: int, segment: Segment, queries: Tensor, scale: float
    ) -> Tensor:
        """See `paged_attention.SegmentKernel`."""
        num_rows, num_heads, head_dim = queries.shape
        if queries.stride()[1:] != (head_dim, 1):
            queries = queries.contiguous()
        layout = pool.layout
        pages = np.concatenate([np.arange(at, at + count) for at, count in segment.runs])
        output = torch.empty(num_rows, num_heads * head_dim, dtype=torch.bfloat16)
        own = numbers.scratch_bytes(head_dim, num_heads // layout.num_kv_heads)
        scratch = torch.empty(self._team.num_threads, own, dtype=torch.uint8)
        self._call((
            *(queries.data_ptr(), queries.stride(0) * 2),
            *(num_rows, segment.position_start, segment.context_start),
            *(num_heads, layout.num_kv_heads, head_dim),
            *(pool.kv[layer, 0].data_ptr(), pool.kv[layer, 1].data_ptr()),
            pages.ctypes.data,
            output.data_ptr(),
            bits_of(scale),
            *(scratch.data_ptr(), own),
            self._config.ctypes.data,
            0,
        ))
        return output


def has_tiles() -> bool:
    """Whether the processor has matrix tiles for bf16, and the system lets this process use them; asks it to."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    # What numba compiles for: the processor, or less if NUMBA_CPU_NAME or NUMBA_CPU_FEATURES say so.
    codegen = cpu_target.target_context.codegen()
    features = (codegen._get_host_cpu_features() or "").split(",")  # noqa: SLF001
    if not all(f"+{name}" in features for name in _FEATURES):
        return False
    answer: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return answer == 0
