"""First weights: layers that already copy, badly. Knows nothing about training.

From random weights, a model this small needs millions of tokens until attention finds out that looking back pays. So
the first weights lean towards it: a linear layer keys each value by the token before it and reads it by the token at hand
(what followed this token last time?), and also notes the token before; attention compares the token at hand with those
notes. All of it is noisy and free to change.

Source: Trockman, Kolter, "Mimetic initialization of self-attention layers", 2023, for the idea.
"""

import torch
from torch import Tensor, nn

from tools.tiny_hybrid.attention import Attention
from tools.tiny_hybrid.delta_net import DeltaNet

_NOTE_SCALE = 0.5
_GUESS_SCALE = 0.1
_COPY_SCALE = 1.0
_NOISE = 0.1
_SHARPNESS = 0.5
ALWAYS = 0
"""Channel of the embedding that is the same for every token at first: it stands in for the biases there are none of."""


def orthogonal_matrix(num_rows: int, num_columns: int, generator: torch.Generator) -> Tensor:
    """Draw a matrix whose rows, or columns if there are more rows, are orthonormal."""
    return nn.init.orthogonal_(torch.empty(num_rows, num_columns), generator=generator)


@torch.no_grad()
def lean_linear(layer: DeltaNet, notes: Tensor, generator: torch.Generator) -> None:
    """Let the first key head predict and the second take notes.

    Args:
        layer: changed in place.
        notes: [hidden_size, hidden_size], rotation under which the token before is noted.
        generator: of noise.

    The first half of the value heads belongs to the first half of the key heads.
    """
    shape = layer.shape
    size, keys = shape.linear_head_dim, shape.key_size
    query, key, value = layer.in_proj_qkv.weight.split([keys, keys, shape.value_size])
    key.copy_(query)
    turn = orthogonal_matrix(shape.value_size, shape.hidden_size, generator)
    value.copy_(turn)
    taps = layer.conv1d.weight[:, 0]
    taps.mul_(_NOISE)
    current, before = taps[:, -1], taps[:, -2]
    predicting = torch.arange(len(taps)) % keys < size
    is_key = (torch.arange(len(taps)) >= keys) & (torch.arange(len(taps)) < 2 * keys)
    half = shape.value_size // 2
    is_note = torch.arange(len(taps)) >= 2 * keys + half
    shifted = (is_key & predicting) | is_note
    current += (~shifted).float()
    before += shifted.float()
    # Notes are written and read under one constant key, so the last one replaces those before.
    query[size:] *= _NOISE
    query[size:, ALWAYS] = torch.randn(keys - size, generator=generator)
    key[size:] = query[size:]
    layer.in_proj_b.weight[shape.linear_num_value_heads // 2 :, ALWAYS] = 1.5
    layer.in_proj_z.weight.mul_(_NOISE * 3)
    layer.in_proj_z.weight[:, ALWAYS] = 1.0
    layer.out_proj.weight[:, :half] = _GUESS_SCALE * turn[:half].T
    layer.out_proj.weight[:, half:] = _NOTE_SCALE * notes @ turn[half:].T


@torch.no_grad()
def lean_attention(layer: Attention, notes: Tensor, generator: torch.Generator) -> None:
    """Let the first query head look for notes of the token at hand, and all heads copy what they find.

    Args:
        layer: changed in place.
        notes: rotation under which the token before is noted.
        generator: of noise.
    """
    shape = layer.shape
    size = shape.head_dim
    look = orthogonal_matrix(size, shape.hidden_size, generator)
    layer.q_proj.weight[:size] = look
    layer.k_proj.weight[:size] = look @ notes.T
    turn = orthogonal_matrix(size, shape.hidden_size, generator)
    layer.q_norm.weight.fill_(_SHARPNESS)
    layer.k_norm.weight.fill_(_SHARPNESS)
    layer.v_proj.weight[:size] = turn
    for head in range(shape.num_attention_heads):
        layer.o_proj.weight[:, head * size : (head + 1) * size] = _COPY_SCALE * turn.T
