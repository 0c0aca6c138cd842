"""Chat messages to prompt text by a model's template. Knows nothing about tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import jinja2

from ninfer.api.clock import Clock
from ninfer.api.errors import ModelError
from ninfer.core.errors import RequestError
from ninfer.text.chat_messages import ChatMessage, normalize_messages
from ninfer.text.gguf_metadata import read_gguf_metadata
from ninfer.text.template_environment import build_environment
from ninfer.text.tokenizer import read_json_object

CHATML_TEMPLATE: Final = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\nYou may call one or more functions.\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\n\\nFor each call, return a JSON object within <tool_call></tool_call> tags:\\n' }}
    {{- '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
            {{- call.function.arguments + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""For models that come without a template."""

_PROBE_ARGUMENTS: Final = '{"probe":  "x"}'
_RESERVED: Final = frozenset({"messages", "tools", "add_generation_prompt"})
_TOKEN_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A model's chat template. Thread-safe.

    Attributes:
        source: text of the template.
        parses_arguments: the template wants arguments of tool calls as objects. Otherwise they stay the very text
            that the client sent, which is what the model generated, so that its tokens are found in the cache.
    """

    def __init__(
        self, source: str, *, clock: Clock, special_tokens: Mapping[str, str] | None = None
    ) -> None:
        """Compile a template.

        Args:
            source: jinja2 text.
            clock: what `strftime_now` reads.
            special_tokens: spelled tokens by name ("bos_token", "eos_token", …), variables of the template.

        Raises:
            ModelError: the template is not valid jinja2.
        """
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        try:
            self._template = build_environment(clock).from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(f"chat template, line {error.lineno}: {error.message}") from error
        self._keeps_developer = "developer" in source
        self.parses_arguments = "arguments" in source and not self._takes_argument_text()

    @classmethod
    def from_path(cls, path: Path, *, clock: Clock) -> "ChatTemplate":
        """Open the template of a model, a directory or a `.gguf` file; ChatML if it has none.

        Raises:
            ModelError: a file is damaged or the template is not valid.
        """
        if path.is_dir():
            return cls.from_directory(path, clock=clock)
        return cls.from_gguf_metadata(read_gguf_metadata(path), clock=clock)

    @classmethod
    def from_directory(cls, path: Path, *, clock: Clock) -> "ChatTemplate":
        """Open the template of a Hugging Face model directory; ChatML if it has none.

        Looks at `chat_template.jinja`, then at `chat_template` of `tokenizer_config.json`.

        Raises:
            ModelError: a file is damaged or the template is not valid.
        """
        config = read_json_object(path / "tokenizer_config.json")
        file = path / "chat_template.jinja"
        source: object = file.read_text(encoding="utf-8") if file.is_file() else None
        source = source or _default_template(config.get("chat_template"))
        tokens: dict[str, str] = {}
        for name in _TOKEN_NAMES:
            token = config.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                tokens[name] = token
        text = source if isinstance(source, str) else CHATML_TEMPLATE
        return cls(text, clock=clock, special_tokens=tokens)

    @classmethod
    def from_gguf_metadata(cls, metadata: Mapping[str, object], *, clock: Clock) -> "ChatTemplate":
        """Take the template from GGUF metadata; ChatML if there is none.

        Raises:
            ModelError: the template is not valid.
        """
        tokens: dict[str, str] = {}
        vocabulary = metadata.get("tokenizer.ggml.tokens")
        for name, key in zip(_TOKEN_NAMES, ("bos", "eos", "unknown", "padding"), strict=True):
            token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
            if isinstance(vocabulary, list) and isinstance(token_id, int):
                tokens[name] = str(vocabulary[token_id])
        source = metadata.get("tokenizer.chat_template")
        text = source if isinstance(source, str) else CHATML_TEMPLATE
        return cls(text, clock=clock, special_tokens=tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Write the prompt of a chat.

        Args:
            messages: as clients send them; see `normalize_messages`.
            tools: definitions of tools; an empty list is the same as None.
            add_generation_prompt: end with the opener of an answer.
            options: further variables of the template, for example `enable_thinking` or `reasoning_effort`.

        Returns:
            Text whose special tokens are meant as such: encode it with `add_special=False`.

        Raises:
            RequestError: the template refuses these messages, or an option has a reserved name.
        """
        return self.render_normalized(
            self.normalize(messages),
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            options=options,
        )

    def normalize(self, messages: Sequence[Mapping[str, object]]) -> list[ChatMessage]:
        """Bring messages to the form this template expects; see `normalize_messages`.

        Raises:
            RequestError: a message is no message, or has content other than text.
        """
        return normalize_messages(
            messages,
            parses_arguments=self.parses_arguments,
            keeps_developer=self._keeps_developer,
        )

    def render_normalized(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Write the prompt of messages from `normalize`; see `render`."""
        variables: dict[str, object] = {**self._special_tokens, **(options or {})}
        if not _RESERVED.isdisjoint(options or {}):
            names = ", ".join(sorted(_RESERVED))
            raise RequestError(f"may not set {names}", param="chat_template_kwargs")
        try:
            return self._template.render({
                "documents": None,
                **variables,
                "messages": messages,
                "tools": list(tools) if tools else None,
                "add_generation_prompt": add_generation_prompt,
            })
        except jinja2.TemplateError as error:
            message = f"the model's chat template refuses these messages: {error.message}"
            raise RequestError(message, param="messages") from error
        except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            message = f"the model's chat template cannot render these messages: {error}"
            raise RequestError(message, param="messages") from error

    def _takes_argument_text(self) -> bool:
        """Try whether arguments given as JSON text appear unchanged in the prompt."""
        function = {"name": "probe", "arguments": _PROBE_ARGUMENTS}
        call = {"id": "call12345", "type": "function", "function": function}
        messages: list[ChatMessage] = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        try:
            text = self.render_normalized(messages, add_generation_prompt=False)
        except RequestError:
            return False
        return _PROBE_ARGUMENTS in text


def _default_template(source: object) -> object:
    """Choose among named templates, a list of `{"name", "template"}`."""
    if not isinstance(source, list):
        return source
    by_name = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}
    return by_name.get("default") or next(iter(by_name.values()), None)
