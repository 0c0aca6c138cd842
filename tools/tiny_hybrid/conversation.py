"""A conversation and how the chat template writes it. Knows nothing about what is said."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Message = dict[str, object]
"""As clients send them: role, content, maybe reasoning_content and tool_calls."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text.

    Attributes:
        text: the part.
        is_answer: written by the model, so it is learned.
    """

    text: str
    is_answer: bool


@dataclass(slots=True)
class Conversation:
    """Messages and tools of one chat.

    Attributes:
        messages: ends with an assistant message.
        tools: definitions, empty for none.
        is_thinking: the last answers begin with a thinking block that is not empty.
    """

    messages: list[Message] = field(default_factory=list)
    tools: list[Message] = field(default_factory=list)
    is_thinking: bool = False

    def say(self, role: str, content: str, **more: object) -> "Conversation":
        """Append a message."""
        self.messages.append({"role": role, "content": content, **more})
        return self

    def segments(self) -> list[Segment]:
        """Write the conversation as the chat template does, answers apart from the rest."""
        head, messages = self._head()
        segments = [Segment(head, is_answer=False)] if head else []
        last_query = max(
            (i for i, message in enumerate(messages) if message["role"] == "user"), default=0
        )
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                segments += self._answer(message, thinks=index > last_query)
            elif message["role"] == "tool":
                segments.append(Segment(self._tool_response(messages, index), is_answer=False))
            else:
                text = f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
                segments.append(Segment(text, is_answer=False))
        return segments

    def text(self) -> str:
        """Write the whole conversation."""
        return "".join(segment.text for segment in self.segments())

    def _head(self) -> tuple[str, list[Message]]:
        if not self.tools:
            return "", self.messages
        has_system = bool(self.messages) and self.messages[0]["role"] == "system"
        system = f"{self.messages[0]['content']}\n\n" if has_system else ""
        tools = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in self.tools)
        text = (
            f"<|im_start|>system\n{system}# Tools\n\nFunctions you may call:\n<tools>{tools}\n</tools>\n\n"
            "To call one, write its name and arguments as JSON:\n<tool_call>\n"
            '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
        )
        return text, self.messages[1:] if has_system else self.messages

    def _answer(self, message: Mapping[str, object], *, thinks: bool) -> list[Segment]:
        opener, body = "<|im_start|>assistant\n", str(message["content"])
        if thinks:
            reasoning = message.get("reasoning_content")
            if self.is_thinking and reasoning is not None:
                opener += "<think>\n"
                body = f"{reasoning}\n</think>\n\n{body}"
            else:
                opener += "<think>\n\n</think>\n\n"
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            function = call["function"]
            line = (
                f'{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}'
            )
            body += ("\n" if message["content"] or call is not calls[0] else "") + (
                f"<tool_call>\n{line}\n</tool_call>"
            )
        return [
            Segment(opener, is_answer=False),
            Segment(body + "<|im_end|>", is_answer=True),
            Segment("\n", is_answer=False),
        ]

    @staticmethod
    def _tool_response(messages: Sequence[Message], index: int) -> str:
        is_first = index == 0 or messages[index - 1]["role"] != "tool"
        is_last = index + 1 == len(messages) or messages[index + 1]["role"] != "tool"
        text = "<|im_start|>user" if is_first else ""
        text += f"\n<tool_response>\n{messages[index]['content']}\n</tool_response>"
        return text + ("<|im_end|>\n" if is_last else "")
