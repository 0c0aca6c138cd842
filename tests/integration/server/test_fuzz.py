"""Random bodies: every answer is a 200 or an OpenAI-shaped 4xx, never a 5xx; nothing stays at the engine."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer.server.chat.schema import ChatRequest
from ninfer.server.completions.schema import CompletionRequest
from ninfer.server.generation.schema import UNSUPPORTED_FIELDS
from ninfer.server.tokens.schema import DetokenizeRequest, TokenizeRequest
from tests.integration.server.conftest import events_of

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["auto", "none", "user", "assistant", "text", "function", "\ud83d"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from([
                "type",
                "text",
                "role",
                "content",
                "function",
                "name",
                "tool_calls",
                "5",
                "x",
            ]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "robot"])},
        optional={
            "content": st.one_of(st.text(max_size=5), VALUES),
            "tool_calls": VALUES,
            "reasoning_content": VALUES,
            "name": VALUES,
            "cache_control": VALUES,
        },
    ),
    max_size=3,
)
GOOD = {
    "messages": st.just([{"role": "user", "content": "hi"}]),
    "prompt": st.sampled_from(["hi", [1, 2], ["a", "b"], [[1], [2, 3]]]),
    "max_tokens": st.integers(0, 20),
    "n": st.integers(1, 3),
    "stop": st.sampled_from(["l", ["o w", "x"], ["l"] * 16]),
    "stream": st.booleans(),
    "tools": st.just([{"type": "function", "function": {"name": "f"}}]),
    "logit_bias": st.just({"5": 1.5}),
    "temperature": st.floats(0, 2),
    "seed": st.integers(-5, 5),
    "echo": st.booleans(),
    "cache": st.booleans(),
    "ignore_eos": st.booleans(),
    "tool_choice": st.sampled_from(["auto", "none"]),
    "chat_template_kwargs": st.dictionaries(st.text(max_size=5), VALUES, max_size=2),
}


def bodies(model, extra):
    """A body with a few fields, each good or random: with many, none would get past the first check."""
    names = [*model.model_fields, *UNSUPPORTED_FIELDS, "unknown_field"]
    names = [
        name
        for name in names
        if name not in {"model", "max_completion_tokens"} and name not in extra
    ]
    field = st.one_of(
        st.sampled_from([name for name in names if name in GOOD] or ["unknown_field"]).flatmap(
            lambda name: st.tuples(st.just(name), GOOD.get(name, VALUES))
        ),
        st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), VALUES)),
    )
    some = st.lists(field, max_size=3).map(dict)
    return st.tuples(st.fixed_dictionaries(extra), some).map(lambda both: {**both[1], **both[0]})


def check(shared, path, body) -> None:
    raw = json.dumps(body).encode()
    response = shared.http.post(path, content=raw)
    assert response.status_code in {200, 400}, (response.status_code, response.text, body)
    if response.status_code == 400:
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
    elif response.headers["content-type"].startswith("text/event-stream"):
        assert events_of(response)[-1] == "[DONE]"
        assert "error" not in response.text
    else:
        response.json()


FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@FUZZ
@given(body=bodies(ChatRequest, {"messages": st.one_of(GOOD["messages"], MESSAGES)}))
def test_no_chat_body_is_a_server_error(shared, body):
    check(shared, "/v1/chat/completions", body)


@FUZZ
@given(body=bodies(CompletionRequest, {"prompt": st.one_of(GOOD["prompt"], VALUES)}))
def test_no_completion_body_is_a_server_error(shared, body):
    check(shared, "/v1/completions", body)


@settings(FUZZ, max_examples=60)
@given(body=bodies(TokenizeRequest, {}))
def test_no_tokenize_body_is_a_server_error(shared, body):
    check(shared, "/tokenize", body)


@settings(FUZZ, max_examples=60)
@given(body=bodies(DetokenizeRequest, {}))
def test_no_detokenize_body_is_a_server_error(shared, body):
    check(shared, "/detokenize", body)


@settings(FUZZ, max_examples=80)
@given(raw=st.binary(max_size=60))
def test_no_bytes_are_a_server_error(shared, raw):
    response = shared.http.post("/v1/chat/completions", content=raw)
    assert response.status_code == 400


def test_nothing_is_left_at_the_engine(shared):
    shared.wait_until(lambda: not shared.engine.live, "nothing is live")
