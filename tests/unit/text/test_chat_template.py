import json

import pytest

from ninfer.api.errors import ModelError
from ninfer.core.errors import RequestError
from ninfer.testing.clock import FakeClock
from ninfer.text.chat_template import CHATML_TEMPLATE, ChatTemplate

CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "<|im_end|> ünï 😀"},
    ],
]
QWEN_LIKE = """\
{%- if not messages|selectattr('role', 'equalto', 'user')|list %}
    {{- raise_exception('No user query found.') }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and message.reasoning_content and loop.last %}
    {{- '<think>' + message.reasoning_content + '</think>' }}
{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
    {{- '<tool_call>' + call.function.name }}
    {%- for name, value in call.function.arguments | items %}{{- ' ' + name + '=' + value|tojson }}{%- endfor %}
    {{- '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is false %}{{- '<think></think>' }}{%- endif %}{%- endif %}
"""


def template(source: str, **options) -> ChatTemplate:
    return ChatTemplate(source, clock=FakeClock(), **options)


def test_smollm2_chats_equal_those_of_transformers(smollm2_metadata, clock) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    source = smollm2_metadata["tokenizer.chat_template"]
    ours = ChatTemplate.from_gguf_metadata(smollm2_metadata, clock=clock)
    assert ours.source == source
    for chat in CHATS:
        for opener in (True, False):
            (expected,), _ = utils.render_jinja_template(
                [chat], chat_template=source, add_generation_prompt=opener
            )
            assert ours.render(chat, add_generation_prompt=opener) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_smollm2_chat_tokens_equal_apply_chat_template(smollm2_gguf, smollm2, clock) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )
    ours = ChatTemplate.from_path(smollm2_gguf, clock=clock)
    for chat in CHATS:
        expected = theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        text = ours.render(chat)
        assert text == expected
        token_ids = theirs.encode(expected, add_special_tokens=False)
        assert smollm2.encode(text, add_special=False) == token_ids


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}\n    {% if true %}\n  {{ m.content }}\n{% endif %}\n{% endfor %}",
        "{{ tools | tojson(indent=2) }}{{ {'b': '<é>', 'a': 1} | tojson }}",
        "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{% continue %}{% endfor %}x",
        "{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ bos_token }}",
        "a{% generation %}b{{ messages[0].content }}{% endgeneration %}c",
        "{{ messages[-1]['content'].split('x') | map('upper') | join(',') }}",
    ],
)
def test_environment_equals_that_of_transformers(source: str) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    chat = [{"role": "user", "content": "axb"}]
    tools = [{"type": "function", "function": {"name": "é<"}}]
    (expected,), _ = utils.render_jinja_template(
        [chat], tools=tools, chat_template=source, bos_token="<s>"
    )
    ours = template(source, special_tokens={"bos_token": "<s>"}).render(chat, tools=tools)
    assert ours == expected


@pytest.mark.parametrize(
    "content",
    ["hello", [{"type": "text", "text": "hello"}], [{"type": "text", "text": "hel"}, "lo"]],
)
def test_parts_are_the_same_as_text(content) -> None:
    text = template("{{ messages[0].content }}").render([{"role": "user", "content": content}])
    assert text.replace("\n", "") == "hello"


def test_missing_content_renders_as_empty() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    chat = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    text = template(CHATML_TEMPLATE).render(chat)
    assert '<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>' in text
    assert "None" not in text


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_reaches_the_template_under_both_names(name: str) -> None:
    chat = [{"role": "assistant", "content": "a", name: "why"}]
    text = template("{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}").render(chat)
    assert text == "why|why"


def test_arguments_are_parsed_only_where_the_template_wants_it() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":  "b"}'}}
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
    items = template(QWEN_LIKE)
    assert items.parses_arguments
    assert '<tool_call>f a="b"</tool_call>' in items.render(chat)
    verbatim = template(CHATML_TEMPLATE)
    assert not verbatim.parses_arguments
    assert '{"a":  "b"}' in verbatim.render(chat)
    to_json = template(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    assert to_json.parses_arguments
    assert to_json.render(chat) == '{"a": "b"}'


def test_cut_arguments_are_tolerated() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"value": '}}
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]
    assert 'raw_arguments="{\\"value\\": "' in template(QWEN_LIKE).render(chat)
    assert chat[1]["tool_calls"][0]["function"]["arguments"] == '{"value": '


def test_options_reach_the_template() -> None:
    chat = [{"role": "user", "content": "q"}]
    assert template(QWEN_LIKE).render(chat, options={"enable_thinking": False}).endswith("</think>")
    with pytest.raises(RequestError) as error:
        template(QWEN_LIKE).render(chat, options={"messages": []})
    assert error.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"content": "no role"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}],
        [{"role": "assistant", "content": "", "tool_calls": "x"}],
        [{"role": "system", "content": "no question"}],
    ],
)
def test_bad_messages_are_request_errors(messages) -> None:
    with pytest.raises(RequestError) as error:
        template(QWEN_LIKE).render(messages)
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('Roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ missing.field }}",
    ],
)
def test_failing_templates_are_request_errors(source: str) -> None:
    with pytest.raises(RequestError) as error:
        template(source).render([{"role": "user", "content": "q"}])
    assert error.value.param == "messages"


def test_broken_templates_are_model_errors() -> None:
    with pytest.raises(ModelError, match="line 2"):
        template("\n{% if %}")


def test_developer_becomes_system_unless_the_template_knows_it() -> None:
    chat = [{"role": "developer", "content": "x"}]
    assert template("{{ messages[0].role }}").render(chat) == "system"
    knows = template("{{ messages[0].role }}{% if messages[0].role == 'developer' %}!{% endif %}")
    assert knows.render(chat) == "developer!"


def test_lone_surrogates_are_repaired() -> None:
    text = template("{{ messages[0].content }}").render([{"role": "user", "content": "\ud83d"}])
    assert text == "\ufffd"


def test_time_comes_from_the_clock() -> None:
    from datetime import datetime

    expected = datetime.fromtimestamp(FakeClock().unix_s()).strftime("%Y-%m-%d")
    text = template("{{ strftime_now('%Y-%m-%d') }}").render([{"role": "user", "content": ""}])
    assert text == expected


def test_directory_prefers_the_template_file(tmp_path, clock) -> None:
    assert ChatTemplate.from_path(tmp_path, clock=clock).source == CHATML_TEMPLATE
    config = {"chat_template": "{{ bos_token }}A", "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    chat = [{"role": "user", "content": "x"}]
    assert ChatTemplate.from_path(tmp_path, clock=clock).render(chat) == "<s>A"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}B")
    assert ChatTemplate.from_path(tmp_path, clock=clock).render(chat) == "<s>B"


def test_named_templates_choose_the_default(tmp_path, clock) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert ChatTemplate.from_path(tmp_path, clock=clock).source == "D"


def test_fallback_writes_tools_and_answers() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    text = template(CHATML_TEMPLATE).render(chat, tools=tools)
    assert text.startswith("<|im_start|>system\nS\n\n# Tools")
    assert '{"type": "function", "function": {"name": "f"}}' in text
    assert text.endswith("<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n")
    plain = template(CHATML_TEMPLATE).render(chat, add_generation_prompt=False)
    assert plain == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
