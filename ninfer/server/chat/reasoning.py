"""Splits an answer into reasoning and content at `<think>` and `</think>`. Knows nothing about tools.

Reasoning and content come out as templates of Qwen3 and DeepSeek want them back: without the line breaks next to the
tags, so that history renders to the very tokens that were generated.
"""

from enum import Enum, auto
from typing import Final

from ninfer.server.chat.tags import split_at_tag, split_trailing_space

OPEN_TAG: Final = "<think>"
CLOSE_TAG: Final = "</think>"


class _State(Enum):
    BEFORE = auto()
    LEADING = auto()
    """Inside, but nothing of it seen yet."""
    INSIDE = auto()
    BETWEEN = auto()
    """After the closing tag, but nothing of the content seen yet."""
    CONTENT = auto()


class ReasoningSplitter:
    """Takes text in pieces, gives `(reasoning, content)` in pieces. Holds back what may become a tag.

    Args:
        is_active: False passes all text on as content.
        is_open: the prompt ended with the opening tag; the answer begins inside.
    """

    def __init__(self, *, is_active: bool, is_open: bool = False) -> None:
        """Begin an empty answer."""
        self._held = ""
        self._state = _State.CONTENT
        if is_active:
            self._state = _State.LEADING if is_open else _State.BEFORE

    @property
    def is_inside(self) -> bool:
        """True while reasoning goes on."""
        return self._state in {_State.LEADING, _State.INSIDE}

    def push(self, text: str) -> tuple[str, str]:
        """Append text; return the reasoning and the content that became certain."""
        if self._state is _State.CONTENT:
            return "", text
        self._held += text
        if self._state is _State.BEFORE:
            self._leave_before()
        reasoning = self._take_reasoning() if self.is_inside else ""
        content = ""
        if self._state is _State.BETWEEN:
            self._held = self._held.lstrip("\n")
            if self._held:
                self._state = _State.CONTENT
        if self._state is _State.CONTENT:
            content, self._held = self._held, ""
        return reasoning, content

    def flush(self) -> tuple[str, str]:
        """End the answer; return what was held back."""
        held, self._held = self._held, ""
        if self._state is _State.BETWEEN:
            return "", ""
        return (held.rstrip("\n"), "") if self.is_inside else ("", held)

    def _leave_before(self) -> None:
        begun = self._held.lstrip()
        if begun.startswith(OPEN_TAG):
            self._held = begun.removeprefix(OPEN_TAG)
            self._state = _State.LEADING
        elif not OPEN_TAG.startswith(begun):
            self._state = _State.CONTENT

    def _take_reasoning(self) -> str:
        if self._state is _State.LEADING:
            self._held = self._held.lstrip("\n")
            if self._held:
                self._state = _State.INSIDE
        before, rest, is_closed = split_at_tag(self._held, CLOSE_TAG)
        reasoning, space = split_trailing_space(before, "\n")
        if is_closed:
            self._held = rest
            self._state = _State.BETWEEN
        else:
            self._held = space + rest
        return reasoning
