"""The `openai` SDK against a real server."""

import openai
import pytest

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTION = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def sdk(server):
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as sdk:
        yield sdk


def test_models(sdk):
    (model,) = sdk.models.list().data
    assert model.id == "smollm2"
    assert model.max_model_len == 2048


def test_chat_and_stream_say_the_same(sdk):
    whole = sdk.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=20, temperature=0
    )
    chunks = list(
        sdk.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens <= 20
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_completions(sdk):
    answer = sdk.completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=6, temperature=0, logprobs=2
    )
    assert "Paris" in answer.choices[0].text
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.completion_tokens
    assert "".join(answer.choices[0].logprobs.tokens) == answer.choices[0].text


def test_logprobs_of_a_greedy_answer_are_the_best(sdk):
    answer = sdk.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        max_tokens=5,
        temperature=0,
        logprobs=True,
        top_logprobs=3,
    )
    for entry in answer.choices[0].logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.token == entry.top_logprobs[0].token
        assert entry.logprob <= 0.0


def test_seed_makes_a_sampled_answer_repeatable(sdk):
    def ask(seed):
        answer = sdk.chat.completions.create(
            model="smollm2", messages=QUESTION, max_tokens=16, temperature=1.5, seed=seed
        )
        return answer.choices[0].message.content

    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(1, 5)}) > 1


def test_stop_ends_before_the_string(sdk):
    def ask(**more):
        answer = sdk.completions.create(
            model="smollm2", prompt="1, 2, 3, 4, 5,", max_tokens=16, temperature=0, **more
        )
        return answer.choices[0]

    whole = ask().text
    assert "8" in whole
    choice = ask(stop=["8"])
    assert choice.finish_reason == "stop"
    assert choice.text == whole.split("8")[0]


@pytest.mark.parametrize(
    ("fields", "error", "code"),
    [
        ({"model": "other"}, openai.NotFoundError, "model_not_found"),
        ({"messages": []}, openai.BadRequestError, None),
        ({"max_tokens": -1}, openai.BadRequestError, None),
        (
            {"messages": [{"role": "user", "content": "word " * 3000}]},
            openai.BadRequestError,
            "context_length_exceeded",
        ),
    ],
)
def test_errors(sdk, fields, error, code):
    with pytest.raises(error) as caught:
        sdk.chat.completions.create(**{"model": "smollm2", "messages": QUESTION, **fields})
    assert caught.value.body["message"]
    if code:
        assert caught.value.code == code
