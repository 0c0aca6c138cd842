"""Many tokens of the gated delta rule for one lane, as products of matrices. Knows nothing about models.

Within a chunk of 64 tokens all corrections follow from one triangular system (the WY form); from chunk to chunk only
the state is passed on. Source: Yang et al. 2024, Gated Delta Networks (https://arxiv.org/abs/2412.06464), section 3.3.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

CHUNK_TOKENS: Final = 64


def delta_chunks(
    state: Tensor, heads: Tensor, values: Tensor, *, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """Update a state by consecutive tokens and read it after each.

    Args:
        state: `[num_value_heads, key_dim, value_dim]`; updated in place.
        heads: queries and keys `[num_rows, 2, num_key_heads, key_dim]`, normalised, queries scaled. Key head i serves
            value heads [i * group, (i + 1) * group).
        values: `[num_rows, num_value_heads, value_dim]`, any strides.
        log_decay: logarithm of the factor of the old state, `[num_rows, num_value_heads]`, <= 0.
        beta: share of the old value that is replaced, `[num_rows, num_value_heads]`.

    Returns:
        `[num_rows, num_value_heads, value_dim]`, new.

    Changes: `state`.
    """
    num_rows, num_heads, value_dim = values.shape
    chunk = min(num_rows, CHUNK_TOKENS)
    num_chunks = -(-num_rows // chunk)
    # Rows that fill up the last chunk have beta 0 and decay 1: they change nothing.
    missing = num_chunks * chunk - num_rows
    queries, keys = (_cut(part, chunk, missing) for part in heads.unbind(1))
    group = num_heads // keys.shape[1]
    if group > 1:
        queries, keys = (part.repeat_interleave(group, dim=1) for part in (queries, keys))
    values = _cut(values, chunk, missing)
    beta = _cut(beta, chunk, missing).unsqueeze(-1)
    total = _cut(log_decay, chunk, missing).cumsum(-1)

    # decay[i, j]: what is left at token i of what was written at token j; 0 for j > i.
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=state.device).triu_(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill_(later, float("-inf")).exp_()
    since_start = total.exp().unsqueeze(-1)
    transposed = keys.transpose(-1, -2)
    system = (keys @ transposed).mul_(decay).mul_(beta)
    scores = (queries @ transposed).mul_(decay)
    sides = torch.cat((values, keys * since_start), dim=-1).mul_(beta)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    corrections, read_keys = torch.split(solved, [value_dim, keys.shape[-1]], dim=-1)
    readers = torch.cat((read_keys, queries * since_start), dim=-2)
    written = (keys * (total[..., -1:] - total).exp().unsqueeze(-1)).transpose(-1, -2)
    left = since_start[:, :, -1:]

    output = torch.empty(
        num_chunks * chunk, num_heads, value_dim, dtype=values.dtype, device=values.device
    )
    chunks = output.view(num_chunks, chunk, num_heads, value_dim).transpose(1, 2)
    for index in range(num_chunks):
        old, outputs = (readers[index] @ state).chunk(2, dim=1)
        delta = corrections[index] - old
        chunks[index] = torch.baddbmm(outputs, scores[index], delta)
        state.mul_(left[index]).baddbmm_(written[index], delta)
    return output[:num_rows]


def _cut(rows: Tensor, chunk: int, missing: int) -> Tensor:
    """Lay `[num_rows, num_heads, ...]` out as `[num_chunks, num_heads, chunk, ...]`, filled up with zeros."""
    if missing:
        rows = functional.pad(rows, (0, 0) * (rows.ndim - 1) + (0, missing))
    return rows.view(-1, chunk, *rows.shape[1:]).transpose(1, 2).contiguous()
