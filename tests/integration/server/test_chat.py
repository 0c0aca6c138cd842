"""Chat completions over the fake engine: fields, streams, tools, reasoning."""

import json

import pytest

from ninfer.core.request import FinishReason
from ninfer.core.retention import Retention
from tests.integration.server.chat_client import history, prompt_of, streamed
from tests.integration.server.conftest import events_of

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def test_a_whole_answer_has_usage_and_timings(live):
    answer = live.chat(prompt_cache_key="s1", cache_salt="tenant").json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake-model"
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello world", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"] == {
        "prompt_tokens": 21,
        "completion_tokens": 12,
        "total_tokens": 33,
        "prompt_tokens_details": {"cached_tokens": 3},
        "cache": {
            "retention_granted_s": 0.0,
            "retention_expires_at": None,
            "restored_tokens": {},
        },
    }
    assert answer["timings"] == {
        "cache_n": 3,
        "prompt_n": 18,
        "prompt_ms": 250.0,
        "prompt_per_second": 72.0,
        "predicted_n": 12,
        "predicted_ms": 500.0,
        "predicted_per_second": 24.0,
        "draft_n": 4,
        "draft_n_accepted": 3,
    }
    request = live.engine.submitted[0]
    assert request.cache.salt == "tenant"
    assert request.cache.session_key == "s1"
    assert request.cache.is_enabled


def test_a_stream_says_the_same_as_a_whole_answer(live):
    choices, events = streamed(live)
    assert choices[0]["content"] == "Hello world"
    assert choices[0]["finish_reason"] == "stop"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("usage" not in event for event in events), "usage only if asked for"
    assert events[-1]["timings"]["cache_n"] == 3
    assert len({event["id"] for event in events}) == 1


def test_usage_of_a_stream_comes_last_with_no_choices(live):
    _, events = streamed(live, stream_options={"include_usage": True})
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert all(event["usage"] is None for event in events[:-1])


def test_sampling_fields_reach_the_engine(live):
    live.chat(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.1, seed=7, logit_bias={"65": -100, "66": 5}, max_tokens=5, ignore_eos=True,
        stop_token_ids=[9], logprobs=True, top_logprobs=2, cache=False,
    )  # fmt: skip
    request = live.engine.submitted[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.5,
        0.9,
        40,
        0.1,
    )
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.repetition_penalty, sampling.seed, sampling.num_logprobs) == (1.1, 7, 2)
    assert sampling.logit_bias == {65: -100, 66: 5}
    assert request.max_tokens == 5
    assert request.stop_token_ids == {9}, "the end of the answer is ignored"
    assert not request.cache.is_enabled


def test_defaults_are_those_of_openai(live):
    live.chat()
    request = live.engine.submitted[0]
    assert request.sampling.temperature == 1.0
    assert request.sampling.seed is None
    assert request.sampling.num_logprobs is None
    assert request.stop_token_ids == {live.engine.eos_id}
    live.chat(temperature=1e-9, top_k=-1, cache_prompt=False)
    assert live.engine.submitted[1].sampling.is_greedy
    assert live.engine.submitted[1].sampling.top_k == 0
    assert not live.engine.submitted[1].cache.is_enabled


def test_max_completion_tokens_wins_and_zero_computes_the_prompt_only(live):
    live.chat(max_tokens=5, max_completion_tokens=3)
    assert live.engine.submitted[0].max_tokens == 3
    answer = live.chat(max_tokens=0).json()
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    choices, _ = streamed(live, max_tokens=0)
    assert choices[0]["finish_reason"] == "length"


def test_choices_fork_the_first_and_have_seeds_of_their_own(live):
    answer = live.chat(n=3, seed=10).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    first, second, third = live.engine.submitted
    assert first.fork_of is None
    assert second.fork_of == third.fork_of == first.request_id
    assert [request.sampling.seed for request in (first, second, third)] == [10, 11, 12]
    assert answer["usage"]["prompt_tokens"] == 21, "the prompt counts once"
    assert answer["usage"]["completion_tokens"] == 36
    choices, events = streamed(live, n=3)
    assert [choices[index]["content"] for index in range(3)] == ["Hello world"] * 3
    assert sum("timings" in event for event in events) == 1


@pytest.mark.parametrize("stop", ["wor", ["zzz", "wor"], ["o w", "wor"]])
def test_stop_strings_are_held_back_across_tokens_and_cut(live, stop):
    expected = "Hell" if "o w" in stop else "Hello "
    answer = live.chat(stop=stop).json()
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["choices"][0]["finish_reason"] == "stop"
    choices, events = streamed(live, stop=stop)
    assert choices[0]["content"] == expected
    assert choices[0]["finish_reason"] == "stop"
    for event in events:
        for choice in event["choices"]:
            assert "w" not in (choice["delta"].get("content") or "")


def test_a_held_back_stop_prefix_is_sent_when_the_answer_ends(live):
    live.engine.text = "say DEFGH"
    assert live.chat(stop="DEFGHIJ").json()["choices"][0]["message"]["content"] == "say DEFGH"
    choices, _ = streamed(live, stop="DEFGHIJ")
    assert choices[0]["content"] == "say DEFGH"


def test_a_stop_string_ends_the_engine_request_and_tokens_after_it_do_not_count(live):
    live.engine.tokens_per_step = 4
    answer = live.chat(stop="el", ignore_eos=True, max_tokens=1000).json()
    assert answer["choices"][0]["message"]["content"] == "H"
    assert answer["usage"]["completion_tokens"] == 3
    assert live.engine.aborted == [live.engine.submitted[0].request_id]
    assert not live.engine.live


def test_characters_of_several_tokens_are_never_torn(live):
    live.engine.text = "한국어 🦜 é"
    assert live.chat().json()["choices"][0]["message"]["content"] == "한국어 🦜 é"
    choices, events = streamed(live)
    assert choices[0]["content"] == "한국어 🦜 é"
    assert "\ufffd" not in json.dumps(events, ensure_ascii=False)


def test_invalid_utf8_becomes_replacement_characters(live):
    ids = [live.engine.encode(char)[-1] for char in ("\u0130", "a")]
    live.engine.answer = lambda request: [ids[0], ids[1]]
    answer = live.chat().json()
    assert answer["choices"][0]["message"]["content"] == "\ufffda"


def test_logprobs_have_the_shape_of_chat(live):
    live.engine.text = "é"
    answer = live.chat(logprobs=True, top_logprobs=3).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[0xC3], [0xA9]]
    assert content[0]["logprob"] == -0.25
    assert len(content[0]["top_logprobs"]) == 3
    assert content[0]["top_logprobs"][2]["logprob"] == -9999.0, "minus infinity is no JSON"
    assert (
        live.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        == []
    )
    assert live.chat().json()["choices"][0]["logprobs"] is None
    _, events = streamed(live, logprobs=True)
    tokens = [
        t
        for event in events
        for c in event["choices"]
        for t in (c["logprobs"] or {"content": []})["content"]
    ]
    assert [token["bytes"] for token in tokens] == [[0xC3], [0xA9]]


def test_content_as_parts_is_content_as_text(live):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    live.chat(parts)
    live.chat("one\ntwo")
    first, second = live.engine.submitted
    assert list(first.prompt_token_ids) == list(second.prompt_token_ids)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_in_history_is_kept_under_both_names(live, name):
    assert "<r>deep</r>yes" in prompt_of(
        live, history({"role": "assistant", "content": "yes", name: "deep"})
    )


@pytest.mark.parametrize("arguments", ['{"a":   1}', '{"value": ', ""])
def test_arguments_in_history_stay_as_they_are_even_if_they_were_cut(live, arguments):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    body = history(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "r"},
    )
    assert f"[f{arguments}]" in prompt_of(live, body)


def test_template_fields_reach_the_template(live):
    body = history()
    assert "E=low" in prompt_of(live, {**body, "reasoning_effort": "low"})
    assert "E=x" in prompt_of(live, {**body, "chat_template_kwargs": {"reasoning_effort": "x"}})
    assert '"name": "look"' in prompt_of(live, {**body, "tools": TOOLS})
    assert "look" not in prompt_of(live, {**body, "tools": TOOLS, "tool_choice": "none"})


def test_cache_marks_and_turns_become_marker_tokens(live):
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    live.http.post("/v1/chat/completions", json={"messages": messages})
    request = live.engine.submitted[0]
    markers = request.cache.marker_tokens
    texts = [live.served.text.decode(request.prompt_token_ids[:marker]) for marker in markers]
    assert list(markers) == sorted(set(markers))
    assert any(text.rstrip().endswith("Be brief.") for text in texts)
    assert any(text.rstrip().endswith("user\na") for text in texts), texts
    assert request.cache.retention == Retention(seconds=300)
    mark = messages[1]["content"][0]["cache_control"]
    mark["ttl"] = "1h"
    live.http.post("/v1/chat/completions", json={"messages": messages})
    assert live.engine.submitted[-1].cache.retention == Retention(seconds=3600)
    body = {"messages": messages, "retention": {"seconds": 7.5, "mode": "strict"}}
    live.http.post("/v1/chat/completions", json=body)
    assert live.engine.submitted[-1].cache.retention == Retention(seconds=7.5, mode="strict")
    mark["ttl"] = "2 weeks"
    response = live.http.post("/v1/chat/completions", json={"messages": messages})
    assert response.json()["error"]["param"] == "messages[1].content[0].cache_control.ttl"


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"kv_cache_ttl_seconds": 0}, None),
        ({"prompt_cache_retention": "in_memory"}, None),
        ({"prompt_cache_options": {"mode": "implicit"}}, None),
        ({"kv_cache_ttl_seconds": 90}, 90),
        ({"prompt_cache_retention": "24h"}, 86400),
        ({"prompt_cache_options": {"ttl": "30m"}}, 1800),
        ({"retention": {"seconds": 90}, "kv_cache_ttl_seconds": 90}, 90),
    ],
)
def test_every_spelling_of_retention_becomes_one_wish(live, fields, seconds):
    assert live.chat(**fields).status_code == 200
    wish = live.engine.submitted[-1].cache.retention
    assert wish == (Retention(seconds=seconds) if seconds else None)


@pytest.mark.parametrize("live", [{"keep_alive_s": 0.05}], indirect=True)
def test_a_stream_that_waits_sends_comments_and_then_errors_as_events(live):
    live.engine.queue_gate.clear()
    live.engine.finish_with = (FinishReason.TIMEOUT, "waited too long")
    live.engine.finish_before_start = True
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    with live.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines) == ": keep-alive"
        live.engine.queue_gate.set()
        rest = [line for line in lines if line and line != ": keep-alive"]
    assert json.loads(rest[0].removeprefix("data: "))["error"]["code"] == "queue_timeout"
    assert rest[1:] == ["data: [DONE]"]


def test_an_error_in_the_middle_of_a_stream_is_an_event(live):
    live.engine.finish_with = (FinishReason.ERROR, "a step failed")
    live.engine.step_s = 0.05
    events = events_of(live.chat(stream=True, max_tokens=3))
    assert events[-2]["error"]["code"] == "generation_failed"
    assert events[-1] == "[DONE]"


@pytest.mark.parametrize("live", [{"keep_alive_s": 0.05}], indirect=True)
def test_a_dead_engine_is_noticed(live):
    from ninfer.obs.health import HealthReport

    live.engine.step_gate.clear()
    live.engine.report = HealthReport(status="failed", problems=("equation 3 broken",))
    response = live.chat()
    assert response.status_code == 503
    assert "equation 3" in response.json()["error"]["message"]
    health = live.http.get("/health")
    assert health.status_code == 503
    assert health.json() == {
        "status": "failed",
        "problems": ["equation 3 broken"],
        "model": "fake-model",
    }
