"""A real `ninfer serve` with a hybrid checkpoint that has an MTP head: drafts, restarts, and what is refused at start."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.e2e.conftest import Client, cached, text, user
from tests.e2e.test_hybrid_server import write_model
from tools.local_server import LocalServer

pytestmark = pytest.mark.slow

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 96, 4, 2, 32, 160


def head_tensors():
    """Random weights of the head of `write_model`'s checkpoint."""
    shapes = {
        "mtp.fc.weight": (HIDDEN, 2 * HIDDEN),
        "mtp.norm.weight": (HIDDEN,),
        "mtp.pre_fc_norm_embedding.weight": (HIDDEN,),
        "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
    }
    layer = {
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (2 * HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        "self_attn.q_norm.weight": (HEAD_DIM,),
        "self_attn.k_norm.weight": (HEAD_DIM,),
        "mlp.gate_proj.weight": (INNER, HIDDEN),
        "mlp.up_proj.weight": (INNER, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INNER),
    }
    shapes |= {f"mtp.layers.0.{name}": shape for name, shape in layer.items()}
    generator = torch.Generator().manual_seed(3)
    return {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write_checkpoint(folder, head):
    write_model(folder)
    path = folder / "model.safetensors"
    save_file(load_file(path) | head, path, metadata={"format": "pt"})
    return folder


def make_server(folder, model, cache_dir, *settings):
    return LocalServer(
        folder,
        device_tokens=2048,
        host_tokens=256,
        disk_bytes=1 << 28,
        cache_dir=cache_dir,
        settings=(
            f"model.name={model}",
            "model.dtype=float32",
            "model.threads=1",
            "server.served_name=smollm2",
            *settings,
        ),
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("with_head"), head_tensors())


def test_a_model_with_a_head_drafts_and_a_restarted_server_drafts_the_same(
    checkpoint, tmp_path, cache_dir
):
    server = make_server(tmp_path, checkpoint, cache_dir)
    server.start()
    try:
        client = Client(server)
        question = [user(text("plum", 300))]
        first, record = client.chat(question, max_tokens=30)
        timings = first["timings"]
        assert timings["draft_n"] > 0
        assert record["result"]["drafted_tokens"] == timings["draft_n"]
        assert len(record["result"]["drafted_by_position"]) == 3
        assert client.metrics()['ninfer_draft_tokens_total{position="1"}'] > 0
        client.close()
        assert server.stop() == 0
        server.start()
        client = Client(server)
        again, record = client.chat(question, max_tokens=30)
        assert cached(again) >= first["usage"]["prompt_tokens"] - 64
        assert record["restored_bytes"]["disk"] > 0
        assert again["choices"][0]["message"] == first["choices"][0]["message"]
        assert again["timings"]["draft_n"] == timings["draft_n"]
        assert again["timings"]["draft_n_accepted"] == timings["draft_n_accepted"]
        client.close()
    finally:
        server.kill()


def without(name):
    return {key: tensor for key, tensor in head_tensors().items() if key != name}


@pytest.mark.parametrize(
    ("head", "settings", "words"),
    [
        (dict, ["spec.decoder=mtp"], "has no multi-token-prediction head"),
        (head_tensors, ["spec.draft_tokens=8"], "drafts 1 to 5"),
        (head_tensors, ["spec.draft_tokens=17"], "spec.draft_tokens"),
        (lambda: without("mtp.fc.weight"), [], "mtp.fc.weight: expected shape [96, 192]"),
        (lambda: without("mtp.fc.weight"), ["spec.decoder=mtp"], "it is missing"),
    ],
    ids=["no head", "8 drafts", "17 drafts", "auto, tensor missing", "mtp, tensor missing"],
)
def test_what_does_not_fit_is_refused_at_start(head, settings, words, tmp_path, cache_dir):
    (tmp_path / "model").mkdir()
    model = write_checkpoint(tmp_path / "model", head())
    server = make_server(tmp_path / "served", model, cache_dir, *settings)
    with pytest.raises(RuntimeError) as caught:
        server.start()
    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)
