"""The gated delta rule token by token in plain operators, for comparison. Knows nothing about models."""

import torch
from torch import Tensor


def reference_delta_rule(
    state: Tensor, heads: Tensor, values: Tensor, *, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """Update a state by consecutive tokens; arguments and result as `delta_chunks.delta_chunks`.

    Changes: `state`.
    """
    group = values.shape[1] // heads.shape[2]
    outputs = []
    for row, value in enumerate(values.unbind(0)):
        query, key = heads[row].repeat_interleave(group, dim=1).unbind(0)
        state.mul_(log_decay[row].exp()[:, None, None])
        predicted = torch.einsum("hk,hkv->hv", key, state)
        delta = (value - predicted) * beta[row].unsqueeze(-1)
        state.add_(torch.einsum("hk,hv->hkv", key, delta))
        outputs.append(torch.einsum("hk,hkv->hv", query, state))
    return torch.stack(outputs)
