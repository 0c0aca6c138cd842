"""The official SDK as users use it: chat, stream, completions, logprobs, n, stop, tools, errors."""

import pytest

openai = pytest.importorskip("openai")

HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
def sdk(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat(sdk):
    answer = sdk.chat.completions.create(model="fake-model", messages=HI)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.id.startswith("chatcmpl-")


def test_chat_stream(sdk):
    options = {"include_usage": True}
    chunks = list(
        sdk.chat.completions.create(
            model="fake-model", messages=HI, stream=True, stream_options=options
        )
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "Hello world"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 3


def test_chat_stream_helper(sdk):
    with sdk.chat.completions.stream(model="fake-model", messages=HI) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello world"


def test_completions(sdk):
    answer = sdk.completions.create(model="fake-model", prompt="hi", max_tokens=5, logprobs=2)
    assert answer.choices[0].text == "Hello"
    assert answer.choices[0].logprobs.tokens == list("Hello")
    chunks = list(
        sdk.completions.create(model="fake-model", prompt="hi", max_tokens=5, stream=True)
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "Hello"


def test_logprobs(sdk):
    answer = sdk.chat.completions.create(
        model="fake-model", messages=HI, logprobs=True, top_logprobs=3
    )
    first = answer.choices[0].logprobs.content[0]
    assert first.token == "H"
    assert bytes(first.bytes) == b"H"
    assert [top.logprob for top in first.top_logprobs] == [-0.25, -1.5, -9999.0]


def test_three_choices(sdk):
    answer = sdk.chat.completions.create(model="fake-model", messages=HI, n=3)
    assert [choice.message.content for choice in answer.choices] == ["Hello world"] * 3


def test_stop(sdk):
    answer = sdk.chat.completions.create(model="fake-model", messages=HI, stop=["wor"])
    assert answer.choices[0].message.content == "Hello "
    assert answer.choices[0].finish_reason == "stop"


def test_tools(sdk, live):
    live.engine.text = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
    answer = sdk.chat.completions.create(model="fake-model", messages=HI, tools=TOOLS)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'
    with sdk.chat.completions.stream(model="fake-model", messages=HI, tools=TOOLS) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "look"
    again = [*HI, answer.choices[0].message, {"role": "tool", "tool_call_id": "x", "content": "7"}]
    assert sdk.chat.completions.create(model="fake-model", messages=again, tools=TOOLS).choices


def test_models(sdk):
    assert [model.id for model in sdk.models.list()] == ["fake-model"]
    assert sdk.models.retrieve("fake-model").max_model_len == 2048


def test_errors(sdk, live):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model="fake-model", messages=HI, temperature=5)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat.completions.create(model="gpt-9", messages=HI)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        sdk.chat.completions.create(
            model="fake-model", messages=[{"role": "user", "content": "x" * 5000}]
        )
    assert long.value.code == "context_length_exceeded"
    live.engine.max_live = 0
    with pytest.raises(openai.RateLimitError):
        sdk.chat.completions.create(model="fake-model", messages=HI)


def test_an_error_in_the_middle_of_a_stream_is_raised(sdk, live):
    from ninfer.core.request import FinishReason

    live.engine.finish_with = (FinishReason.ERROR, "a step failed")
    live.engine.step_s = 0.05
    stream = sdk.chat.completions.create(model="fake-model", messages=HI, stream=True, max_tokens=2)
    with pytest.raises(openai.APIError, match="a step failed"):
        list(stream)


@pytest.mark.parametrize("live", [{"api_keys": ("secret",)}], indirect=True)
def test_a_wrong_key_is_an_authentication_error(sdk, live):
    with pytest.raises(openai.AuthenticationError):
        sdk.models.list()
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="secret") as client:
        assert client.models.list()


def test_closing_a_stream_ends_the_request(sdk, live):
    live.engine.step_s = 0.005
    stream = sdk.chat.completions.create(
        model="fake-model",
        messages=HI,
        stream=True,
        max_tokens=2000,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    stream.close()
    live.wait_until(lambda: not live.engine.live, "nothing is live any more")
    assert live.engine.num_steps < 100
