"""The JSON of chat completions, whole and in chunks. Knows nothing about where it comes from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ninfer.server.chat.logprobs import chat_logprobs
from ninfer.server.chat.output import ChatDelta
from ninfer.server.chat.tool_parser import CallDelta
from ninfer.server.generation.lane import ShownToken

TokenBytesFunction = Callable[[int], bytes]


@dataclass(slots=True)
class WholeChoice:
    """A choice of an answer that is sent at once."""

    index: int
    finish_reason: str = "stop"
    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[dict[str, str]] = field(default_factory=list)
    tokens: list[ShownToken] = field(default_factory=list)

    def add(self, delta: ChatDelta) -> None:
        """Append a part."""
        self.reasoning.append(delta.reasoning)
        self.content.append(delta.content)
        self.tokens += delta.tokens
        for call in delta.calls:
            if call.name is not None:
                self.calls.append({"id": call.call_id or "", "name": call.name, "arguments": ""})
            self.calls[call.index]["arguments"] += call.arguments

    def to_json(self, token_bytes: TokenBytesFunction | None) -> dict[str, object]:
        """Return the choice.

        Args:
            token_bytes: bytes of a token, None without log-probabilities.
        """
        content = "".join(self.content)
        message: dict[str, object] = {
            "role": "assistant",
            "content": content if content or not self.calls else None,
            "refusal": None,
        }
        reasoning = "".join(self.reasoning)
        if reasoning:
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in self.calls
            ]
        return {
            "index": self.index,
            "message": message,
            "logprobs": None if token_bytes is None else chat_logprobs(self.tokens, token_bytes),
            "finish_reason": self.finish_reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What all chunks of an answer have in common.

    Attributes:
        answer_id: `chatcmpl-…`.
        created_unix: whole seconds.
        model: served name.
        has_usage: a stream was asked to end with usage, so other chunks carry a null.
    """

    answer_id: str
    created_unix: int
    model: str
    has_usage: bool = False

    def whole(self, choices: Sequence[dict[str, object]]) -> dict[str, object]:
        """Return a whole answer, without usage."""
        return {
            "id": self.answer_id,
            "object": "chat.completion",
            "created": self.created_unix,
            "model": self.model,
            "choices": list(choices),
        }

    def chunk(self, choices: Sequence[dict[str, object]]) -> dict[str, object]:
        """Return a chunk."""
        chunk: dict[str, object] = {
            "id": self.answer_id,
            "object": "chat.completion.chunk",
            "created": self.created_unix,
            "model": self.model,
            "choices": list(choices),
        }
        if self.has_usage:
            chunk["usage"] = None
        return chunk


def opening_choice(index: int) -> dict[str, object]:
    """Return the first chunk's choice, which tells the role."""
    return {
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }


def delta_choice(
    index: int, delta: ChatDelta, token_bytes: TokenBytesFunction | None
) -> dict[str, object]:
    """Return a chunk's choice with new parts."""
    shown: dict[str, object] = {}
    if delta.reasoning:
        shown["reasoning_content"] = delta.reasoning
    if delta.content or not (delta.reasoning or delta.calls):
        shown["content"] = delta.content
    if delta.calls:
        shown["tool_calls"] = [_call_json(call) for call in delta.calls]
    return {
        "index": index,
        "delta": shown,
        "logprobs": None if token_bytes is None else chat_logprobs(delta.tokens, token_bytes),
        "finish_reason": None,
    }


def closing_choice(index: int, finish_reason: str) -> dict[str, object]:
    """Return the last chunk's choice, which tells why the answer ended."""
    return {"index": index, "delta": {}, "logprobs": None, "finish_reason": finish_reason}


def _call_json(call: CallDelta) -> dict[str, object]:
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {
        "index": call.index,
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
