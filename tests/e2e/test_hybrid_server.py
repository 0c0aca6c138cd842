"""A real `ninfer serve --model DIR` with a tiny random hybrid model: turns, tiers, restarts."""

import pytest
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tests.e2e.conftest import Client, cached, text, user
from tests.unit.text.conftest import byte_backend
from tools.local_server import LocalServer

pytestmark = pytest.mark.slow

DEVICE_TOKENS = 4096
NAMES = ("oak", "elm", "ash", "fir", "yew", "ivy", "fig", "bay", "box", "may")


def write_model(folder):
    """A checkpoint of three megabytes with a byte tokenizer; its answers are noise, but always the same."""
    torch.manual_seed(11)
    config = Qwen3_5TextConfig(
        vocab_size=288,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=6,
        layer_types=["linear_attention", "linear_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=32,
        max_position_embeddings=8192,
        initializer_range=0.2,
        eos_token_id=287,
    )
    Qwen3_5ForCausalLM(config).save_pretrained(folder)
    byte_backend().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory, cache_dir):
    folder = write_model(tmp_path_factory.mktemp("hybrid"))
    server = LocalServer(
        tmp_path_factory.mktemp("served"),
        device_tokens=DEVICE_TOKENS,
        host_tokens=256,
        disk_bytes=1 << 28,
        cache_dir=cache_dir,
        settings=(
            f"model.name={folder}",
            "model.dtype=float32",
            "model.threads=1",
            "server.served_name=smollm2",
            "engine.prefill_chunk_tokens=256",
            "engine.state_images=6",
            # This model computes faster than a busy disk reads: prices would decide, and this is about restoring.
            "cache.policy=lru",
        ),
    )
    server.start()
    yield server
    server.kill()


def test_a_second_turn_comes_from_cache(client):
    question = text("plum", 600)
    first, _ = client.chat(question, max_tokens=24)
    messages = [user(question), first["choices"][0]["message"], user("And then?")]
    second, record = client.chat(messages, max_tokens=8)
    assert cached(second) >= first["usage"]["prompt_tokens"] - 64
    assert record["result"]["computed_prefill_tokens"] < 200
    cold, _ = client.chat(messages, max_tokens=8, cache=False)
    assert second["choices"][0]["message"] == cold["choices"][0]["message"]


def test_contexts_pushed_off_the_device_come_back_from_every_tier(client, server):
    questions = [text(name, 560) for name in NAMES]
    cold = [client.chat(question, max_tokens=12)[0] for question in questions]
    restored = {"host": 0, "disk": 0}
    for question, before in zip(questions, cold, strict=True):
        warm, record = client.chat(question, max_tokens=12)
        assert cached(warm) >= warm["usage"]["prompt_tokens"] - 64
        assert warm["choices"][0]["message"] == before["choices"][0]["message"]
        for tier, num_bytes in record["restored_bytes"].items():
            restored[tier] += num_bytes
    assert restored["host"] > 0
    assert restored["disk"] > 0


def test_contexts_survive_a_restart(server):
    client = Client(server)
    question = text("quince", 700)
    before, _ = client.chat(question, max_tokens=12)
    client.close()
    server.stop()
    server.start()
    client = Client(server)
    after, record = client.chat(question, max_tokens=12)
    client.close()
    assert cached(after) >= after["usage"]["prompt_tokens"] - 64
    assert record["restored_bytes"]["disk"] > 0
    assert after["choices"][0]["message"] == before["choices"][0]["message"]
