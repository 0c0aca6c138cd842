"""What attention in matrix tiles reads of every lane and layer of a step. Knows nothing about models. Needs numba."""

import numpy as np
import torch

from ninfer.kernels.compiled import attend_parts
from ninfer.kernels.compiled import attend_tiles as numbers
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.header import bits_of
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.tile_shape import TILE, tile_config
from ninfer.kernels.kv_pool import KvPool


class LaneTables:
    """Fills the tables in, and owns what they point to. Not thread-safe.

    Attributes:
        queries: bf16 `[num_rows, num_heads * head_dim]`, read.
        attended: alike, written.
    """

    def __init__(
        self, shapes: HeadShapes, num_rows: int, *, num_threads: int, scale: float
    ) -> None:
        """Make the buffers.

        Args:
            shapes: of the heads; elements of a head are a multiple of 32.
            num_rows: of a step, at most.
            num_threads: that attend.
            scale: of the scores.
        """
        self._shapes = shapes
        self._scale = bits_of(scale)
        self._num_threads = num_threads
        width = shapes.num_heads * shapes.head_dim
        self.queries = torch.empty(num_rows, width, dtype=torch.bfloat16)
        self.attended = torch.empty(num_rows, width, dtype=torch.bfloat16)
        self._row_bytes = width * self.queries.element_size()
        self._config = tile_config()
        self._config_address = self._config.ctypes.data
        # Of torch, whose memory begins where a cache line does: a tile's rows that lie on two take twice as long.
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._partial = torch.empty(0)

    def tables(self, contexts: Contexts, kv: KvPool) -> np.ndarray:
        """Return int64 `[num_layers, num_lanes, HEADER_SIZE]`, new; valid until the next call.

        Args:
            contexts: of the rows; must live as long.
            kv: bf16 pool on the CPU.
        """
        shapes, layout = self._shapes, kv.layout
        head_dim, num_kv_heads = shapes.head_dim, shapes.num_kv_heads
        group, size = shapes.num_heads // num_kv_heads, numbers.PART_KEYS
        most_tiles = all_parts = num_partial = 0
        partial_at = []
        for _, num_rows, start, context_start, _ in contexts.lanes:
            num_tiles = -(-num_rows * group // TILE)
            num_parts = (start + num_rows - 1) // size - context_start // size + 1
            most_tiles, all_parts = max(most_tiles, num_tiles), all_parts + num_parts
            partial_at.append(num_partial)
            num_partial += (
                num_parts * num_kv_heads * num_tiles * attend_parts.partial_size(head_dim)
            )
        scratch_bytes = attend_parts.scratch_bytes(head_dim, num_kv_heads * most_tiles)
        self._grow(num_partial, scratch_bytes * self._num_threads)

        layer_bytes, plane_bytes = (stride * kv.kv.element_size() for stride in kv.kv.stride()[:2])
        keys, row_bytes = kv.kv.data_ptr(), self._row_bytes
        queries, attended = self.queries.data_ptr(), self.attended.data_ptr()
        pages, partial = contexts.pages.ctypes.data, self._partial.data_ptr()
        num_groups = attend_parts.groups(num_kv_heads, all_parts, self._num_threads)
        scratch = (self._scratch.data_ptr(), scratch_bytes, self._config_address)
        # In the order of `attend_tiles` and `attend_parts`.
        rows = [
            (
                *(queries + first * row_bytes, row_bytes, num_rows, start, context_start),
                *(shapes.num_heads, num_kv_heads, head_dim, keys, keys + plane_bytes),
                *(pages + 8 * first_page, attended + first * row_bytes, self._scale, *scratch, 0),
                *(partial + 4 * at, num_groups),
            )
            for (first, num_rows, start, context_start, first_page), at in zip(
                contexts.lanes, partial_at, strict=True
            )
        ]
        tables = np.empty((layout.num_layers, len(rows), attend_parts.HEADER_SIZE), np.int64)
        tables[:] = rows
        layers = np.arange(layout.num_layers)[:, None, None] * layer_bytes
        tables[:, :, numbers.KEYS : numbers.VALUES + 1] += layers
        return tables

    def _grow(self, num_partial: int, scratch_bytes: int) -> None:
        if num_partial > len(self._partial):
            self._partial = torch.empty(num_partial)
        if scratch_bytes > len(self._scratch):
            self._scratch = torch.empty(scratch_bytes, dtype=torch.uint8)
