"""Configurations of supported models are read, everything else is refused by name."""

import pytest

from ninfer.api.errors import ModelError
from ninfer.models.config import RopeScaling, config_from_gguf, config_from_hf

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": [2, 7],
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 64,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
SHAPES = {"token_embd.weight": (49152, 576)}


def test_a_llama_config_is_read():
    config = config_from_hf(LLAMA)
    assert (config.family, config.num_layers, config.head_dim) == ("llama", 30, 64)
    assert (config.num_kv_heads, config.rope_theta, config.rope_scaling) == (3, 1e5, None)
    assert config.bos_token_ids == (1,)
    assert config.eos_token_ids == (2, 7)
    assert not config.tie_embeddings
    assert not config.qk_norm


def test_a_qwen3_config_has_its_own_head_width_and_normalised_heads():
    config = config_from_hf({**LLAMA, "model_type": "qwen3", "use_sliding_window": False})
    assert config.head_dim == 128
    assert config.qk_norm


def test_old_and_new_spellings_of_rope_scaling_mean_the_same():
    old = config_from_hf({**LLAMA, "rope_scaling": LLAMA3_SCALING})
    new_raw = {k: v for k, v in LLAMA.items() if k not in {"rope_theta", "rope_scaling"}}
    new = config_from_hf({**new_raw, "rope_parameters": {**LLAMA3_SCALING, "rope_theta": 1e5}})
    assert old == new
    assert old.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    linear = config_from_hf({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}})
    assert linear.rope_scaling == RopeScaling("linear", 2.0)


def test_gguf_metadata_means_the_same_as_the_config_file():
    from_gguf = config_from_gguf(GGUF, SHAPES)
    from_hf = config_from_hf({**LLAMA, "tie_word_embeddings": True, "eos_token_id": 2})
    assert from_gguf == from_hf
    untied = config_from_gguf(GGUF, {**SHAPES, "output.weight": (49152, 576)})
    assert not untied.tie_embeddings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported; supported: llama, qwen3"),
        ({"model_type": None}, "'' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"vocab_size": "many"}, "vocab_size must be an integer, got 'many'"),
        ({"num_key_value_heads": 4}, "9 attention heads are not a multiple of 4"),
        ({"head_dim": 63}, "must be even"),
        ({"eos_token_id": ["x"]}, "eos_token_id must be a token id"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(change, message):
    with pytest.raises(ModelError, match=message):
        config_from_hf({**LLAMA, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama.expert_count": 8}, "mixture-of-experts"),
        ({"llama.rope.dimension_count": 32}, "partial rotary"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
    ],
)
def test_gguf_files_that_cannot_be_run_are_refused_by_name(change, message):
    with pytest.raises(ModelError, match=message):
        config_from_gguf({**GGUF, **change}, SHAPES)


QWEN3_5 = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 500,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 2],
    },
    "eos_token_id": 9,
}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 32,
}


def test_a_hybrid_config_tells_its_layers_apart():
    config = config_from_hf(QWEN3_5)
    assert config.family == "qwen3_5"
    assert config.attention_layers == (3, 7)
    assert config.delta_layers == (0, 1, 2, 4, 5, 6)
    assert (config.rotated_dim, config.rope_theta) == (8, 1e7)
    assert config.attention_gate
    assert config.centred_norms
    assert config.experts is None
    assert config.delta_net is not None
    assert config.delta_net.conv_width == 2 * 16 + 64
    listed = config_from_hf({
        **QWEN3_5,
        "layer_types": ["full_attention", *["linear_attention"] * 7],
    })
    assert listed.attention_layers == (0,)
    assert config_from_hf({**QWEN3_5, "full_attention_interval": 2}).attention_layers == (
        1,
        3,
        5,
        7,
    )


def test_a_wrapped_config_is_that_of_its_text_model():
    wrapped = config_from_hf({
        "model_type": "qwen3_5",
        "text_config": QWEN3_5,
        "vision_config": {"depth": 2},
        "tie_word_embeddings": True,
    })
    assert wrapped.tie_embeddings
    assert wrapped == config_from_hf({**QWEN3_5, "tie_word_embeddings": True})


def test_experts_are_read_as_each_family_means_them():
    moe = config_from_hf({
        **QWEN3_5,
        **EXPERTS,
        "model_type": "qwen3_5_moe_text",
        "intermediate_size": None,
        "norm_topk_prob": False,
    })
    assert moe.experts is not None
    assert moe.experts.normalises, "this family does not know the option"
    assert moe.experts.layers == frozenset(range(8))
    sparse = config_from_hf({
        **QWEN3_5,
        **EXPERTS,
        "model_type": "qwen3_next",
        "norm_topk_prob": False,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
    })
    assert sparse.experts is not None
    assert not sparse.experts.normalises
    assert sparse.experts.layers == {1, 5, 7}


def test_fields_of_old_hybrid_files_are_at_the_top():
    raw = {key: value for key, value in QWEN3_5.items() if key != "rope_parameters"}
    config = config_from_hf({**raw, "rope_theta": 1e6, "partial_rotary_factor": 0.5})
    assert (config.rotated_dim, config.rope_theta) == (16, 1e6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 8 layers"),
        ({"layer_types": ["mamba"] * 8}, "layer type 'mamba' is not supported; supported: full_"),
        ({"layer_types": ["linear_attention"] * 8}, "without any full_attention layer"),
        ({"layer_types": "all"}, "layer_types must be a list of strings"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads 3 is not a multiple of"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim must be >= 2, got 1"),
        ({"attn_output_gate": False}, "without an output gate"),
        ({"rope_parameters": {"partial_rotary_factor": 0.1}}, "rotates 3 of 32 head elements"),
        ({"model_type": "qwen3_5_moe_text"}, "num_experts is missing"),
        (
            {"model_type": "qwen3_next", **EXPERTS, "num_experts_per_tok": 9},
            "num_experts_per_tok must be 1 to num_experts 8, got 9",
        ),
        ({"model_type": "qwen3_next", **EXPERTS, "mlp_only_layers": ["x"]}, "a list of integers"),
    ],
)
def test_hybrid_models_that_cannot_be_run_are_refused_by_name(change, message):
    with pytest.raises(ModelError, match=message):
        config_from_hf({**QWEN3_5, **change})


def test_the_error_for_an_unknown_architecture_lists_all_that_are_supported():
    with pytest.raises(ModelError, match="llama, qwen3, qwen3_5, qwen3_5_moe, qwen3_next"):
        config_from_hf({**QWEN3_5, "model_type": "jamba"})
    with pytest.raises(ModelError, match="supported: llama, qwen3$"):
        config_from_gguf({**GGUF, "general.architecture": "qwen3_next"}, SHAPES)


def test_dense_models_with_partial_rotation_are_refused():
    with pytest.raises(ModelError, match="partial rotary"):
        config_from_hf({**LLAMA, "rope_parameters": {"partial_rotary_factor": 0.5}})
