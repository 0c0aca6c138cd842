"""Attention of mixed prefill and decode rows over paged KV on a CPU, without copying the context.

A lane's context is a short list of ranges of consecutive slots. Each range is one call of the flash kernel on strided
views of the pool; partial results are merged by their log-sum-exp. A plan is built once per step and used by every layer.
Knows nothing about models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.segment import Segment

MAX_VIEWED_RANGES: Final = 6
"""A lane with more ranges gathers its smallest ones into one buffer per layer: a flash call costs about 30 us even
for a few tokens, copying a page of one layer about 5 us."""

_flash: Callable[..., tuple[Tensor, Tensor]] = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
)


_BLOCK_ROWS: Final = 32
"""Rows of a head that the flash kernel gives to one thread."""
_MIN_PART_SCORES: Final = 32_768
"""Scores of a head that are work enough for a thread: putting parts together takes about 60 us."""


class AttentionPlan(Protocol):
    """What a step's layers need to write and read KV."""

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """Write the rows' KV into the pool, then attend.

        Args:
            layer: layer of the pool.
            queries: `[num_rows, num_heads, head_dim]`, pool dtype, head axis may be strided.
            keys_values: `[num_rows, 2, num_kv_heads, head_dim]`, pool dtype, may be strided.

        Returns:
            `[num_rows, num_heads * head_dim]`, pool dtype.

        Changes: the slots of the rows in this layer.
        """
        ...


SegmentAttention = Callable[[int, Tensor], Tensor]
"""Attends the rows of one segment in one layer of the pool: from `[num_rows, num_heads, head_dim]`, pool dtype, strided, to
`[num_rows, num_heads * head_dim]`, new. The KV of everything that the rows look at is in the pool, their own included."""


class SegmentKernel(Protocol):
    """Attends the rows of segments, in place of the flash kernel."""

    def takes(self, layout: KvLayout) -> bool:
        """Whether it can read a pool, and is faster."""
        ...

    def prepared(self, pool: KvPool, segment: Segment, scale: float) -> SegmentAttention:
        """Work out once per step what all layers need.

        Args:
            pool: of the step, one that it takes.
            segment: its pages stay where they are while the step runs.
            scale: of the scores.
        """
        ...


def plan_attention(
    pool: KvPool,
    segments: Sequence[Segment],
    *,
    num_heads: int,
    scale: float,
    kernel: SegmentKernel | None = None,
) -> AttentionPlan:
    """Prepare attention for one step.

    Args:
        pool: KV of all lanes.
        segments: cover all rows of the batch in order without gaps.
        num_heads: query heads; a multiple of the pool's KV heads.
        scale: factor of the scores, usually head_dim ** -0.5.
        kernel: in place of torch's, where it takes the pool.

    Returns:
        The flash plan on a CPU, the torch reference elsewhere.
    """
    if pool.device.type == "cpu":
        return CpuAttention(pool, segments, num_heads=num_heads, scale=scale, kernel=kernel)
    return ReferenceAttention(pool, segments, num_heads=num_heads, scale=scale)


@dataclass(frozen=True, slots=True)
class _Context:
    """Views of one range of KV, or of gathered slots; one entry per layer."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    gathered_slots: Tensor | None = None

    def heads(self, pool: KvPool, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values `[1, num_kv_heads, num_tokens, head_dim]` of a layer."""
        if self.gathered_slots is None:
            return self.keys[layer], self.values[layer]
        gathered = pool.kv[layer].index_select(1, self.gathered_slots)
        keys, values = gathered.transpose(1, 2).unsqueeze(1).unbind(0)
        return keys, values


class CpuAttention:
    """The CPU plan; see `AttentionPlan`. Valid for one step, while the segments' pages stay where they are."""

    def __init__(
        self,
        pool: KvPool,
        segments: Sequence[Segment],
        *,
        num_heads: int,
        scale: float,
        kernel: SegmentKernel | None = None,
    ) -> None:
        """See `plan_attention`."""
        self._pool = pool
        self._num_heads = num_heads
        self._kv_heads = pool.layout.num_kv_heads
        self._group = num_heads // self._kv_heads
        self._head_dim = pool.layout.head_dim
        self._scale = scale
        self._row_counts = [segment.num_rows for segment in segments]
        is_taken = kernel is not None and kernel.takes(pool.layout)
        self._taken = [
            kernel.prepared(pool, segment, scale) if kernel is not None and is_taken else None
            for segment in segments
        ]
        self._only_decodes = not is_taken and all(count == 1 for count in self._row_counts)
        self._merge_dtype = torch.promote_types(pool.layout.dtype, torch.float32)
        # Single rows read their own KV back from the pool; longer segments use the rows at hand for the causal part.
        self._contexts = [
            []
            if taken is not None
            else _contexts(pool, s, s.position_end if s.num_rows == 1 else s.position_start)
            for s, taken in zip(segments, self._taken, strict=True)
        ]
        self._write_counts: list[int] = []
        self._write_views: list[tuple[Tensor, ...]] = []
        for segment in segments:
            for slot, count in segment.slot_ranges(segment.position_start, segment.position_end):
                self._write_counts.append(count)
                view = pool.kv[:, :, slot : slot + count].transpose(1, 2)
                self._write_views.append(view.unbind(0))

    def attend(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
        """See `AttentionPlan.attend`."""
        self._write(layer, keys_values)
        if self._only_decodes:
            shape = (-1, 1, self._kv_heads, self._group, self._head_dim)
            lanes = queries.reshape(shape).unbind(0)
            outputs = [self._decode(layer, i, lane) for i, lane in enumerate(lanes)]
        else:
            outputs = [
                self._segment(layer, i, rows, own)
                for i, (rows, own) in enumerate(
                    zip(
                        torch.split_with_sizes(queries, self._row_counts),
                        torch.split_with_sizes(keys_values, self._row_counts),
                        strict=True,
                    )
                )
            ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _write(self, layer: int, keys_values: Tensor) -> None:
        if len(self._write_views) == 1:
            self._write_views[0][layer].copy_(keys_values)
            return
        for views, rows in zip(
            self._write_views, torch.split_with_sizes(keys_values, self._write_counts), strict=True
        ):
            views[layer].copy_(rows)

    def _segment(self, layer: int, index: int, queries: Tensor, own: Tensor) -> Tensor:
        taken = self._taken[index]
        if taken is not None:
            return taken(layer, queries)
        if queries.shape[0] == 1:
            shape = (1, self._kv_heads, self._group, self._head_dim)
            return self._decode(layer, index, queries.reshape(shape))
        return self._chunk(layer, index, queries, own)

    def _decode(self, layer: int, index: int, queries: Tensor) -> Tensor:
        """Attend one row `[1, num_kv_heads, group, head_dim]`: the query group takes the place of the query length."""
        parts = []
        for context in self._contexts[index]:
            keys, values = context.heads(self._pool, layer)
            parts.append(_attend_range(queries, keys, values, self._scale))
        if len(parts) == 1:
            output = parts[0][0].to(queries.dtype)
        else:
            weights = torch.stack([lse for _, lse in parts]).softmax(0).unsqueeze(-1)
            outputs = torch.stack([out for out, _ in parts]).to(self._merge_dtype)
            output = (outputs * weights).sum(0).to(queries.dtype)
        return output.reshape(1, -1)

    def _chunk(self, layer: int, index: int, queries: Tensor, own: Tensor) -> Tensor:
        """Attend several rows: context before the chunk without mask, the chunk's own rows causally."""
        num_rows = queries.shape[0]
        kv_heads, group, head_dim = self._kv_heads, self._group, self._head_dim
        by_head = queries.reshape(num_rows, kv_heads, group, head_dim)
        keys, values = own.permute(1, 2, 0, 3).unsqueeze(2).expand(-1, -1, group, -1, -1).unbind(0)
        causal, causal_lse = _flash(
            by_head.permute(1, 2, 0, 3), keys, values, is_causal=True, scale=self._scale
        )
        output, lse = causal.transpose(1, 2), causal_lse.transpose(1, 2)
        contexts = self._contexts[index]
        if not contexts:
            return output.permute(1, 0, 2, 3).reshape(num_rows, -1)
        # Without a mask the group can be folded into the query length, so that keys are read once per group.
        folded = by_head.transpose(0, 1).reshape(1, kv_heads, num_rows * group, head_dim)
        output = output.to(self._merge_dtype)
        for context in contexts:
            keys, values = context.heads(self._pool, layer)
            part, part_lse = _attend_range(folded, keys, values, self._scale)
            part = part.view(kv_heads, num_rows, group, head_dim).to(self._merge_dtype)
            part_lse = part_lse.view(kv_heads, num_rows, group)
            output = torch.lerp(output, part, torch.sigmoid(part_lse - lse).unsqueeze(-1))
            lse = torch.logaddexp(lse, part_lse)
        return output.permute(1, 0, 2, 3).reshape(num_rows, -1).to(queries.dtype)


def _attend_range(
    queries: Tensor, keys: Tensor, values: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend without mask, a part of the range on each thread if there are too few rows for all threads.

    Args:
        queries: `[1, num_kv_heads, num_queries, head_dim]`.
        keys: `[1, num_kv_heads, num_tokens, head_dim]`, strided.
        values: alike.
        scale: of the scores.

    Returns:
        `[1, num_kv_heads, num_queries, head_dim]` and the log-sum-exp `[1, num_kv_heads, num_queries]`.
    """
    num_tokens = keys.shape[2]
    num_tasks = queries.shape[1] * -(-queries.shape[2] // _BLOCK_ROWS)
    num_scores = queries.shape[2] * num_tokens
    num_parts = min(torch.get_num_threads() // num_tasks, num_scores // _MIN_PART_SCORES)
    if num_parts < 2:
        return _flash(queries, keys, values, scale=scale)
    split = num_tokens // num_parts * num_parts
    shape = (keys.shape[1], num_parts, split // num_parts, keys.shape[3])
    outputs, sums = _flash(
        queries.expand(num_parts, -1, -1, -1),
        *(each[0, :, :split].view(shape).transpose(0, 1) for each in (keys, values)),
        scale=scale,
    )
    if split < num_tokens:
        rest, rest_sums = _flash(queries, keys[:, :, split:], values[:, :, split:], scale=scale)
        outputs, sums = torch.cat((outputs, rest)), torch.cat((sums, rest_sums))
    weights = sums.softmax(0).unsqueeze(-1)
    merged = (outputs.to(weights.dtype) * weights).sum(0, keepdim=True)
    return merged, sums.logsumexp(0, keepdim=True)


def _contexts(pool: KvPool, segment: Segment, num_tokens: int) -> list[_Context]:
    """View the ranges that hold tokens [context_start, num_tokens) of a segment's lane."""
    start = segment.context_start
    ranges = list(segment.slot_ranges(start, num_tokens)) if num_tokens > start else []
    gathered: list[tuple[int, int]] = []
    if len(ranges) > MAX_VIEWED_RANGES:
        # Attention over a context that lies completely before the query does not depend on its order.
        ranges.sort(key=lambda slots: slots[1], reverse=True)
        ranges, gathered = ranges[: MAX_VIEWED_RANGES - 1], ranges[MAX_VIEWED_RANGES - 1 :]
    contexts = []
    for slot, count in ranges:
        keys, values = pool.layer_heads(slot, count)
        contexts.append(_Context(keys, values))
    if gathered:
        slots = torch.cat([torch.arange(slot, slot + count) for slot, count in gathered])
        contexts.append(_Context((), (), slots))
    return contexts
