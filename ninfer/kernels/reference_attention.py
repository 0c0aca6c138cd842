"""Paged attention in plain torch operators, for any device and for comparison. Knows nothing about models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.segment import Segment


class ReferenceAttention:
    """Gathers each lane's KV and computes masked attention; same interface as `paged_attention.AttentionPlan`."""

    def __init__(
        self, pool: KvPool, segments: Sequence[Segment], *, num_heads: int, scale: float
    ) -> None:
        """See `paged_attention.plan_attention`."""
        self._pool = pool
        self._segments = tuple(segments)
        self._group = num_heads // pool.layout.num_kv_heads
        self._scale = scale
        self._slots = [_slots(pool, s, s.context_start, s.position_end) for s in segments]
        self._write_slots = torch.cat([
            slots[segment.position_start - segment.context_start :]
            for segment, slots in zip(segments, self._slots, strict=True)
        ])
        self._masks = [_causal_mask(pool.device, segment) for segment in segments]

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """See `paged_attention.AttentionPlan.attend`."""
        self._pool.kv[layer].index_copy_(1, self._write_slots, keys_values.transpose(0, 1))
        outputs = []
        for segment, slots, mask in zip(self._segments, self._slots, self._masks, strict=True):
            rows = queries[segment.row_start : segment.row_start + segment.num_rows]
            context = self._pool.kv[layer].index_select(1, slots)
            keys, values = context.repeat_interleave(self._group, dim=2).transpose(1, 2)
            compute = torch.promote_types(rows.dtype, torch.float32)
            scores = rows.transpose(0, 1).to(compute) @ keys.to(compute).transpose(1, 2)
            scores = (scores * self._scale).masked_fill(~mask, float("-inf"))
            output = scores.softmax(-1) @ values.to(compute)
            outputs.append(output.transpose(0, 1).reshape(segment.num_rows, -1).to(rows.dtype))
        return torch.cat(outputs)


def _slots(pool: KvPool, segment: Segment, start: int, end: int) -> Tensor:
    ranges = segment.slot_ranges(start, end)
    slots = [torch.arange(slot, slot + count) for slot, count in ranges]
    return torch.cat(slots).to(pool.device)


def _causal_mask(device: torch.device, segment: Segment) -> Tensor:
    """True where a row may look: `[num_rows, position_end - context_start]`."""
    columns = torch.arange(segment.context_start, segment.position_end, device=device)
    rows = torch.arange(segment.position_start, segment.position_end, device=device)
    return columns <= rows.unsqueeze(1)
