"""The model as it is trained: transformers' Qwen3.5 text model and its MTP head, in float32.

Parameters have the names of the checkpoint, so that a state dict is a checkpoint.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny_hybrid.attention import Attention, Span
from tools.tiny_hybrid.copier import ALWAYS, lean_attention, lean_linear, orthogonal_matrix
from tools.tiny_hybrid.delta_net import DeltaNet
from tools.tiny_hybrid.fused_projection import project
from tools.tiny_hybrid.norm import ZeroCentredNorm
from tools.tiny_hybrid.shape import Shape


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token of x [batch, num_tokens, hidden_size]."""
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(functional.silu(gate) * up)


class Layer(nn.Module):
    """One layer: a token mixer and an MLP, each after a norm and around a residual."""

    def __init__(self, shape: Shape, layer_type: str) -> None:
        super().__init__()
        self.is_linear = layer_type == "linear_attention"
        if self.is_linear:
            self.linear_attn = DeltaNet(shape)
        else:
            self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)
        self.post_attention_layernorm = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)

    def forward(self, x: Tensor, span: Span) -> Tensor:
        """Transform x [batch, num_tokens, hidden_size]."""
        normed = self.input_layernorm(x)
        mixed = self.linear_attn(normed) if self.is_linear else self.self_attn(normed, span)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, kind) for kind in shape.layer_types)
        self.norm = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)

    def forward(self, token_ids: Tensor, span: Span) -> Tensor:
        """Give the final hidden states [batch, num_tokens, hidden_size] of token_ids [batch, num_tokens]."""
        x = self.embed_tokens(token_ids)
        for layer in self.layers:
            x = layer(x, span)
        return self.norm(x)


class MtpHead(nn.Module):
    """Predicts the token after the next one from a hidden state and the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layers = nn.ModuleList([Layer(shape, "full_attention")])
        self.norm = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)
        self.pre_fc_norm_embedding = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)
        self.pre_fc_norm_hidden = ZeroCentredNorm(shape.hidden_size, shape.norm_eps)

    def forward(self, hidden: Tensor, embedded: Tensor, span: Span) -> Tensor:
        """Transform hidden states and the embeddings of the tokens that follow, both [batch, num_tokens, hidden_size].

        The embedding comes first in the joined vector, as in published checkpoints.
        """
        embedded = self.pre_fc_norm_embedding(embedded)
        x = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(self.layers[0](x, span))


class TinyHybrid(nn.Module):
    """Trunk and MTP head over one tied embedding."""

    def __init__(self, shape: Shape, *, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.mtp = MtpHead(shape)
        generator = torch.Generator().manual_seed(seed)
        depth = 2 * len(shape.layer_types)
        for name, parameter in self.named_parameters():
            if name.endswith("embed_tokens.weight"):
                # As large as what layers add, or else they drown which token it is.
                nn.init.normal_(parameter, std=0.5, generator=generator)
                nn.init.ones_(parameter[:, ALWAYS])
            elif name.endswith("conv1d.weight"):
                nn.init.normal_(parameter, std=0.3, generator=generator)
            elif parameter.ndim == 2:
                ends = name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight"))
                std = parameter.shape[1] ** -0.5 * (depth**-0.5 if ends else 1.0)
                nn.init.normal_(parameter, std=std, generator=generator)
        for norm in (self.model.norm, self.mtp.norm):
            # The embedding is the output matrix as well: scores should start small.
            nn.init.constant_(norm.weight, -0.9)
        notes = orthogonal_matrix(shape.hidden_size, shape.hidden_size, generator)
        for layer in (*self.model.layers, *self.mtp.layers):
            if layer.is_linear:
                lean_linear(layer.linear_attn, notes, generator)
            else:
                lean_attention(layer.self_attn, notes, generator)

    def logits(self, hidden: Tensor) -> Tensor:
        """Score all tokens for hidden states [..., hidden_size]."""
        return functional.linear(hidden, self.model.embed_tokens.weight)

    def draft_hidden(self, hidden: Tensor, token_ids: Tensor, span: Span) -> Tensor:
        """Run the MTP head over hidden [batch, num_tokens, hidden_size] of token_ids [batch, num_tokens].

        Position t sees hidden state t and token t + 1 and predicts token t + 2. The last position repeats token t,
        for want of a next one; it must not be counted.
        """
        following = torch.cat([token_ids[:, 1:], token_ids[:, -1:]], 1)
        return self.mtp(hidden, self.model.embed_tokens(following), span)
