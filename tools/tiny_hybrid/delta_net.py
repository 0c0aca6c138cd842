"""Linear attention (Gated DeltaNet) for training."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny_hybrid.delta_rule import gated_delta_rule
from tools.tiny_hybrid.fused_projection import project
from tools.tiny_hybrid.norm import GatedNorm
from tools.tiny_hybrid.shape import Shape


class DeltaNet(nn.Module):
    """Causal convolution, gated delta rule, gated norm. Names are those of the checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        channels = 2 * shape.key_size + shape.value_size
        heads = shape.linear_num_value_heads
        self.conv1d = nn.Conv1d(
            channels,
            channels,
            shape.conv_kernel,
            groups=channels,
            padding=shape.conv_kernel - 1,
            bias=False,
        )
        self.in_proj_qkv = nn.Linear(shape.hidden_size, channels, bias=False)
        self.in_proj_z = nn.Linear(shape.hidden_size, shape.value_size, bias=False)
        self.in_proj_b = nn.Linear(shape.hidden_size, heads, bias=False)
        self.in_proj_a = nn.Linear(shape.hidden_size, heads, bias=False)
        # Steps between 0.001 and 0.1 and rates between 1 and 4: at the start, heads remember 2 to 1000 tokens.
        steps = torch.exp(torch.linspace(math.log(1e-3), math.log(1e-1), heads))
        self.dt_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))
        self.A_log = nn.Parameter(torch.linspace(0.0, math.log(4.0), heads))
        self.norm = GatedNorm(shape.linear_head_dim, shape.norm_eps)
        self.out_proj = nn.Linear(shape.value_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens of x [batch, num_tokens, hidden_size]; num_tokens is a multiple of the chunk."""
        batch, num_tokens, _ = x.shape
        shape = self.shape
        joined, gate, write, forget = project(
            x, self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a
        )
        mixed = functional.silu(_convolve(joined, self.conv1d.weight))
        parts = mixed.split([shape.key_size, shape.key_size, shape.value_size], -1)
        query, key, value = (
            part.view(batch, num_tokens, -1, shape.linear_head_dim).transpose(1, 2)
            for part in parts
        )
        decay = -self.A_log.exp() * functional.softplus(forget + self.dt_bias)
        output = gated_delta_rule(
            _unit(query) * shape.linear_head_dim**-0.5,
            _unit(key),
            value,
            log_decay=decay.transpose(1, 2),
            beta=write.sigmoid().transpose(1, 2),
        )
        gate = gate.view(batch, num_tokens, -1, shape.linear_head_dim)
        return self.out_proj(self.norm(output.transpose(1, 2), gate).flatten(2))


def _convolve(x: Tensor, weight: Tensor) -> Tensor:
    """Causal depthwise convolution of x [batch, num_tokens, channels] with weight [channels, 1, kernel].

    A sum of shifted products: on a CPU several times faster than `conv1d` forward and backward.
    """
    num_tokens, kernel = x.shape[1], weight.shape[-1]
    padded = functional.pad(x, (0, 0, kernel - 1, 0))
    result = x * weight[:, 0, -1]
    for tap in range(kernel - 1):
        result = torch.addcmul(result, padded[:, tap : tap + num_tokens], weight[:, 0, tap])
    return result


def _unit(x: Tensor) -> Tensor:
    """Scale the last dimension to length one; the epsilon is that of the reference."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
