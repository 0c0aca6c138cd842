"""One token of the gated delta rule for several lanes at once. Knows nothing about models.

Source: Yang et al. 2024, Gated Delta Networks (https://arxiv.org/abs/2412.06464), equation 10:
`S <- decay * S`, then `S <- S + k (beta (v - S^T k))^T`, and the output is `S^T q`.
"""

import torch
from torch import Tensor


def delta_step(
    states: Tensor, heads: Tensor, values: Tensor, *, decay: Tensor, beta: Tensor
) -> Tensor:
    """Update states by one token each and read them.

    Args:
        states: `[num_lanes, num_value_heads, key_dim, value_dim]`, any strides; updated in place.
        heads: queries and keys `[num_lanes, 2, num_key_heads, key_dim]`, normalised, queries scaled. Key head i serves
            value heads [i * group, (i + 1) * group).
        values: `[num_lanes, num_value_heads, value_dim]`.
        decay: factor of the old state, `[num_lanes, num_value_heads]`, in [0, 1].
        beta: share of the old value that is replaced, `[num_lanes, num_value_heads]`.

    Returns:
        `[num_lanes, num_value_heads, value_dim]`, new.

    Changes: `states`.
    """
    group = values.shape[1] // heads.shape[2]
    pairs = heads.transpose(1, 2)
    if group > 1:
        pairs = pairs.repeat_interleave(group, dim=1)
    states.mul_(decay[:, :, None, None])
    # The output is read before the update, S^T q + (k . q) delta, so that one product reads queries and keys.
    read_queries, read_keys = torch.matmul(pairs, states).unbind(2)
    queries, keys = pairs.unbind(2)
    delta = (values - read_keys).mul_(beta.unsqueeze(-1))
    states.addcmul_(keys.unsqueeze(-1), delta.unsqueeze(-2))
    overlap = (queries * keys).sum(-1, keepdim=True)
    return torch.addcmul(read_queries, overlap, delta)
