"""Finds tool calls in an answer: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Knows nothing about HTTP.

Source: the Hermes format, https://github.com/NousResearch/Hermes-Function-Calling, which templates of Qwen use too.
"""

import uuid
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from ninfer.server.chat.json_scanner import JsonObjectScanner, decoded_string
from ninfer.server.chat.tags import split_at_tag, split_trailing_space

OPEN_TAG: Final = "<tool_call>"
CLOSE_TAG: Final = "</tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A part of a tool call.

    Attributes:
        index: number of the call in the answer.
        arguments: next part of the arguments' text, exactly as the model wrote it.
        call_id: only in the first part.
        name: only in the first part.
    """

    index: int
    arguments: str = ""
    call_id: str | None = None
    name: str | None = None


@dataclass(slots=True)
class ParsedDelta:
    """What became certain with a piece of text: content, then parts of calls."""

    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class _State(Enum):
    CONTENT = auto()
    INSIDE = auto()
    AFTER = auto()
    """The object is complete, the closing tag is not."""


class ToolCallParser:
    """Takes text in pieces, gives content and parts of calls in pieces. State of one choice.

    Text that turns out not to be a call comes out as content: nothing is lost. White space between content and a call
    is dropped, because templates put it back.

    Attributes:
        num_calls: calls whose name is known.
        num_complete: calls that were completed.

    Args:
        is_active: False passes all text on as content.
    """

    def __init__(self, *, is_active: bool) -> None:
        """Begin an empty answer."""
        self.num_calls = 0
        self.num_complete = 0
        self._is_active = is_active
        self._state = _State.CONTENT
        self._held = ""
        self._space = ""
        self._scanner = JsonObjectScanner()
        self._is_named = False
        self._num_sent = 0

    def push(self, text: str) -> ParsedDelta:
        """Append text; return what became certain."""
        delta = ParsedDelta()
        if not self._is_active:
            delta.content = text
            return delta
        rest = self._held + text
        self._held = ""
        is_moving = True
        while is_moving:
            if self._state is _State.CONTENT:
                rest, is_moving = self._read_content(rest, delta)
            elif self._state is _State.INSIDE:
                rest, is_moving = self._read_call(rest, delta)
            else:
                rest, is_moving = self._read_end(rest)
        self._held = rest
        return delta

    def flush(self) -> ParsedDelta:
        """End the answer; return what was held back."""
        delta = ParsedDelta()
        if self._state is _State.INSIDE and not self._is_named:
            delta.content = self._unparsed()
        elif self._state is _State.INSIDE:
            self._send_arguments(delta, is_last=False)
        elif self._state is _State.CONTENT and not (self.num_calls and self._held.isspace()):
            delta.content = self._held
        self._held = ""
        self._state = _State.CONTENT
        return delta

    def _read_content(self, text: str, delta: ParsedDelta) -> tuple[str, bool]:
        before, rest, is_open = split_at_tag(text, OPEN_TAG)
        content, space = split_trailing_space(before)
        if content or not self.num_calls:
            delta.content += content
        if is_open:
            self._state = _State.INSIDE
            self._space = space
            self._scanner = JsonObjectScanner()
            self._is_named = False
            self._num_sent = 0
            return rest, True
        return space + rest, False

    def _read_call(self, text: str, delta: ParsedDelta) -> tuple[str, bool]:
        rest = self._scanner.push(text)
        if not self._scanner.is_broken:
            self._send_call(delta)
            if not self._scanner.is_done:
                return "", False
        if not self._is_named:
            delta.content += self._unparsed()
        elif self._scanner.is_done:
            self.num_complete += 1
        is_call = self._is_named and self._scanner.is_done
        self._state = _State.AFTER if is_call else _State.CONTENT
        return rest, True

    def _unparsed(self) -> str:
        """Return, as it was written, what turned out not to be a call."""
        return self._space + OPEN_TAG + self._scanner.text

    def _read_end(self, text: str) -> tuple[str, bool]:
        begun = text.lstrip()
        if begun.startswith(CLOSE_TAG):
            self._state = _State.CONTENT
            return begun.removeprefix(CLOSE_TAG), True
        if CLOSE_TAG.startswith(begun):
            return text, False
        self._state = _State.CONTENT
        return text, True

    def _send_call(self, delta: ParsedDelta) -> None:
        if not self._is_named:
            name = self._scanner.member("name")
            if name is None or not name[1]:
                return
            decoded = decoded_string(name[0])
            if not decoded:
                return
            self._is_named = True
            self.num_calls += 1
            call_id = f"call_{uuid.uuid4().hex[:24]}"
            delta.calls.append(CallDelta(index=self.num_calls - 1, call_id=call_id, name=decoded))
        self._send_arguments(delta, is_last=self._scanner.is_done)

    def _send_arguments(self, delta: ParsedDelta, *, is_last: bool) -> None:
        member = self._scanner.member("arguments") or self._scanner.member("parameters")
        if member is None:
            if not is_last:
                return
            member = ("{}", True)
        text, is_complete = member
        if is_complete and not text.startswith("{"):
            decoded = decoded_string(text)
            text = decoded if decoded is not None else ("{}" if text == "null" else text)
        elif not is_complete and not text.startswith("{"):
            return
        new = text[self._num_sent :]
        if new:
            self._num_sent = len(text)
            delta.calls.append(CallDelta(index=self.num_calls - 1, arguments=new))
