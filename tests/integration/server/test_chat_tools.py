"""Tool calls and reasoning in chat completions."""

import pytest

from tests.integration.server.chat_client import history, prompt_of, streamed
from tests.integration.server.fake_model import THINKING

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at":  "a}\\"</tool_call>"}}\n</tool_call>'


def test_a_tool_call_is_parsed_with_its_arguments_unchanged(live):
    live.engine.text = f"Let me look.\n{CALL}"
    choice = live.chat(tools=TOOLS).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me look."
    [call] = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"] == {"name": "look", "arguments": '{"at":  "a}\\"</tool_call>"}'}
    choices, _ = streamed(live, tools=TOOLS)
    assert choices[0]["content"] == "Let me look."
    assert choices[0]["finish_reason"] == "tool_calls"
    assert choices[0]["calls"][0]["name"] == "look"
    assert choices[0]["calls"][0]["arguments"] == '{"at":  "a}\\"</tool_call>"}'


@pytest.mark.parametrize("tokens_per_step", [1, 7, 1000])
def test_parser_state_is_per_choice(live, tokens_per_step):
    live.engine.tokens_per_step = tokens_per_step
    texts = {"0": CALL, "1": "No call.", "2": f"{CALL}\n{CALL}"}
    live.engine.answer = lambda request: live.engine.encode(texts[request.request_id[-1]])
    choices, _ = streamed(live, tools=TOOLS, n=3)
    assert [choices[index]["finish_reason"] for index in range(3)] == [
        "tool_calls",
        "stop",
        "tool_calls",
    ]
    assert [len(choices[index]["calls"]) for index in range(3)] == [1, 0, 2]
    ids = [call["id"] for choice in choices.values() for call in choice["calls"].values()]
    assert len(set(ids)) == 3
    assert choices[1]["content"] == "No call."
    assert choices[2]["content"] == ""


def test_a_call_that_was_cut_ends_with_length(live):
    live.engine.text = CALL
    choice = live.chat(tools=TOOLS, max_tokens=45).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == CALL[42:45]
    choices, _ = streamed(live, tools=TOOLS, max_tokens=45)
    assert choices[0]["finish_reason"] == "length"


def test_one_call_is_enough_without_parallel_calls(live):
    live.engine.text = f"{CALL}\n{CALL}"
    choice = live.chat(tools=TOOLS, parallel_tool_calls=False).json()["choices"][0]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == "tool_calls"


def test_without_tools_a_tool_call_is_text(live):
    live.engine.text = CALL
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = live.chat(**fields).json()["choices"][0]
        assert choice["message"]["content"] == CALL
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("live", [{"template": THINKING}], indirect=True)
@pytest.mark.parametrize("tokens_per_step", [1, 5, 1000])
def test_thinking_becomes_reasoning_content(live, tokens_per_step):
    live.engine.tokens_per_step = tokens_per_step
    live.engine.text = "<think>\nHm, <b>.\n\nYes.\n</think>\n\nAnswer."
    answer = live.chat().json()
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm, <b>.\n\nYes."
    assert message["content"] == "Answer."
    assert 0 <= answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 41
    choices, _ = streamed(live)
    assert choices[0]["reasoning_content"] == "Hm, <b>.\n\nYes."
    assert choices[0]["content"] == "Answer."


@pytest.mark.parametrize("live", [{"template": THINKING}], indirect=True)
def test_thinking_that_was_cut_is_all_reasoning(live):
    live.engine.text = "<think>\nHm, well"
    message = live.chat(max_tokens=13).json()["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm, w"
    assert message["content"] == ""


@pytest.mark.parametrize("live", [{"template": THINKING}], indirect=True)
def test_reasoning_effort_none_switches_thinking_off(live):
    assert "<think>\n\n</think>" in prompt_of(live, {**history(), "reasoning_effort": "none"})
    kept = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}
    assert "<think>" not in prompt_of(live, {**history(), **kept})


@pytest.mark.parametrize("live", [{"template": THINKING + "{{- '<think>\\n' }}"}], indirect=True)
def test_an_answer_can_begin_inside_the_reasoning(live):
    live.engine.text = "Hm.\n</think>\nAnswer."
    message = live.chat().json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Answer.")
