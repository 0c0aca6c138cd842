"""The chunked delta rule is the recurrence it stands for."""

import pytest
import torch

from tools.tiny_hybrid.delta_rule import CHUNK_TOKENS, gated_delta_rule


def recurrent(query, key, value, *, log_decay, beta):
    """One token after the other, as the formula says."""
    repeats = value.shape[1] // key.shape[1]
    query, key = (t.repeat_interleave(repeats, 1) for t in (query, key))
    state = torch.zeros(*value.shape[:2], key.shape[-1], value.shape[-1], dtype=value.dtype)
    outputs = []
    for t in range(value.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        k, v = key[:, :, t], value[:, :, t]
        old = torch.einsum("bhkv,bhk->bhv", state, k)
        state = state + torch.einsum("bhk,bhv->bhkv", k, (v - old) * beta[:, :, t, None])
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, query[:, :, t]))
    return torch.stack(outputs, 2)


@pytest.mark.parametrize("num_chunks", [1, 2, 5])
@pytest.mark.parametrize("key_heads", [1, 2])
def test_chunks_equal_single_steps(num_chunks, key_heads):
    torch.manual_seed(num_chunks)
    num_tokens = num_chunks * CHUNK_TOKENS
    unit = torch.nn.functional.normalize
    query = unit(torch.randn(2, key_heads, num_tokens, 8, dtype=torch.float64), dim=-1)
    key = unit(torch.randn(2, key_heads, num_tokens, 8, dtype=torch.float64), dim=-1)
    value = torch.randn(2, 2, num_tokens, 8, dtype=torch.float64)
    gates = {
        "log_decay": -torch.rand(2, 2, num_tokens, dtype=torch.float64),
        "beta": torch.rand(2, 2, num_tokens, dtype=torch.float64),
    }
    expected = recurrent(query, key, value, **gates)
    assert (gated_delta_rule(query, key, value, **gates) - expected).abs().max() < 1e-12
