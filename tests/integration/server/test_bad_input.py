"""Whatever a client sends: an OpenAI-shaped error that names the field, never a 500, nothing at the engine."""

import pytest

from ninfer.core.errors import EngineStopped, QueueFull, RequestInfeasible
from ninfer.core.request import FinishReason

HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def check_error(response, status: int, param: str | None, code: str | None = None) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["param"] == param
    assert isinstance(error["type"], str)
    if code is not None:
        assert error["code"] == code
    return error


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe{}",
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"messages": [{"role": "user", "content": "\\udc00\\ud800"}]}',
        b'{"temperature": NaN, "messages": [{"role": "user", "content": "x"}]}',
        b"[" * 5000 + b"]" * 5000,
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_a_body_that_is_no_json_object_is_refused(shared, path, raw):
    check_error(shared.http.post(path, content=raw), 400, None, "invalid_json")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": 3, "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [*HI, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": {}, "content": "x"}]},
            "messages[0].tool_calls",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": 1}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"messages": [{"role": "assistant", "content": "x", "reasoning": 1}]},
            "messages[0].reasoning",
        ),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 1000}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": "x" * 2000}, "stop"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids"),
        ({"logit_bias": {"one": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0661": 1}}, "logit_bias"),
        ({"logit_bias": {"100000": 1}}, "logit_bias"),
        ({"logit_bias": {"1" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": []}, "stream_options"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": 1}, "cache_salt"),
        ({"cache": "no"}, "cache"),
        ({"prompt_cache_key": 1}, "prompt_cache_key"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]},
            "tools[0].function.parameters",
        ),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"model": 5}, "model"),
    ],
)
def test_wrong_chat_fields_are_named(shared, fields, param):
    num_before = len(shared.engine.submitted)
    check_error(shared.http.post(CHAT, json={"messages": HI, **fields}), 400, param)
    assert len(shared.engine.submitted) == num_before


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": "{foo:'bar'}"}}},
        {"functions": [{"name": "f"}]},
        {"function_call": "auto"},
        {"audio": {"voice": "x"}},
        {"modalities": ["text", "audio"]},
        {"prompt_logprobs": 1},
        {"best_of": 3},
        {"echo": True},
        {"guided_json": {}},
        {"min_tokens": 3},
        {"use_beam_search": True},
        {"continue_final_message": True},
        {"prediction": {"type": "content"}},
        {"prompt_cache_retention": "24h"},
        {"kv_cache_ttl_seconds": 60},
        {"prompt_cache_options": {"ttl": "30m"}},
        {"store": True},
        {"service_tier": "flex"},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    ],
)
def test_known_but_unsupported_fields_are_named(shared, fields):
    param = "tool_choice" if "tool_choice" in fields else next(iter(fields))
    response = shared.http.post(CHAT, json={"messages": HI, **fields})
    check_error(response, 400, param, "unsupported_parameter")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}],
        },
    ],
)
def test_unsupported_parts_are_named(shared, message):
    number = len(message["content"]) - 1
    response = shared.http.post(CHAT, json={"messages": [message]})
    check_error(response, 400, f"messages[0].content[{number}]", "unsupported_parameter")


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": None},
        {
            "max_tokens": None,
            "max_completion_tokens": None,
            "tools": None,
            "seed": None,
            "logit_bias": None,
        },
        {"response_format": {"type": "text"}, "modalities": ["text"], "functions": None, "n": None},
        {
            "best_of": None,
            "store": False,
            "service_tier": "auto",
            "user": "me",
            "metadata": {"a": "b"},
        },
        {"no_such_field": {"x": 1}, "another": [1]},
        {"stop": "", "tools": [], "tool_choice": "auto"},
        {"prompt_cache_retention": "in_memory", "kv_cache_ttl_seconds": 0},
    ],
)
def test_null_neutral_and_unknown_fields_change_nothing(shared, fields):
    response = shared.chat(**fields)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Hello world"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[1], "a"]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1], [100_000]]}, "prompt"),
        ({"prompt": [10**30]}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"prompt": ["x"] * 100, "n": 2}, "n"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "suffix": "end"}, "suffix"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "x", "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"prompt": "x", "max_tokens": -5}, "max_tokens"),
    ],
)
def test_wrong_completion_fields_are_named(shared, fields, param):
    check_error(shared.http.post("/v1/completions", json=fields), 400, param)


def test_an_unknown_model_is_404(shared):
    check_error(shared.chat(model="gpt-9"), 404, "model", "model_not_found")
    check_error(shared.complete(model="gpt-9"), 404, "model", "model_not_found")
    check_error(shared.http.get("/v1/models/gpt-9"), 404, "model", "model_not_found")


def test_unknown_urls_and_methods_are_openai_shaped(shared):
    check_error(shared.http.get("/v1/nothing"), 404, None, "not_found")
    check_error(shared.http.post("/"), 404, None, "not_found")
    refused = shared.http.get(CHAT)
    check_error(refused, 405, None, "method_not_allowed")
    assert refused.headers["allow"] == "POST"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_names_both_numbers(shared, stream):
    response = shared.chat("x" * 5000, stream=stream, max_tokens=None)
    error = check_error(response, 400, "messages", "context_length_exceeded")
    assert "2048" in error["message"]
    assert "5019" in error["message"]
    check_error(shared.complete("x" * 5000), 400, "prompt", "context_length_exceeded")


def test_a_prompt_as_long_as_the_context_can_only_be_computed(shared):
    check_error(shared.complete("x" * 2048), 400, "prompt", "context_length_exceeded")
    answer = shared.complete("x" * 2048, max_tokens=0).json()
    assert answer["usage"]["prompt_tokens"] == 2048
    assert answer["choices"][0]["finish_reason"] == "length"


def test_max_tokens_beyond_the_context_is_clamped(shared):
    for fields in ({"max_tokens": 1_000_000}, {"max_completion_tokens": 1_000_000}, {}):
        assert shared.chat(**fields).status_code == 200
        request = shared.engine.submitted[-1]
        assert request.max_tokens == 2048 - len(request.prompt_token_ids)


@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_submission_have_their_status(live, stream):
    live.engine.submit_error = RequestInfeasible(
        "needs 5000 tokens, 4096 are available", param="max_tokens"
    )
    error = check_error(live.chat(stream=stream), 400, "max_tokens", "request_infeasible")
    assert "5000" in error["message"]
    live.engine.submit_error = QueueFull("256 requests wait already")
    response = live.chat(stream=stream)
    check_error(response, 429, None, "queue_full")
    assert int(response.headers["retry-after"]) > 0
    live.engine.submit_error = EngineStopped("draining")
    response = live.chat(stream=stream)
    check_error(response, 503, None, "engine_stopped")
    assert int(response.headers["retry-after"]) > 0


def test_a_queue_that_fills_up_between_choices_takes_the_first_ones_back(live):
    live.engine.max_live = 2
    live.engine.step_gate.clear()
    check_error(live.chat(n=3), 429, None, "queue_full")
    live.wait_until(lambda: not live.engine.live, "all choices are aborted")


@pytest.mark.parametrize("stream", [False, True])
def test_a_queue_timeout_is_503(live, stream):
    live.engine.finish_with = (FinishReason.TIMEOUT, "waited 300 s in the queue")
    live.engine.finish_before_start = True
    response = live.chat(stream=stream)
    error = check_error(response, 503, None, "queue_timeout")
    assert "300 s" in error["message"]
    assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_error_is_500_and_openai_shaped(live, stream):
    live.engine.finish_with = (FinishReason.ERROR, "a step failed")
    live.engine.finish_before_start = True
    check_error(live.chat(stream=stream), 500, None, "generation_failed")


def test_defects_tell_nothing_about_the_server(live):
    live.engine.submit_error = ZeroDivisionError("secret detail")
    error = check_error(live.chat(), 500, None, "internal_error")
    assert "secret" not in error["message"]
    live.engine.submit_error = None
    assert live.chat().status_code == 200


@pytest.mark.parametrize("live", [{"max_body": 1024 * 1024}], indirect=True)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_8_mb_body_over_the_limit_is_413(live, is_chunked):
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * 8_000_000 + b'"}]}'
    content = (
        (body[start : start + 65536] for start in range(0, len(body), 65536))
        if is_chunked
        else body
    )
    check_error(live.http.post(CHAT, content=content), 413, None, "request_too_large")
    assert live.chat().status_code == 200
    assert len(live.engine.submitted) == 1


@pytest.mark.parametrize("live", [{"api_keys": ("one", "two")}], indirect=True)
def test_only_known_api_keys_are_let_in(live):
    for headers in (
        {},
        {"authorization": "Bearer three"},
        {"authorization": "one"},
        {"authorization": "Basic one"},
    ):
        for path in (CHAT, "/v1/models", "/metrics", "/nowhere"):
            check_error(live.http.get(path, headers=headers), 401, None, "invalid_api_key")
    for key in ("one", "two"):
        response = live.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert response.status_code == 200
    assert live.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": "x", "messages": HI},
        {"prompt": 5},
        {"messages": []},
    ],
)
def test_wrong_tokenize_bodies_are_refused(shared, fields):
    check_error(
        shared.http.post("/tokenize", json=fields),
        400,
        next(iter(reversed(fields)), "prompt") if len(fields) < 2 else "prompt",
    )


@pytest.mark.parametrize("tokens", [None, "x", [1, "x"], [-1], [100_000]])
def test_wrong_detokenize_bodies_are_refused(shared, tokens):
    response = shared.http.post("/detokenize", json={"tokens": tokens})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("tokens")


def test_deep_nesting_is_refused_or_answered_but_no_500(shared):
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"deep": deep}}}
    for fields in (
        {"tools": [tool]},
        {"chat_template_kwargs": {"deep": deep}},
        {"messages": [{"role": "user", "content": "x", "deep": deep}]},
    ):
        assert shared.chat(**fields).status_code in {200, 400}
