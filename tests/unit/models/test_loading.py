"""Weights arrive whole and in order, or an error says which tensor is wrong."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import save_file

from ninfer.api.errors import ModelError
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.gguf_file import GgufFile
from ninfer.models.gguf_weights import GgufWeights
from ninfer.models.loader import load_config, load_model
from ninfer.models.random_model import RandomWeights, random_model, tiny_config
from ninfer.models.resolve import ModelSource

FAMILIES = ["llama", "qwen3"]


def logits(model):
    kv = KvPool(model.kv_spec, 1)
    batch = ForwardBatch.of(list(range(20)), [Segment(0, 20, 0, ((0, 1),))])
    return model.logits(model.forward(batch, kv))


def write_hf(path, config, *, change=lambda tensors: None, shards=1):
    path.mkdir(exist_ok=True)
    raw = {
        "model_type": config.family,
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_context_tokens,
        "rope_theta": config.rope_theta,
    }
    (path / "config.json").write_text(json.dumps(raw))
    weights = RandomWeights(config, seed=3)
    tensors = {name: weights.read_tensor(name).float().contiguous() for name in weights.shapes}
    change(tensors)
    names = list(tensors)
    if shards == 1:
        save_file(tensors, path / "model.safetensors")
    else:
        parts = {f"model-{i}.safetensors": names[i::shards] for i in range(shards)}
        for file, part in parts.items():
            save_file({name: tensors[name] for name in part}, path / file)
        index = {name: file for file, part in parts.items() for name in part}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return ModelSource("hf", path, "tiny")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_directory_holds_the_same_model_as_its_tensors(tmp_path, family, shards):
    config = tiny_config(family)
    source = write_hf(tmp_path / "m", config, shards=shards)
    seen = []
    model = load_model(source, dtype=torch.float32, progress=lambda *args: seen.append(args))
    assert torch.equal(logits(model), logits(random_model(config, 3)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "missing",
            lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
            r"model.layers.1.mlp.up_proj.weight: expected shape \[96, 48\], it is missing",
        ),
        (
            "extra",
            lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(96, 48)}),
            r"model.layers.2.mlp.up_proj.weight: not part of a llama model, found shape \[96, 48\]",
        ),
        (
            "misshapen",
            lambda t: t.update({"model.norm.weight": torch.zeros(47)}),
            r"model.norm.weight: expected shape \[48\], found \[47\]",
        ),
        (
            "integers",
            lambda t: t.update({"model.norm.weight": torch.zeros(48, dtype=torch.int8)}),
            "model.norm.weight has type torch.int8",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named_with_their_shapes(tmp_path, name, change, message):
    source = write_hf(tmp_path / name, tiny_config(), change=change)
    with pytest.raises(ModelError, match=message):
        load_model(source, dtype=torch.float32)


def test_harmless_extras_are_ignored(tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
        tensors["lm_head.weight"] = torch.zeros(1)

    load_model(write_hf(tmp_path / "m", tiny_config(), change=add), dtype=torch.float32)


def test_a_missing_shard_is_named(tmp_path):
    source = write_hf(tmp_path / "m", tiny_config(), shards=3)
    (source.path / "model-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks model-1.safetensors"):
        load_model(source, dtype=torch.float32)


def test_a_damaged_file_is_a_model_error(tmp_path):
    source = write_hf(tmp_path / "m", tiny_config())
    (source.path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"cannot read .*model.safetensors"):
        load_model(source, dtype=torch.float32)
    (source.path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"cannot read .*config.json"):
        load_config(source)


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def permute(values, num_heads):
    """What llama.cpp does to query and key projections of llama models."""
    heads = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
    return heads.swapaxes(1, 2).reshape(values.shape)


def write_gguf(path, config, kind=GGMLQuantizationType.F32, seed=3):
    """Write a model as llama.cpp's converter would; returns it as loaded from `kind`."""
    writer = gguf.GGUFWriter(path, config.family)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_context_tokens)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_token_list(["a", "b"])
    writer.add_array("test.numbers", [1, 2, 3])
    weights = RandomWeights(config, seed)
    for name in weights.shapes:
        values = weights.read_tensor(name).float().numpy()
        if name in GGUF_NAMES:
            gguf_name = GGUF_NAMES[name]
        else:
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            gguf_name = f"blk.{layer}.{GGUF_PARTS[part]}.weight"
            if config.family == "llama" and part == "self_attn.q_proj":
                values = permute(values, config.num_heads)
            if config.family == "llama" and part == "self_attn.k_proj":
                values = permute(values, config.num_kv_heads)
        if values.ndim == 2 and kind != GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelSource("gguf", path, "tiny")


def gguf_config(family):
    """A tiny shape whose rows are whole blocks of 32."""
    base = tiny_config(family)
    changes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "rms_norm_eps": float(np.float32(1e-6)),
        "bos_token_ids": (),
        "eos_token_ids": (),
    }
    values = {name: getattr(base, name) for name in base.__slots__}
    return type(base)(**{**values, **changes})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_file_holds_the_same_model_as_its_tensors(tmp_path, family):
    config = gguf_config(family)
    source = write_gguf(tmp_path / "m.gguf", config)
    assert load_config(source) == config
    model = load_model(source, dtype=torch.float32)
    assert torch.equal(logits(model), logits(random_model(config, 3)))


@pytest.mark.parametrize(
    "kind",
    [
        GGMLQuantizationType.Q4_1,
        GGMLQuantizationType.Q8_0,
        GGMLQuantizationType.Q4_0,
        GGMLQuantizationType.BF16,
        GGMLQuantizationType.F16,
    ],
)
def test_quantised_tensors_equal_what_the_gguf_package_reads(tmp_path, kind):
    config = gguf_config("qwen3")
    source = write_gguf(tmp_path / "m.gguf", config, kind)
    file = GgufFile(source.path)
    weights = GgufWeights(file, config)
    reader = gguf.GGUFReader(source.path)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    for layer_part in ("attn_q", "ffn_down"):
        tensor = stored[f"blk.1.{layer_part}.weight"]
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        name = "self_attn.q_proj" if layer_part == "attn_q" else "mlp.down_proj"
        weight = weights.read_weight(f"model.layers.1.{name}.weight")
        assert torch.equal(weight.dense.float(), torch.from_numpy(np.array(expected)))
        assert (weight.grid is not None) == (kind == GGMLQuantizationType.Q4_1)
        if weight.grid is not None:
            grid = weight.grid
            rebuilt = grid.codes.view(*grid.scale.shape, 32) * grid.scale.unsqueeze(-1)
            rebuilt = (rebuilt + grid.minimum.unsqueeze(-1)).flatten(1)
            assert torch.equal(rebuilt, weight.dense)


def test_metadata_of_every_kind_is_read(tmp_path):
    source = write_gguf(tmp_path / "m.gguf", gguf_config("llama"))
    metadata = GgufFile(source.path).metadata
    assert metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert metadata["test.numbers"] == [1, 2, 3]


def test_damaged_gguf_files_are_model_errors(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, gguf_config("llama"))
    whole = path.read_bytes()
    cases = {
        b"": "cannot read",
        b"GGML" + whole[4:]: "is not a GGUF file",
        b"GGUF" + struct.pack("<I", 9) + whole[8:]: "version 9",
        whole[:200]: "is damaged",
        whole[:-5000]: "is cut off",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(ModelError, match=message):
            GgufFile(path)
    with pytest.raises(ModelError, match="cannot read"):
        GgufFile(tmp_path / "absent.gguf")


def test_packed_weights_change_results_only_slightly():
    config = gguf_config("llama")
    exact = logits(random_model(config, 3, dtype=torch.bfloat16))
    for name in ("int8", "half", "upcast"):
        policy = LinearPolicy(few=name, max_few_rows=32, many="plain")
        packed = logits(random_model(config, 3, dtype=torch.bfloat16, policy=policy))
        assert (packed - exact).norm() / exact.norm() < 0.05


class NoCompiler:
    """A compiler that numba lets down: at once, or after some operations."""

    def __init__(self, compiler, num_working):
        self._compiler = compiler
        self._num_left = num_working

    def op(self, function):
        self._num_left -= 1
        if self._num_left < 0:
            raise NotImplementedError("no code for this processor")
        return self._compiler.op(function)

    def walk(self):
        return self._compiler.walk()


@pytest.mark.parametrize("num_working", [0, 3])
def test_what_cannot_be_compiled_is_computed_by_torch(tmp_path, compiler, num_working):
    path = tmp_path / "m.gguf"
    write_gguf(path, gguf_config("llama"))
    source = ModelSource("gguf", path, "tiny")
    policy = None if num_working == 0 else LinearPolicy(compiled="bf16", max_compiled_rows=4)
    broken = NoCompiler(compiler, num_working)
    model = load_model(source, dtype=torch.bfloat16, policy=policy, compiler=broken)
    assert model.linear_policy.compiled is None
    assert logits(model).isfinite().all()


def test_a_policy_for_compiled_steps_is_chosen_anew_without_a_compiler(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, gguf_config("llama"))
    policy = LinearPolicy(compiled="bf16", max_compiled_rows=4)
    model = load_model(ModelSource("gguf", path, "tiny"), dtype=torch.bfloat16, policy=policy)
    assert model.linear_policy.compiled is None
