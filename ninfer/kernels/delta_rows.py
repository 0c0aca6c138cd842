"""A few tokens of the gated delta rule for several lanes, with the state after each. Knows nothing about models.

As `delta_step`, token after token, so that a guess is computed with the bits of a plain step; what does not depend on
the state is computed for all tokens at once. The states in between are for whoever takes guesses back.
"""

import torch
from torch import Tensor


def delta_rows(
    states: Tensor, heads: Tensor, values: Tensor, *, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """Update states by several tokens and read them after each.

    Args:
        states: `[num_lanes, num_value_heads, key_dim, value_dim]`, any strides; unchanged.
        heads: queries and keys `[num_lanes, num_rows, 2, num_key_heads, key_dim]`, normalised, queries scaled. Key head
            i serves value heads [i * group, (i + 1) * group).
        values: `[num_lanes, num_rows, num_value_heads, value_dim]`.
        decay: factor of the old state, `[num_lanes, num_rows, num_value_heads]`, in [0, 1].
        beta: share of the old value that is replaced, `[num_lanes, num_rows, num_value_heads]`.

    Returns:
        What is read, `[num_lanes, num_rows, num_value_heads, value_dim]`, and the states after each token,
        `[num_rows, num_lanes, num_value_heads, key_dim, value_dim]`; new.
    """
    num_lanes, num_rows, num_heads, value_dim = values.shape
    key_heads, key_dim = heads.shape[3:]
    group = num_heads // key_heads
    pairs = heads.permute(1, 0, 3, 2, 4)
    if group > 1:
        pairs = pairs.unsqueeze(3).expand(-1, -1, -1, group, -1, -1)
    # Lanes and heads become one axis: everything below is a product of matrices, head by head.
    pairs = pairs.reshape(num_rows, num_lanes * num_heads, 2, key_dim)
    shares = beta.transpose(0, 1).reshape(num_rows, -1, 1)
    kept = decay.transpose(0, 1).reshape(num_rows, -1, 1, 1)
    wanted = values.transpose(0, 1).reshape(num_rows, -1, value_dim)
    queries, keys = pairs.unbind(2)
    overlap = (queries * keys).sum(-1, keepdim=True)
    after = states.new_empty(num_rows, num_lanes * num_heads, key_dim, value_dim)
    state = states.reshape(num_lanes * num_heads, key_dim, value_dim)
    reads, deltas = [], []
    rows = zip(
        after.unbind(0),
        pairs.unbind(0),
        keys.unsqueeze(-1).unbind(0),
        wanted.unbind(0),
        kept.unbind(0),
        shares.unbind(0),
        strict=True,
    )
    for new, pair, key, value, factor, share in rows:
        torch.mul(state, factor, out=new)
        # The output is read before the update, S^T q + (k . q) delta, so that one product reads queries and keys.
        read_query, read_key = torch.bmm(pair, new).unbind(1)
        delta = (value - read_key).mul_(share)
        new.addcmul_(key, delta.unsqueeze(1))
        reads.append(read_query)
        deltas.append(delta)
        state = new
    outputs = torch.addcmul(torch.stack(reads), overlap, torch.stack(deltas))
    outputs = outputs.view(num_rows, num_lanes, num_heads, value_dim).transpose(0, 1)
    return outputs, after.view(num_rows, num_lanes, num_heads, key_dim, value_dim)
