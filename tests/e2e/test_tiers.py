"""Contexts over device, host and disk behind a real server: reuse, restore, restart, tenants, cache off."""

import pytest

from tests.e2e.conftest import cached, text, user

pytestmark = [pytest.mark.model, pytest.mark.slow]


def test_second_turn_comes_from_cache(client):
    question = text("plum", 400)
    first, record = client.chat(question, max_tokens=8)
    assert record["result"]["prefix_reuse_path"] in {"root", "shared_stable_prefix"}
    messages = [user(question), first["choices"][0]["message"], user("And then?")]
    second, record = client.chat(messages, max_tokens=2)
    assert cached(second) >= first["usage"]["prompt_tokens"]
    result = record["result"]
    assert result["prefix_cache_hit_tokens"] == cached(second) == second["timings"]["cache_n"]
    assert result["computed_prefill_tokens"] == second["timings"]["prompt_n"]
    assert result["computed_prefill_tokens"] < 64
    assert record["restored_bytes"] == {"host": 0, "disk": 0}


def test_context_pushed_off_the_device_is_restored(client):
    questions = [text(name, 550) for name in ("oak", "elm", "ash", "fir", "yew")]
    cold = [client.chat(question, max_tokens=4)[0] for question in questions]
    warm, record = client.chat(questions[0], max_tokens=4)
    assert cached(warm) >= warm["usage"]["prompt_tokens"] - 64
    assert sum(record["restored_bytes"].values()) > 0
    assert warm["choices"][0]["message"] == cold[0]["choices"][0]["message"]
    for question in reversed(questions):
        again, _ = client.chat(question)
        assert cached(again) >= again["usage"]["prompt_tokens"] - 64


def test_n_computes_the_prompt_once(client):
    body, record = client.chat(text("kiwi", 500), max_tokens=4, n=3)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in body["choices"]}) == 1
    before = client.metrics()["ninfer_computed_tokens_total"]
    body, record = client.chat(text("lime", 500), max_tokens=4, n=3)
    computed = client.metrics()["ninfer_computed_tokens_total"] - before
    assert record["request"]["num_choices"] == 3
    assert computed <= body["usage"]["prompt_tokens"] + 3 * 5


def test_cache_false_leaves_nothing(client):
    question = text("fig", 300)
    for _ in range(2):
        body, record = client.chat(question, cache=False)
        assert cached(body) == 0
        assert record["result"]["prefix_reuse_path"] == "root"
    body, _ = client.chat(question)
    assert cached(body) < 64, "only the start that all conversations share"


def test_tenants_never_share(client):
    question = text("pear", 300)
    client.chat(question, cache_salt="a")
    for salt in ({"cache_salt": "b"}, {}):
        body, _ = client.chat(question, **salt)
        assert cached(body) < 64
    body, _ = client.chat(question, cache_salt="a")
    assert cached(body) >= body["usage"]["prompt_tokens"] - 64


def test_health_and_metrics(client):
    assert client.http.get("/health").json()["status"] == "ok"
    metrics = client.metrics()
    assert metrics["ninfer_cached_prompt_tokens_total"] > 0
    assert metrics['ninfer_tier_read_bytes_total{tier="host"}'] > 0
    assert metrics["ninfer_running_requests"] == 0
    assert metrics["ninfer_device_private_pages"] == 0
