"""Tiny random hybrid checkpoints of `transformers`, made to compute in float64 throughout."""

import torch
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_next import modeling_qwen3_next

VOCAB_SIZE = 320

SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "layer_types": [
        "linear_attention",
        "linear_attention",
        "full_attention",
        "linear_attention",
        "full_attention",
    ],
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "initializer_range": 0.3,
    "attn_implementation": "sdpa",
}
EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 28,
}
VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 48,
}
MODULES = (modeling_qwen3_5, modeling_qwen3_5_moe, modeling_qwen3_next)


def _wrapped(attn_implementation, **shape):
    text = {**shape, "intermediate_size": 80}
    return Qwen3_5Config(
        text_config=text, vision_config=VISION, attn_implementation=attn_implementation
    )


MODELS = {
    "qwen3_5": (
        Qwen3_5ForCausalLM,
        Qwen3_5TextConfig,
        {"intermediate_size": 80, "linear_conv_kernel_dim": 3},
    ),
    "qwen3_5_bias_tied_all_rotated": (
        Qwen3_5ForCausalLM,
        Qwen3_5TextConfig,
        {
            "intermediate_size": 80,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "linear_num_value_heads": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e4,
                "partial_rotary_factor": 1.0,
            },
        },
    ),
    "qwen3_5_wrapped": (Qwen3_5ForConditionalGeneration, _wrapped, {}),
    "qwen3_5_moe": (Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig, EXPERTS),
    "qwen3_next": (
        Qwen3NextForCausalLM,
        Qwen3NextConfig,
        {"intermediate_size": 80, "mlp_only_layers": [1], **EXPERTS},
    ),
    "qwen3_next_not_normalised": (
        Qwen3NextForCausalLM,
        Qwen3NextConfig,
        {"intermediate_size": 80, "decoder_sparse_step": 2, "norm_topk_prob": False, **EXPERTS},
    ),
}


def write_reference(name, folder, seed=5):
    """Make a random model with weights that matter, write it to a folder and return it in float64."""
    model_class, config_class, extra = MODELS[name]
    torch.manual_seed(seed)
    model = model_class(config_class(**{**SHAPE, **extra})).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            if parameter_name.endswith("A_log"):
                # Decays from nearly none to strong, so that both recent and distant tokens count.
                parameter.copy_(torch.linspace(-6, 0, len(parameter)))
            if parameter_name.endswith(("mlp.gate.weight", "conv1d.weight")):
                parameter.copy_(torch.randn_like(parameter) * 0.5)
    model.save_pretrained(folder, max_shard_size="60KB")
    if "num_experts" in extra:
        model.set_experts_implementation("eager")
    return model


class _DoubleTorch:
    """`torch` whose float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def make_exact(monkeypatch):
    """Make the reference compute norms, decays, routing and the delta rule in float64 in a float64 model.

    It uses float32 there. Call it when all models are made. Rotary angles stay in float32, as the checkpoints were trained with.
    """
    to_float, to_double = torch.Tensor.float, torch.Tensor.double
    for module in MODULES:
        monkeypatch.setattr(module, "torch", _DoubleTorch())
        for name in dir(module):
            if name.endswith("TextRotaryEmbedding") or name == "Qwen3NextRotaryEmbedding":
                _keep_float32(monkeypatch, getattr(module, name), to_float, to_double)
    monkeypatch.setattr(torch.Tensor, "float", to_double)


def _keep_float32(monkeypatch, rotary, to_float, to_double):
    def forward(self, x, position_ids):
        # Text has one position on all three axes of the multimodal rotation.
        positions = position_ids[0] if position_ids.ndim == 3 else position_ids
        angles = to_float(positions[..., None]) * to_float(self.inv_freq)
        angles = torch.cat((angles, angles), dim=-1)
        return to_double(angles.cos()), to_double(angles.sin())

    monkeypatch.setattr(rotary, "forward", forward)
