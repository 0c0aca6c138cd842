"""Reads a JSON object's members while its text arrives. Knows nothing about tool calls.

Members of the object itself are found by position, so that their text comes out exactly as it was written.
"""

from dataclasses import dataclass

import orjson


@dataclass(slots=True)
class _Span:
    """A value's half-open range in the text; `end` is None while it grows."""

    start: int
    end: int | None = None


class JsonObjectScanner:
    """Takes the text of one JSON object in pieces.

    Attributes:
        is_done: the object is complete.
        is_broken: the text is not a JSON object.
    """

    def __init__(self) -> None:
        """Begin before the opening brace."""
        self.is_done = False
        self.is_broken = False
        self._text = ""
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._key_start: int | None = None
        self._key: str | None = None
        self._span: _Span | None = None
        self._members: dict[str, _Span] = {}

    @property
    def text(self) -> str:
        """Everything that was taken."""
        return self._text

    def push(self, piece: str) -> str:
        """Append text.

        Returns:
            What follows the end of the object, or the character that broke it; empty while it grows.
        """
        base = len(self._text)
        self._text += piece
        for position, char in enumerate(piece, start=base):
            self._step(char, position)
            if self.is_done or self.is_broken:
                self._text = self._text[: position + 1]
                return piece[position + 1 - base :]
        return ""

    def member(self, name: str) -> tuple[str, bool] | None:
        """Return the text of a member's value so far and whether it is complete, None if it has not begun."""
        span = self._members.get(name)
        if span is None:
            return None
        return self._text[span.start : span.end].strip(), span.end is not None

    def _step(self, char: str, position: int) -> None:
        if self._is_in_string:
            self._step_in_string(char, position)
        elif char == '"':
            self._is_in_string = True
            if self._depth == 1 and self._span is None:
                self._key_start = position
        elif char in "{[":
            self._depth += 1
            self.is_broken = self._depth == 1 and char == "["
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end_value(position)
                self.is_done = True
        elif self._depth == 1 and char == ",":
            self._end_value(position)
        elif self._depth == 1 and char == ":" and self._span is None:
            self._begin_value(position + 1)
        elif self._depth == 0 and not char.isspace():
            self.is_broken = True
        self.is_broken = self.is_broken or self._depth < 0

    def _step_in_string(self, char: str, position: int) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._is_in_string = False
            if self._key_start is not None:
                self._key = _decoded(self._text[self._key_start : position + 1])
                self._key_start = None

    def _begin_value(self, start: int) -> None:
        if self._key is None:
            self.is_broken = True
            return
        self._span = self._members[self._key] = _Span(start)

    def _end_value(self, end: int) -> None:
        if self._span is not None:
            self._span.end = end
        self._span = None
        self._key = None


def _decoded(text: str) -> str | None:
    """Return the string that a JSON string literal stands for, None if it is damaged."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) else None


def decoded_string(text: str) -> str | None:
    """Return the string that a complete JSON value stands for, None if it is not a string."""
    return _decoded(text) if text.startswith('"') else None
