"""The request body of chat completions. Knows nothing about how it is answered."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from typing_extensions import override

from ninfer.core.errors import RequestError
from ninfer.server.errors import UnsupportedField
from ninfer.server.generation.schema import (
    MAX_TOP_LOGPROBS,
    UNSUPPORTED_FIELDS,
    GenerationFields,
)

_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    **UNSUPPORTED_FIELDS,
    "audio": (),
    "best_of": (1,),
    "cache_control": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}
_RESERVED_OPTIONS: Final = ("messages", "tools", "add_generation_prompt")


class ChatRequest(GenerationFields):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None

    @classmethod
    @override
    def unsupported_fields(cls) -> Mapping[str, tuple[object, ...]]:
        """Return fields that are refused."""
        return _UNSUPPORTED

    @property
    def completion_limit(self) -> int | None:
        """Tokens to generate at most, None for what the context leaves."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to report per token, None for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def used_tools(self) -> list[dict[str, Any]]:
        """Tools that the model is told about."""
        return [] if self.tool_choice == "none" else list(self.tools or ())

    @property
    def template_options(self) -> dict[str, object]:
        """Variables of the chat template.

        `reasoning_effort` is passed on, and sets `enable_thinking`, unless `chat_template_kwargs` does.
        """
        options: dict[str, object] = {}
        if self.reasoning_effort is not None:
            options["reasoning_effort"] = self.reasoning_effort
            options["enable_thinking"] = self.reasoning_effort != "none"
        options.update(self.chat_template_kwargs or {})
        return options

    def check_chat(self) -> None:
        """Check what a schema cannot.

        Raises:
            RequestError: fields contradict each other, or a tool is none.
            UnsupportedField: the model would have to be forced to call a tool.
        """
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError(
                "'top_logprobs' is only allowed with 'logprobs': true.", param="top_logprobs"
            )
        if isinstance(self.tool_choice, dict) or self.tool_choice == "required":
            raise UnsupportedField(
                '\'tool_choice\' may be "auto" or "none"; forcing a tool is not supported by this server.',
                param="tool_choice",
            )
        for index, tool in enumerate(self.tools or ()):
            _check_tool(tool, f"tools[{index}]")
        for name in _RESERVED_OPTIONS:
            if name in (self.chat_template_kwargs or {}):
                raise RequestError(
                    f"'chat_template_kwargs' may not set '{name}'.", param="chat_template_kwargs"
                )


def _check_tool(tool: dict[str, Any], param: str) -> None:
    if tool.get("type") != "function":
        raise UnsupportedField(
            f"'{param}.type' must be \"function\"; other tools are not supported by this server.",
            param=f"{param}.type",
        )
    function = tool.get("function")
    if not isinstance(function, dict):
        raise RequestError(f"'{param}.function' must be an object.", param=f"{param}.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(
            f"'{param}.function.name' must be a non-empty string.", param=f"{param}.function.name"
        )
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise RequestError(
            f"'{param}.function.parameters' must be an object.",
            param=f"{param}.function.parameters",
        )
