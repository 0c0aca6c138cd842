"""Chat messages as clients spell them, brought to the one form that templates expect. Knows nothing about templates."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from ninfer.core.errors import RequestError
from ninfer.text.well_formed import well_formed

ChatMessage = dict[str, object]
"""One message: `role`, `content` as text, and whatever else the client sent."""

_TEXT_KINDS: Final = frozenset({"text", "input_text", "output_text", "refusal"})


def normalize_messages(
    messages: Sequence[Mapping[str, object]], *, parses_arguments: bool, keeps_developer: bool
) -> list[ChatMessage]:
    """Bring messages to the form that templates expect. The input is not changed.

    Content given as parts becomes one text, missing content becomes an empty one, `reasoning` and
    `reasoning_content` are both there if one is, fields that are None disappear, lone surrogates become U+FFFD.

    Args:
        messages: as the client sent them.
        parses_arguments: give arguments of tool calls as objects, not as JSON text. Text that is no JSON object (a
            call that was cut) becomes `{"raw_arguments": text}`.
        keeps_developer: leave the role `developer` alone, else it becomes `system`.

    Raises:
        RequestError: a message is no message, or has content other than text.
    """
    if not messages:
        raise RequestError("messages is empty", param="messages")
    normalized = []
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        role = message.get("role")
        if not isinstance(role, str):
            raise RequestError(f"{param} has no role", param="messages")
        result: ChatMessage = {
            key: _repaired(value) for key, value in message.items() if value is not None
        }
        result["role"] = "system" if role == "developer" and not keeps_developer else role
        result["content"] = _content_text(result.get("content"), param)
        _complete_reasoning(result)
        if "tool_calls" in result:
            result["tool_calls"] = _tool_calls(
                result["tool_calls"], param, parses_arguments=parses_arguments
            )
        normalized.append(result)
    return normalized


def _repaired(value: object) -> object:
    """Copy a JSON value with every string valid Unicode."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {key: _repaired(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_repaired(item) for item in value]
    return value


def _content_text(content: object, param: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{param}.content is neither text nor a list of parts", param="messages")
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        text = (part.get("text") or part.get("refusal")) if isinstance(part, dict) else None
        if kind not in _TEXT_KINDS or not isinstance(text, str | None):
            raise RequestError(
                f"{param}.content has a part of type {kind!r}; this model reads text only",
                param="messages",
            )
        texts.append(text or "")
    return "\n".join(texts)


def _complete_reasoning(message: ChatMessage) -> None:
    reasoning = message.get("reasoning_content", message.get("reasoning"))
    if isinstance(reasoning, str):
        message.setdefault("reasoning_content", reasoning)
        message.setdefault("reasoning", reasoning)


def _tool_calls(calls: object, param: str, *, parses_arguments: bool) -> list[object]:
    if not isinstance(calls, list):
        raise RequestError(f"{param}.tool_calls is not a list", param="messages")
    return [_tool_call(call, param, parses_arguments=parses_arguments) for call in calls]


def _tool_call(call: object, param: str, *, parses_arguments: bool) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise RequestError(f"{param}.tool_calls has an item without a function", param="messages")
    arguments = function.get("arguments")
    if arguments is None:
        arguments = {} if parses_arguments else "{}"
    elif isinstance(arguments, str) and parses_arguments:
        arguments = _parsed(arguments)
    elif not isinstance(arguments, str) and not parses_arguments:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _parsed(arguments: str) -> dict[str, object]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"raw_arguments": arguments}
