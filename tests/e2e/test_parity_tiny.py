"""Small random checkpoints in float64: the same logits as `transformers`, however the work is cut up."""

import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from ninfer.kernels.kv_pool import KvPool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model

SHAPE = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.3,
    "attn_implementation": "sdpa",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"head_dim": 16}),
    "llama_tied_8_wide": (
        LlamaForCausalLM,
        LlamaConfig,
        {"head_dim": 8, "tie_word_embeddings": True},
    ),
    "llama_bias": (LlamaForCausalLM, LlamaConfig, {"head_dim": 16, "attention_bias": True}),
    "llama3_rope": (
        LlamaForCausalLM,
        LlamaConfig,
        {"head_dim": 16, "rope_parameters": LLAMA3_ROPE},
    ),
    "linear_rope": (
        LlamaForCausalLM,
        LlamaConfig,
        {
            "head_dim": 16,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 5e4, "factor": 4.0},
        },
    ),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
    "qwen3_tied": (
        Qwen3ForCausalLM,
        Qwen3Config,
        {"head_dim": 32, "tie_word_embeddings": True},
    ),
}
NUM_TOKENS = 300


@pytest.fixture(params=sorted(MODELS))
def pair(request, tmp_path, monkeypatch):
    """A reference model in float64 and ours, loaded from the files that the reference wrote."""
    model_class, config_class, extra = MODELS[request.param]
    torch.manual_seed(5)
    reference = model_class(config_class(**SHAPE, **extra)).double().eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    reference.save_pretrained(tmp_path, max_shard_size="60KB")

    def exact_norm(self, hidden_states):
        # The reference normalises in float32 even in a float64 model.
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)

    monkeypatch.setattr(LlamaRMSNorm, "forward", exact_norm)
    monkeypatch.setattr(Qwen3RMSNorm, "forward", exact_norm)
    return reference, load_model(resolve_model(str(tmp_path)), dtype=torch.float64)


def prompt(seed, num_tokens=NUM_TOKENS):
    return random.Random(seed).choices(range(SHAPE["vocab_size"]), k=num_tokens)


@torch.inference_mode()
def reference_logits(reference, token_ids):
    return reference(torch.tensor([token_ids])).logits[0]


def logits_in_chunks(model, kv, token_ids, runs, bounds):
    rows = []
    for start, end in zip([0, *bounds], [*bounds, len(token_ids)], strict=True):
        segment = Segment(0, end - start, start, runs)
        rows.append(
            model.logits(model.forward(ForwardBatch.of(token_ids[start:end], [segment]), kv))
        )
    return torch.cat(rows)


def test_logits_equal_the_reference(pair):
    reference, model = pair
    token_ids = prompt(1)
    ours = logits_in_chunks(model, KvPool(model.kv_spec, 6), token_ids, ((0, 5),), [])
    torch.testing.assert_close(ours, reference_logits(reference, token_ids), rtol=0, atol=1e-9)


def test_prefill_split_anywhere_over_scattered_pages_equals_the_reference(pair):
    reference, model = pair
    token_ids = prompt(2)
    expected = reference_logits(reference, token_ids)
    rng = random.Random(3)
    for pages in ([4, 5, 1, 0, 9], [9, 7, 5, 3, 1], [2, 3, 4, 8, 9]):
        runs = tuple((page, 1) for page in pages)
        bounds = sorted(rng.sample(range(1, NUM_TOKENS), 6))
        bounds = sorted({*bounds, 64, 65, 66, NUM_TOKENS - 1})
        ours = logits_in_chunks(model, KvPool(model.kv_spec, 10), token_ids, runs, bounds)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


def test_lanes_together_equal_lanes_alone(pair):
    reference, model = pair
    lengths = [70, 129, 3, 200]
    prompts = [prompt(seed, n) for seed, n in enumerate(lengths)]
    runs = [((0, 2),), ((2, 1), (9, 1), (4, 1)), ((3, 1),), ((5, 4),)]
    kv = KvPool(model.kv_spec, 10)
    # Lane 0 decodes its last token while the others prefill, lane 1 the second part of its prompt.
    logits_in_chunks(model, kv, prompts[0][:-1], runs[0], [])
    logits_in_chunks(model, kv, prompts[1][:50], runs[1], [])
    token_ids = [prompts[0][-1], *prompts[1][50:], *prompts[2], *prompts[3]]
    segments = [
        Segment(0, 1, 69, runs[0]),
        Segment(1, 79, 50, runs[1]),
        Segment(80, 3, 0, runs[2]),
        Segment(83, 200, 0, runs[3]),
    ]
    ours = model.logits(model.forward(ForwardBatch.of(token_ids, segments), kv))
    for segment, token_ids in zip(segments, prompts, strict=True):
        expected = reference_logits(reference, token_ids)[-segment.num_rows :]
        rows = ours[segment.row_start : segment.row_start + segment.num_rows]
        torch.testing.assert_close(rows, expected, rtol=0, atol=1e-9)


def test_decoding_lanes_together_equals_the_reference(pair):
    reference, model = pair
    prompts = [prompt(seed, n) for seed, n in enumerate([60, 1, 130])]
    runs = [((0, 1), (6, 1)), ((5, 1),), ((1, 3),)]
    kv = KvPool(model.kv_spec, 7)
    for token_ids, pages in zip(prompts, runs, strict=True):
        logits_in_chunks(model, kv, token_ids, pages, [])
    for step in range(8):
        new_ids = [(17 * step + lane) % SHAPE["vocab_size"] for lane in range(3)]
        segments = [Segment(lane, 1, len(ids), runs[lane]) for lane, ids in enumerate(prompts)]
        ours = model.logits(model.forward(ForwardBatch.of(new_ids, segments), kv))
        for lane, token_id in enumerate(new_ids):
            prompts[lane].append(token_id)
            expected = reference_logits(reference, prompts[lane])[-1]
            torch.testing.assert_close(ours[lane], expected, rtol=0, atol=1e-9)
