import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.server.chat.tool_parser import ToolCallParser

PIECES = st.lists(
    st.sampled_from([
        "<tool_call>", "</tool_call>", "<tool", "_call>", "\n", " ", "text", '{"name": "f"', ', "arguments": ', "{", "}",
        '"a": "x}"', '{"b": [1, {}]}', '"arguments": {"c": 1}, ', '{"name": "g", "arguments": {"q": "\\"</tool_call>"}}',
        "null", '"\\ud83d"', ":", ",", '"', "[", "\\",
    ]),
    max_size=10,
)  # fmt: skip


def parse(pieces) -> tuple[str, list[dict], ToolCallParser]:
    parser = ToolCallParser(is_active=True)
    content = ""
    calls: list[dict] = []
    for delta in [*(parser.push(piece) for piece in pieces), parser.flush()]:
        content += delta.content
        for call in delta.calls:
            if call.name is not None:
                assert call.index == len(calls)
                calls.append({"name": call.name, "arguments": ""})
            else:
                assert call.call_id is None
            calls[call.index]["arguments"] += call.arguments
    return content, calls, parser


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("no call", "no call", []),
        ('<tool_call>{"name":"f","arguments":{}}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "", [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
        (
            '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
            "",
            [("f", '{"a": 1}')],
        ),
        ('Hi \n<tool_call>{"name": "f"}</tool_call>\n', "Hi", [("f", "{}")]),
        (
            '<tool_call>{"name": "f"}\n<tool_call>{"name": "g"}</tool_call>',
            "",
            [("f", "{}"), ("g", "{}")],
        ),
        (
            '<tool_call>{"name": "f"}\n<tool_call>',
            "\n<tool_call>",
            [("f", "{}")],
        ),
        ('<tool_call>{"name": "f", "arguments": {"x": "\\u00e9}', "", [("f", '{"x": "\\u00e9}')]),
        ("<tool_call>not json</tool_call> x", "<tool_call>not json</tool_call> x", []),
        ('<tool_call>{"nam', '<tool_call>{"nam', []),
        ('<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []),
        ("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
        ("a <tool", "a <tool", []),
    ],
)
def test_calls_and_content(text, content, calls):
    for pieces in ([text], list(text)):
        got_content, got_calls, _ = parse(pieces)
        assert got_content == content
        assert [(call["name"], call["arguments"]) for call in got_calls] == calls


@given(pieces=PIECES)
def test_the_result_does_not_depend_on_where_the_text_is_cut(pieces):
    text = "".join(pieces)
    whole = parse([text])[:2]
    assert parse(pieces)[:2] == whole
    assert parse(list(text))[:2] == whole


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    calls=st.lists(
        st.tuples(
            st.text(min_size=1, max_size=5), st.dictionaries(st.text(max_size=5), JSON, max_size=3)
        ),
        max_size=3,
    ),
    size=st.integers(1, 30),
    is_ascii=st.booleans(),
)
def test_every_call_comes_out_with_its_exact_arguments(calls, size, is_ascii):
    spelled = [json.dumps(arguments, ensure_ascii=is_ascii) for _, arguments in calls]
    text = "\n".join(
        f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
        for (name, _), arguments in zip(calls, spelled, strict=True)
    )
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    content, got, parser = parse(pieces)
    assert content == ""
    assert [(call["name"], call["arguments"]) for call in got] == [
        (name, arguments) for (name, _), arguments in zip(calls, spelled, strict=True)
    ]
    assert parser.num_complete == len(calls)


def test_the_name_is_told_before_the_arguments_are_complete():
    parser = ToolCallParser(is_active=True)
    head = parser.push('<tool_call>{"name": "f", "arguments": {"a": ')
    assert [(call.name, call.arguments) for call in head.calls] == [("f", ""), (None, '{"a":')]
    assert head.calls[0].call_id
    assert [call.arguments for call in parser.push("12").calls] == [" 12"]
