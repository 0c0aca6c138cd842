"""Checks messages, so that every error names its field. Knows nothing about templates, which get them unchanged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.core.errors import RequestError
from ninfer.server.errors import UnsupportedField
from ninfer.server.generation.cache_fields import mark_seconds

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_TEXT_PARTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
_MARKS: Final = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMarks:
    """What clients say about caching inside messages.

    Attributes:
        messages: indices of those after which a checkpoint is wanted, ascending.
        seconds: longest lifetime asked for, 0 for none.
    """

    messages: tuple[int, ...]
    seconds: int


def check_messages(messages: Sequence[Mapping[str, Any]]) -> CacheMarks:
    """Check messages as clients send them.

    Args:
        messages: at least one.

    Returns:
        The cache marks.

    Raises:
        RequestError: a message is not one.
        UnsupportedField: it has a part that is not text, or a field that is not supported.
    """
    marked: dict[int, int] = {}
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        _check_role(message, param)
        marks = _check_content(message, param)
        if marks:
            marked[index] = max(marks)
        for name in ("reasoning_content", "reasoning", "name", "tool_call_id"):
            _check_text(message.get(name), f"{param}.{name}")
        if message["role"] == "assistant":
            _check_tool_calls(message.get("tool_calls"), f"{param}.tool_calls")
        for name in ("audio", "function_call"):
            if message.get(name) is not None:
                raise UnsupportedField(
                    f"'{param}.{name}' is not supported by this server.", param=f"{param}.{name}"
                )
    return CacheMarks(messages=tuple(marked), seconds=max(marked.values(), default=0))


def _check_role(message: Mapping[str, Any], param: str) -> None:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"'{param}.role' must be one of {', '.join(sorted(_ROLES))}.", param=f"{param}.role"
        )


def _check_text(value: object, param: str) -> None:
    if value is not None and not isinstance(value, str):
        raise RequestError(f"'{param}' must be a string.", param=param)


def _check_content(message: Mapping[str, Any], param: str) -> list[int]:
    """Check the content; return the lifetimes of the cache marks of it and of the message, in seconds."""
    content = message.get("content")
    marks = _check_marks(message, param)
    param = f"{param}.content"
    if content is None:
        can_be_empty = message["role"] == "assistant" and any(
            message.get(name)
            for name in ("tool_calls", "reasoning_content", "reasoning", "refusal")
        )
        if not can_be_empty:
            raise RequestError(
                f"'{param}' is required, except for an assistant message with tool_calls.",
                param=param,
            )
        return marks
    if isinstance(content, str):
        return marks
    if not isinstance(content, list):
        raise RequestError(f"'{param}' must be a string or a list of parts.", param=param)
    for index, part in enumerate(content):
        marks += _check_part(part, f"{param}[{index}]")
    return marks


def _check_part(part: object, param: str) -> list[int]:
    if not isinstance(part, dict):
        raise RequestError(f"'{param}' must be an object.", param=param)
    kind = part.get("type")
    if not isinstance(kind, str):
        raise RequestError(f"'{param}.type' must be a string.", param=f"{param}.type")
    if kind not in _TEXT_PARTS:
        raise UnsupportedField(
            f"'{param}' has type {kind[:40]!r}; this server reads text only.", param=param
        )
    name = _TEXT_PARTS[kind]
    if not isinstance(part.get(name), str):
        raise RequestError(f"'{param}.{name}' must be a string.", param=f"{param}.{name}")
    return _check_marks(part, param)


def _check_marks(holder: Mapping[str, Any], param: str) -> list[int]:
    """Check cache marks of a message or part; return their lifetimes in seconds, 0 for none."""
    lifetimes = []
    for name in _MARKS:
        mark = holder.get(name)
        if mark is None:
            continue
        if not isinstance(mark, dict):
            raise RequestError(f"'{param}.{name}' must be an object.", param=f"{param}.{name}")
        lifetimes.append(mark_seconds(mark, f"{param}.{name}"))
    return lifetimes


def _check_tool_calls(calls: object, param: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise RequestError(f"'{param}' must be a list.", param=param)
    for index, call in enumerate(calls):
        name = f"{param}[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise RequestError(f"'{name}.function' must be an object.", param=f"{name}.function")
        if not isinstance(function.get("name"), str):
            raise RequestError(
                f"'{name}.function.name' must be a string.", param=f"{name}.function.name"
            )
        # Arguments may be a call that was cut, so they need not be JSON; some clients send them as an object.
        if not isinstance(function.get("arguments"), str | dict | None):
            raise RequestError(
                f"'{name}.function.arguments' must be a string.", param=f"{name}.function.arguments"
            )
