"""The device KV pool and its layout. Knows nothing about who owns a page."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.core.step import PAGE_SIZE_TOKENS


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Shape and type of the KV that one token needs.

    Attributes:
        num_layers: attention layers that keep KV.
        num_kv_heads: key/value heads per layer.
        head_dim: elements per head.
        dtype: element type of keys and values.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token, all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def page_bytes(self) -> int:
        """Bytes of one page image `[num_layers, 2, 64, num_kv_heads, head_dim]`."""
        return self.token_bytes * PAGE_SIZE_TOKENS


class KvPool:
    """Keys and values of all layers in one tensor `[num_layers, 2, num_slots, num_kv_heads, head_dim]`.

    Page p owns slots [64 p, 64 p + 64). Index 0 of the second axis is keys, 1 is values. The pool is allocated once
    and never grows; pages are not cleared when they change hands.

    Invariants:
        num_slots == 64 * num_pages
    """

    def __init__(
        self, layout: KvLayout, num_pages: int, device: torch.device | str = "cpu"
    ) -> None:
        """Allocate the pool, zero-filled (a recycled page must never hold NaN).

        Args:
            layout: shape and type.
            num_pages: pages to allocate; >= 1.
            device: where the tensor lives.
        """
        if num_pages < 1:
            raise ValueError(f"num_pages must be >= 1, got {num_pages}")
        self.layout = layout
        self.num_pages = num_pages
        self.num_slots = num_pages * PAGE_SIZE_TOKENS
        self.device = torch.device(device)
        shape = (layout.num_layers, 2, self.num_slots, layout.num_kv_heads, layout.head_dim)
        self.kv = torch.zeros(shape, dtype=layout.dtype, device=self.device)

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.num_pages * self.layout.page_bytes

    def run(self, first_page: int, num_pages: int) -> Tensor:
        """View the KV of consecutive pages, all layers, without copying.

        Returns:
            `[num_layers, 2, 64 * num_pages, num_kv_heads, head_dim]`, strided, borrowed.

        Raises:
            IndexError: the run is empty or leaves the pool.
        """
        if first_page < 0 or num_pages < 1 or first_page + num_pages > self.num_pages:
            raise IndexError(
                f"pages [{first_page}, {first_page + num_pages}) are not in a pool of {self.num_pages}"
            )
        return self.kv[
            :, :, first_page * PAGE_SIZE_TOKENS : (first_page + num_pages) * PAGE_SIZE_TOKENS
        ]

    def keys(self, layer: int, first_page: int, num_pages: int) -> Tensor:
        """View the keys of consecutive pages of one layer: `[64 * num_pages, num_kv_heads, head_dim]`."""
        return self.run(first_page, num_pages)[layer, 0]

    def values(self, layer: int, first_page: int, num_pages: int) -> Tensor:
        """View the values of consecutive pages of one layer: `[64 * num_pages, num_kv_heads, head_dim]`."""
        return self.run(first_page, num_pages)[layer, 1]

    def layer_slots(self, first_slot: int, num_slots: int) -> tuple[Tensor, ...]:
        """View a range of slots, one tensor `[2, num_slots, num_kv_heads, head_dim]` per layer, without copying."""
        return self.kv[:, :, first_slot : first_slot + num_slots].unbind(0)

    def layer_heads(self, first_slot: int, num_slots: int) -> tuple[tuple[Tensor, ...], ...]:
        """View a range of slots as attention reads them.

        Returns:
            Two tuples, keys and values, each with one `[1, num_kv_heads, num_slots, head_dim]` view per layer.
        """
        heads = self.kv[:, :, None, first_slot : first_slot + num_slots].transpose(3, 4)
        keys, values = heads.unbind(1)
        return keys.unbind(0), values.unbind(0)
