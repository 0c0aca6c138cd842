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
