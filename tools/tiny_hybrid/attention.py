"""Gated full attention for training, with positions and key weights given by the caller."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny_hybrid.fused_projection import project
from tools.tiny_hybrid.norm import ZeroCentredNorm
from tools.tiny_hybrid.shape import Shape


@dataclass(frozen=True, slots=True)
class Span:
    """What attention has to know about a batch.

    Attributes:
        cosines: [batch, 1, num_tokens, rotary_size].
        sines: like cosines.
        tail_bias: [batch, 1, num_tail, num_tokens], added to the scores of the last num_tail tokens, causal mask
            included; None for plain causal attention.
    """

    cosines: Tensor
    sines: Tensor
    tail_bias: Tensor | None

    @classmethod
    def of(cls, positions: Tensor, shape: Shape, *, tail_bias: Tensor | None = None) -> "Span":
        """Compute the rotations of positions [batch, num_tokens]."""
        steps = torch.arange(0, shape.rotary_size, 2, dtype=torch.float32)
        frequencies = shape.rope_theta ** (-steps / shape.rotary_size)
        angles = positions[:, None, :, None].float() * frequencies
        angles = torch.cat([angles, angles], -1)
        return cls(angles.cos(), angles.sin(), tail_bias)

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate the first channels of each head of x [batch, heads, num_tokens, head_dim]."""
        size = self.cosines.shape[-1]
        turned, kept = x[..., :size], x[..., size:]
        first, second = turned.chunk(2, -1)
        turned = turned * self.cosines + torch.cat([-second, first], -1) * self.sines
        return torch.cat([turned, kept], -1)


class Attention(nn.Module):
    """Attention with normalized queries and keys, partial rotation and a gated output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.num_attention_heads * shape.head_dim
        kv_width = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, 2 * width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)
        self.q_norm = ZeroCentredNorm(shape.head_dim, shape.norm_eps)
        self.k_norm = ZeroCentredNorm(shape.head_dim, shape.norm_eps)

    def forward(self, x: Tensor, span: Span) -> Tensor:
        """Mix tokens of x [batch, num_tokens, hidden_size]."""
        batch, num_tokens, _ = x.shape
        shape = self.shape
        joined, key, value = project(x, self.q_proj, self.k_proj, self.v_proj)
        query, gate = joined.view(batch, num_tokens, -1, 2 * shape.head_dim).chunk(2, -1)
        query = span.rotate(self.q_norm(query).transpose(1, 2))
        key = self.k_norm(key.view(batch, num_tokens, -1, shape.head_dim))
        key = span.rotate(key.transpose(1, 2))
        value = value.view(batch, num_tokens, -1, shape.head_dim).transpose(1, 2)
        repeats = shape.num_attention_heads // shape.num_key_value_heads
        key, value = (t.repeat_interleave(repeats, 1) for t in (key, value))
        mixed = _attend(query, key, value, span.tail_bias)
        mixed = mixed.transpose(1, 2).reshape(batch, num_tokens, -1)
        return self.o_proj(mixed * gate.reshape(batch, num_tokens, -1).sigmoid())


def _attend(query: Tensor, key: Tensor, value: Tensor, tail_bias: Tensor | None) -> Tensor:
    attend = functional.scaled_dot_product_attention
    if tail_bias is None:
        return attend(query, key, value, is_causal=True)
    head = query.shape[2] - tail_bias.shape[2]
    first = attend(query[:, :, :head], key[:, :, :head], value[:, :, :head], is_causal=True)
    last = attend(query[:, :, head:], key, value, attn_mask=tail_bias)
    return torch.cat([first, last], 2)
