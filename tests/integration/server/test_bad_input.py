"""Whatever a client sends: an OpenAI-shaped error that names the field, never a 500, nothing at the engine."""

import pytest

from tests.integration.server.chat_client import check_error

HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


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
        ({"kv_cache_ttl_seconds": -1}, "kv_cache_ttl_seconds"),
        ({"kv_cache_ttl_seconds": "1h"}, "kv_cache_ttl_seconds"),
        ({"kv_cache_ttl_seconds": 10**12}, "kv_cache_ttl_seconds"),
        ({"prompt_cache_retention": "1h"}, "prompt_cache_retention"),
        ({"prompt_cache_options": {"ttl": "7m"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": 30}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": []}, "prompt_cache_options"),
        (
            {"prompt_cache_options": {"ttl": "24h"}, "prompt_cache_retention": "24h"},
            "prompt_cache_options.ttl",
        ),
        ({"retention": 60}, "retention"),
        ({"retention": {}}, "retention.seconds"),
        ({"retention": {"seconds": 0}}, "retention.seconds"),
        ({"retention": {"seconds": 5, "mode": "hard"}}, "retention.mode"),
        ({"retention": {"seconds": 60}, "kv_cache_ttl_seconds": 61}, "kv_cache_ttl_seconds"),
        (
            {"retention": {"seconds": 60, "mode": "strict"}, "kv_cache_ttl_seconds": 60},
            "kv_cache_ttl_seconds",
        ),
        ({"cache": False, "kv_cache_ttl_seconds": 60}, "kv_cache_ttl_seconds"),
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
