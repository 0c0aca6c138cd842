"""The gated delta rule over a whole sequence, in chunks. Knows nothing about layers."""

import torch
from torch import Tensor

CHUNK_TOKENS = 32
"""Tokens per chunk: small, so that the chunk-by-chunk matrices stay cheap at head sizes of 32."""


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, *, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """Read and write a recurrent state once per token.

    The state S [head_dim, head_dim] starts at zero. Token t does S <- exp(log_decay_t) S;
    S <- S + beta_t k_t (v_t - S^T k_t)^T; output S^T q_t. Within a chunk the writes are one triangular system (the
    UT transform), so only chunks follow one another.

    Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, section 3.

    Args:
        query: [batch, key_heads, num_tokens, head_dim], float32, already normalized and scaled.
        key: like query, already normalized.
        value: [batch, heads, num_tokens, head_dim]; each key head serves heads / key_heads value heads in a row.
        log_decay: [batch, heads, num_tokens], at most 0.
        beta: [batch, heads, num_tokens], 0 to 1.

    Returns:
        [batch, heads, num_tokens, head_dim]. num_tokens must be a multiple of the chunk, and is in training.
    """
    batch, heads, num_tokens, size = value.shape
    grid = (num_tokens // CHUNK_TOKENS, CHUNK_TOKENS)
    value = value.reshape(batch, heads, *grid, size)
    query, key = (x.reshape(batch, -1, *grid, size) for x in (query, key))
    flipped = key.transpose(-1, -2)
    repeats = heads // key.shape[1]
    # One product per key head, not per value head.
    alike, looked_up = (
        (x @ flipped).repeat_interleave(repeats, 1) if repeats > 1 else x @ flipped
        for x in (key, query)
    )
    query, key = (x.repeat_interleave(repeats, 1) for x in (query, key))
    total = log_decay.reshape(batch, heads, *grid).cumsum(-1)
    upper = torch.ones(CHUNK_TOKENS, CHUNK_TOKENS, dtype=torch.bool, device=query.device).triu(1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(upper, float("-inf")).exp()
    beta = beta.reshape(batch, heads, *grid)[..., None]
    from_start = total.exp()[..., None]
    solved = torch.linalg.solve_triangular(
        alike * (between * beta),
        torch.cat([value * beta, key * (beta * from_start)], -1),
        upper=False,
        unitriangular=True,
    )
    fresh, stale = solved.split(size, -1)
    to_end = (total[..., -1:] - total).exp()[..., None]
    starts = _chunk_starts(
        writes=(key * to_end).transpose(-1, -2),
        fresh=fresh,
        stale=stale,
        decay=total[..., -1].exp(),
    )
    written = fresh - stale @ starts
    output = (query * from_start) @ starts + (looked_up * between) @ written
    return output.reshape(batch, heads, num_tokens, size)


def _chunk_starts(*, writes: Tensor, fresh: Tensor, stale: Tensor, decay: Tensor) -> Tensor:
    """Carry the state from chunk to chunk: S' = decay S + writes (fresh - stale S).

    Args:
        writes: [batch, heads, chunks, head_dim, chunk].
        fresh: [batch, heads, chunks, chunk, head_dim], what is written if the state is zero.
        stale: like fresh, how the state changes what is written.
        decay: [batch, heads, chunks].

    Returns:
        [batch, heads, chunks, head_dim, head_dim]: the state at the start of each chunk.
    """
    batch, heads, num_chunks, size, _ = writes.shape
    added = writes @ fresh
    eye = torch.eye(size, dtype=writes.dtype, device=writes.device)
    carry = decay[..., None, None] * eye - writes @ stale
    carries = carry.flatten(0, 1).unbind(1)
    additions = added.flatten(0, 1).unbind(1)
    state = torch.zeros(batch * heads, size, size, dtype=writes.dtype, device=writes.device)
    states = []
    for index in range(num_chunks):
        states.append(state)
        state = torch.baddbmm(additions[index], carries[index], state)
    return torch.stack(states, 1).reshape(batch, heads, num_chunks, size, size)
