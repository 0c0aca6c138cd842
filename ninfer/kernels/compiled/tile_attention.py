"""Attention of the rows of one lane in matrix tiles, on processors with AVX512. Needs numba."""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from ninfer.kernels.compiled import attend_parts, attend_tiles
from ninfer.kernels.compiled.call import Call
from ninfer.kernels.compiled.compiler import Compiler
from ninfer.kernels.compiled.header import bits_of
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.compiled.tile_shape import TILE, tile_config
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.segment import Segment

MAX_COLUMNS: Final = TILE * attend_tiles.TILES_TOGETHER
"""Queries for a head of keys for which keys are shared out among threads instead of rows: all rows together are not more than
one thread's piece of work."""
MAX_PARTIAL_BYTES: Final = 16 << 20
"""Room for what parts of the keys give. Rows that would need more are shared out themselves, with the same bits."""
MIN_SHARED_SCORES: Final = 1 << 16
"""Fewer are done before a second thread has begun."""


class TileAttention:
    """A `paged_attention.SegmentKernel`. Not thread-safe: works in buffers of its own."""

    def __init__(self, compiler: Compiler, team: Team | None = None) -> None:
        """Compile, unless that has been done before.

        Args:
            compiler: opened; there is a `matrix_unit`.
            team: threads that compute; None for torch's.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        self._team = team or Team.of_torch()
        self._many = Call(
            [attend_tiles.attend_tiles],
            attend_tiles.HEADER_SIZE,
            compiler=compiler,
            team=self._team,
        )
        self._few_alone, self._few = (
            Call(
                [attend_parts.attend_parts, attend_parts.merge_parts],
                attend_parts.HEADER_SIZE,
                compiler=compiler,
                team=each,
            )
            for each in (Team(1), self._team)
        )
        # Of torch, whose memory begins where a cache line does: a tile's rows that lie on two take twice as long.
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._partial = torch.empty(0, dtype=torch.float32)
        self._config = tile_config()

    def takes(self, layout: KvLayout) -> bool:
        """See `paged_attention.SegmentKernel`."""
        return layout.dtype == torch.bfloat16 and layout.head_dim % attend_tiles.KEYS_STEP == 0

    def prepared(self, pool: KvPool, segment: Segment, scale: float) -> "SegmentTiles":
        """See `paged_attention.SegmentKernel`."""
        return SegmentTiles(self, pool, segment, scale)

    def attend_many(self, numbers: tuple[int, ...], head_dim: int, group: int) -> None:
        """Attend, rows shared out among threads.

        Args:
            numbers: of the header up to the scale.
            head_dim: elements of a head.
            group: query heads that share keys.
        """
        self._many((*numbers, *self._own(attend_tiles.scratch_bytes(head_dim, group))))

    def attend_few(
        self,
        numbers: tuple[int, ...],
        head_dim: int,
        num_tiles: int,
        *,
        num_parts: int,
        num_kv_heads: int,
        num_partial: int,
        num_keys: int,
    ) -> None:
        """Attend, keys shared out among threads.

        Args:
            numbers: of the header up to the scale.
            head_dim: elements of a head.
            num_tiles: of the rows' queries for a head of keys.
            num_parts: of the keys.
            num_kv_heads: heads of keys.
            num_partial: numbers that the parts give.
            num_keys: looked at, times heads of keys.
        """
        if num_partial > len(self._partial):
            self._partial = torch.empty(num_partial, dtype=torch.float32)
        own = self._own(attend_parts.scratch_bytes(head_dim, num_kv_heads * num_tiles))
        is_shared = (
            num_parts * num_kv_heads > 1 and num_keys * num_tiles * TILE >= MIN_SHARED_SCORES
        )
        call = self._few if is_shared else self._few_alone
        num_threads = self._team.num_threads if is_shared else 1
        num_groups = attend_parts.groups(num_kv_heads, num_parts, num_threads)
        call((*numbers, *own, self._partial.data_ptr(), num_groups))

    def _own(self, scratch_bytes: int) -> tuple[int, int, int, int]:
        """Return what else both headers have: room for each thread, tiles, no piece of work taken."""
        if scratch_bytes * self._team.num_threads > len(self._scratch):
            size = scratch_bytes * self._team.num_threads
            self._scratch = torch.empty(size, dtype=torch.uint8)
        return self._scratch.data_ptr(), scratch_bytes, self._config.ctypes.data, 0


class SegmentTiles:
    """What every layer of a step needs to attend one segment."""

    def __init__(self, kernel: TileAttention, pool: KvPool, segment: Segment, scale: float) -> None:
        """List the pages; they stay where they are while the step runs.

        Args:
            kernel: computes.
            pool: has the KV of everything that the rows look at, their own included.
            segment: where the rows are.
            scale: of the scores.
        """
        self._kernel = kernel
        self._pool = pool
        self._scale = bits_of(scale)
        self._pages = np.concatenate([np.arange(at, at + count) for at, count in segment.runs])
        self._places = (segment.num_rows, segment.position_start, segment.context_start)
        self._num_keys = segment.position_end - segment.context_start
        size = attend_tiles.PART_KEYS
        first = segment.context_start // size
        self._num_parts = (segment.position_end - 1) // size - first + 1

    def __call__(self, layer: int, queries: Tensor) -> Tensor:
        """See `paged_attention.SegmentAttention`."""
        num_rows, num_heads, head_dim = queries.shape
        if queries.stride()[1:] != (head_dim, 1):
            queries = queries.contiguous()
        kv, num_kv_heads = self._pool.kv, self._pool.layout.num_kv_heads
        keys = kv.data_ptr() + layer * kv.stride(0) * 2
        output = torch.empty(num_rows, num_heads * head_dim, dtype=torch.bfloat16)
        numbers = (
            *(queries.data_ptr(), queries.stride(0) * 2),
            *self._places,
            *(num_heads, num_kv_heads, head_dim),
            *(keys, keys + kv.stride(1) * 2),
            self._pages.ctypes.data,
            output.data_ptr(),
            self._scale,
        )
        group = num_heads // num_kv_heads
        num_tiles = -(-num_rows * group // TILE)
        num_partial = self._num_parts * num_kv_heads * num_tiles
        num_partial *= attend_parts.partial_size(head_dim)
        if num_rows * group > MAX_COLUMNS or 4 * num_partial > MAX_PARTIAL_BYTES:
            self._kernel.attend_many(numbers, head_dim, group)
        else:
            self._kernel.attend_few(
                numbers,
                head_dim,
                num_tiles,
                num_parts=self._num_parts,
                num_kv_heads=num_kv_heads,
                num_partial=num_partial,
                num_keys=self._num_keys * num_kv_heads,
            )
        return output
