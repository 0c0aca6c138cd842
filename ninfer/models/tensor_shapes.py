"""Which tensors a model consists of, under the names of Hugging Face checkpoints. Knows nothing about files."""

from typing import Final

from ninfer.models.config import ModelConfig
from ninfer.models.hybrid_config import DeltaNetConfig, ExpertsConfig

EMBEDDING: Final = "model.embed_tokens.weight"
OUTPUT: Final = "lm_head.weight"
FINAL_NORM: Final = "model.norm.weight"
FUSED_GATE_UP: Final = "mlp.experts.gate_up_proj"
"""Gate and up projections of all experts in one tensor; other checkpoints have two per expert."""
FUSED_DOWN: Final = "mlp.experts.down_proj"

DRAFT_LAYER: Final = "mtp.layers.0."
"""Begins the names of the one layer of a head that predicts several tokens."""

Shapes = dict[str, tuple[int, ...]]


def expected_shapes(config: ModelConfig, *, has_fused_experts: bool = False) -> Shapes:
    """List the tensors of a model.

    Args:
        config: shape of the model.
        has_fused_experts: the weights of all experts of a layer are one tensor.
    """
    hidden = config.hidden_size
    shapes: Shapes = {EMBEDDING: (config.vocab_size, hidden), FINAL_NORM: (hidden,)}
    if not config.tie_embeddings:
        shapes[OUTPUT] = (config.vocab_size, hidden)
    delta_layers = set(config.delta_layers)
    for layer in range(config.num_layers):
        parts: Shapes = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        if layer in delta_layers and config.delta_net is not None:
            parts |= _delta_net(config, config.delta_net)
        else:
            parts |= _attention(config)
        if config.experts is not None and config.has_experts(layer):
            parts |= _experts(hidden, config.experts, has_fused_experts=has_fused_experts)
        else:
            parts |= _feed_forward("mlp", hidden, config.intermediate_size)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return shapes


def draft_head_shapes(config: ModelConfig, *, has_fused_experts: bool = False) -> Shapes:
    """List the tensors of a model's head that predicts several tokens; see `expected_shapes`."""
    hidden = config.hidden_size
    parts: Shapes = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        **_attention(config),
    }
    if config.experts is not None:
        parts |= _experts(hidden, config.experts, has_fused_experts=has_fused_experts)
    else:
        parts |= _feed_forward("mlp", hidden, config.intermediate_size)
    return {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.norm.weight": (hidden,),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        **{f"{DRAFT_LAYER}{name}": shape for name, shape in parts.items()},
    }


def _attention(config: ModelConfig) -> Shapes:
    hidden = config.hidden_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    inputs = 2 * queries if config.attention_gate else queries
    shapes: Shapes = {
        "self_attn.q_proj.weight": (inputs, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
    }
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    if config.attention_bias:
        shapes["self_attn.q_proj.bias"] = (inputs,)
        shapes["self_attn.k_proj.bias"] = (keys,)
        shapes["self_attn.v_proj.bias"] = (keys,)
        shapes["self_attn.o_proj.bias"] = (hidden,)
    return shapes


def _delta_net(config: ModelConfig, delta: DeltaNetConfig) -> Shapes:
    hidden, heads = config.hidden_size, delta.num_value_heads
    shapes: Shapes = {
        "linear_attn.conv1d.weight": (delta.conv_width, 1, delta.window),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.A_log": (heads,),
        "linear_attn.norm.weight": (delta.value_dim,),
        "linear_attn.out_proj.weight": (hidden, delta.values_width),
    }
    if config.family == "qwen3_next":
        width = delta.conv_width + delta.values_width
        shapes["linear_attn.in_proj_qkvz.weight"] = (width, hidden)
        shapes["linear_attn.in_proj_ba.weight"] = (2 * heads, hidden)
    else:
        shapes["linear_attn.in_proj_qkv.weight"] = (delta.conv_width, hidden)
        shapes["linear_attn.in_proj_z.weight"] = (delta.values_width, hidden)
        shapes["linear_attn.in_proj_b.weight"] = (heads, hidden)
        shapes["linear_attn.in_proj_a.weight"] = (heads, hidden)
    return shapes


def _experts(hidden: int, experts: ExpertsConfig, *, has_fused_experts: bool) -> Shapes:
    count, inner = experts.num_experts, experts.intermediate_size
    shapes: Shapes = {
        "mlp.gate.weight": (count, hidden),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }
    shapes |= _feed_forward("mlp.shared_expert", hidden, experts.shared_intermediate_size)
    if has_fused_experts:
        shapes[FUSED_GATE_UP] = (count, 2 * inner, hidden)
        shapes[FUSED_DOWN] = (count, hidden, inner)
    else:
        for index in range(count):
            shapes |= _feed_forward(f"mlp.experts.{index}", hidden, inner)
    return shapes


def _feed_forward(prefix: str, hidden: int, inner: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (inner, hidden),
        f"{prefix}.up_proj.weight": (inner, hidden),
        f"{prefix}.down_proj.weight": (hidden, inner),
    }
