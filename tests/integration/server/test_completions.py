"""Completions, models, tokens, health and metrics over the fake engine."""

import pytest

from ninfer.obs.health import HealthReport
from tests.integration.server.conftest import events_of


def test_a_prompt_comes_as_text_or_tokens_alone_or_as_a_list(live):
    ids = live.engine.encode("ab")
    for prompt in ("ab", ["ab"], ids, [ids]):
        live.engine.submitted.clear()
        answer = live.complete(prompt, max_tokens=5).json()
        assert answer["object"] == "text_completion"
        assert [choice["text"] for choice in answer["choices"]] == ["Hello"]
        assert answer["choices"][0]["finish_reason"] == "length"
        assert [list(request.prompt_token_ids) for request in live.engine.submitted] == [ids]


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(live):
    answer = live.complete(["ab", "cde"], n=2, seed=1, max_tokens=100).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    first, second, third, fourth = live.engine.submitted
    assert second.fork_of == first.request_id
    assert third.fork_of is None
    assert fourth.fork_of == third.request_id
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 48


def test_sixteen_tokens_are_the_default(live):
    live.complete(ignore_eos=True)
    assert live.engine.submitted[0].max_tokens == 16


@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_is_echoed(live, stream):
    response = live.complete(["ab", "cd"], echo=True, max_tokens=2, stream=stream)
    texts = {0: "", 1: ""}
    answers = events_of(response)[:-1] if stream else [response.json()]
    for answer in answers:
        for choice in answer["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "abHe", 1: "cdHe"}
    ids = live.engine.encode("ab")
    assert live.complete(ids, echo=True, max_tokens=0).json()["choices"][0]["text"] == "ab"


def test_a_stream_says_the_same_as_a_whole_answer(live):
    events = events_of(
        live.complete(stream=True, stream_options={"include_usage": True}, max_tokens=50)
    )
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 12
    assert events[-2]["timings"]["cache_n"] == 1
    choices = [choice for event in events[:-2] for choice in event["choices"]]
    assert "".join(choice["text"] for choice in choices) == "Hello world"
    assert [choice["finish_reason"] for choice in choices][-1] == "stop"
    assert all("usage" not in event for event in events_of(live.complete(stream=True))[:-1])


def test_logprobs_have_the_shape_of_completions(live):
    live.engine.text = "aé"
    answer = live.complete(logprobs=3, max_tokens=3).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["token_logprobs"] == [-0.25] * 3
    assert logprobs["text_offset"] == [0, 1, 1]
    assert logprobs["top_logprobs"][0]["a"] == -0.25
    assert min(logprobs["top_logprobs"][0].values()) == -9999.0
    assert live.complete(logprobs=0).json()["choices"][0]["logprobs"]["top_logprobs"][0] == {
        "a": -0.25
    }
    assert live.complete().json()["choices"][0]["logprobs"] is None


def test_the_model_tells_its_context(shared):
    listed = shared.http.get("/v1/models").json()
    assert listed["object"] == "list"
    [model] = listed["data"]
    assert model["id"] == "fake-model"
    assert model["object"] == "model"
    assert model["max_model_len"] == 2048
    assert shared.http.get("/v1/models/fake-model").json() == model


def test_tokenize_and_detokenize_agree_with_completions(shared):
    answer = shared.http.post("/tokenize", json={"prompt": "héy"}).json()
    assert answer["count"] == len(answer["tokens"]) == 4
    assert answer["max_model_len"] == 2048
    assert shared.http.post("/tokenize", json={"content": "héy"}).json() == answer
    text = shared.http.post("/detokenize", json={"tokens": answer["tokens"]}).json()
    assert text == {"prompt": "héy", "content": "héy"}
    messages = [{"role": "user", "content": "hi"}]
    chat = shared.http.post("/tokenize", json={"messages": messages}).json()
    shared.http.post("/v1/chat/completions", json={"messages": messages})
    assert chat["tokens"] == list(shared.engine.submitted[-1].prompt_token_ids)


def test_health_follows_the_engine(live):
    assert live.http.get("/health").json() == {
        "status": "ok",
        "problems": [],
        "model": "fake-model",
    }
    live.engine.report = HealthReport(status="degraded", problems=("disk is full",))
    response = live.http.get("/health")
    assert response.status_code == 200
    assert response.json()["problems"] == ["disk is full"]
    live.engine.is_draining = True
    assert live.http.get("/health").status_code == 503


def test_metrics_are_prometheus_text(live):
    live.chat()
    live.http.get("/v1/nothing/" + "x" * 50)
    response = live.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = response.text.splitlines()
    assert 'ninfer_restored_bytes_total{tier="disk"} 9.0' in lines
    assert "ninfer_running_requests 0.0" in lines
    assert any(
        line.startswith('ninfer_http_requests_total{endpoint="/v1/chat/completions",status="200"}')
        for line in lines
    )
    assert any(
        line.startswith('ninfer_requests_finished_total{finish_reason="stop"}') for line in lines
    )
    assert not any("xxxx" in line for line in lines), "unknown paths are no labels"


def test_request_ids_are_kept_or_made(shared):
    assert (
        shared.http.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"]
        == "mine-1"
    )
    made = shared.http.get("/health", headers={"x-request-id": "bad id"}).headers["x-request-id"]
    assert made.startswith("req-")


@pytest.mark.parametrize("live", [{"cors_origins": ("https://page.example",)}], indirect=True)
def test_cors_is_for_configured_origins(live):
    headers = {"origin": "https://page.example", "access-control-request-method": "POST"}
    answer = live.http.options("/v1/chat/completions", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    headers["origin"] = "https://other.example"
    assert (
        "access-control-allow-origin"
        not in live.http.options("/v1/chat/completions", headers=headers).headers
    )
