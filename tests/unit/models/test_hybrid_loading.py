"""Hybrid checkpoints in every form they come in arrive whole, or an error says which tensor is wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from ninfer.api.errors import ModelError
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.random_model import RandomWeights, random_model, tiny_config
from ninfer.models.resolve import ModelSource

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
LAYER = "model.layers.0.linear_attn."


def logits(model):
    kv, states = KvPool(model.kv_spec, 1), StatePool(model.state_layout, 1)
    batch = ForwardBatch.of(list(range(20)), [Segment(0, 20, 0, ((0, 1),), 0)])
    return model.logits(model.forward(batch, kv, states))


def raw_config(config):
    delta = config.delta_net
    raw = {
        "model_type": config.family,
        "num_hidden_layers": config.num_layers,
        "layer_types": list(config.layer_kinds),
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_context_tokens,
        "rope_theta": config.rope_theta,
        "linear_num_key_heads": delta.num_key_heads,
        "linear_num_value_heads": delta.num_value_heads,
        "linear_key_head_dim": delta.key_dim,
        "linear_value_head_dim": delta.value_dim,
        "linear_conv_kernel_dim": delta.window,
    }
    if config.experts is not None:
        raw |= {
            "num_experts": config.experts.num_experts,
            "num_experts_per_tok": config.experts.num_chosen,
            "moe_intermediate_size": config.experts.intermediate_size,
            "shared_expert_intermediate_size": config.experts.shared_intermediate_size,
            "mlp_only_layers": sorted(set(range(config.num_layers)) - config.experts.layers),
        }
    return raw


def tiny(family):
    """The tiny model; in `qwen3_5_moe` every layer has experts."""
    config = tiny_config(family)
    if family != "qwen3_5_moe":
        return config
    values = {name: getattr(config, name) for name in config.__slots__}
    experts = {name: getattr(config.experts, name) for name in config.experts.__slots__}
    experts["layers"] = frozenset(range(config.num_layers))
    return type(config)(**{**values, "experts": type(config.experts)(**experts)})


def write(path, config, change=lambda tensors: None, wrap=lambda raw: raw):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(wrap(raw_config(config))))
    weights = RandomWeights(config, seed=3)
    tensors = {name: weights.read_tensor(name).float().contiguous() for name in weights.shapes}
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    return ModelSource("hf", path, "tiny")


def fuse_experts(tensors):
    """As released qwen3_5_moe checkpoints have them: one tensor for all experts of a layer."""
    for layer in range(4):
        prefix = f"model.layers.{layer}.mlp.experts."
        names = [f"{prefix}{i}." for i in range(5)]
        gate, up, down = (
            torch.stack([tensors.pop(f"{name}{part}_proj.weight") for name in names])
            for part in ("gate", "up", "down")
        )
        tensors[prefix + "gate_up_proj"] = torch.cat((gate, up), dim=1).contiguous()
        tensors[prefix + "down_proj"] = down


def wrap_tensors(tensors):
    for name in [name for name in tensors if name.startswith("model.")]:
        tensors[name.replace("model.", "model.language_model.", 1)] = tensors.pop(name)
    tensors["model.visual.blocks.0.attn.proj.weight"] = torch.zeros(3, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_holds_the_same_model_as_its_tensors(tmp_path, family):
    config = tiny(family)
    model = load_model(write(tmp_path / "m", config), dtype=torch.float32)
    assert torch.equal(logits(model), logits(random_model(config, 3)))


def test_a_checkpoint_wrapped_for_images_holds_the_same_model(tmp_path):
    config = tiny("qwen3_5")
    source = write(
        tmp_path / "m",
        config,
        wrap_tensors,
        lambda raw: {"model_type": "qwen3_5", "text_config": raw, "vision_config": {}},
    )
    model = load_model(source, dtype=torch.float32)
    assert torch.equal(logits(model), logits(random_model(config, 3)))


def test_experts_in_one_tensor_are_the_same_model(tmp_path):
    config = tiny("qwen3_5_moe")
    model = load_model(write(tmp_path / "m", config, fuse_experts), dtype=torch.float32)
    assert torch.equal(logits(model), logits(random_model(config, 3)))


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        (
            "qwen3_5",
            lambda t: t.pop(LAYER + "A_log"),
            r"layers.0.linear_attn.A_log: expected shape \[4\], it is missing",
        ),
        (
            "qwen3_5",
            lambda t: t.update({LAYER + "conv1d.weight": torch.zeros(80, 4)}),
            r"conv1d.weight: expected shape \[80, 1, 4\], found \[80, 4\]",
        ),
        (
            "qwen3_next",
            lambda t: t.update({LAYER + "in_proj_a.weight": torch.zeros(4, 48)}),
            r"in_proj_a.weight: not part of a qwen3_next model, found shape \[4, 48\]",
        ),
        (
            "qwen3_next",
            lambda t: t.pop("model.layers.2.mlp.experts.4.up_proj.weight"),
            r"layers.2.mlp.experts.4.up_proj.weight: expected shape \[24, 48\], it is missing",
        ),
        (
            "qwen3_5_moe",
            lambda t: (
                fuse_experts(t),
                t.update({"model.layers.1.mlp.experts.down_proj": torch.zeros(4, 48, 24)}),
            ),
            r"layers.1.mlp.experts.down_proj: expected shape \[5, 48, 24\], found \[4, 48, 24\]",
        ),
        (
            "qwen3_5",
            lambda t: t.update({"model.layers.3.self_attn.q_proj.weight": torch.zeros(64, 48)}),
            r"self_attn.q_proj.weight: expected shape \[128, 48\], found \[64, 48\]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named_with_their_shapes(tmp_path, family, change, message):
    with pytest.raises(ModelError, match=message):
        load_model(write(tmp_path / "m", tiny(family), change), dtype=torch.float32)
