"""A chat as tokens, with the positions worth a checkpoint. Knows nothing about the cache."""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ninfer.core.errors import RequestError
from ninfer.text.chat_messages import ChatMessage
from ninfer.text.chat_template import ChatTemplate
from ninfer.text.tokenizer import EncodedText, Tokenizer
from ninfer.text.well_formed import well_formed

_MAX_TURNS: Final = 6
"""Ends of earlier turns that are looked for, newest first; older ones were found when they were new."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered and tokenized chat.

    Attributes:
        text: the prompt.
        token_ids: its tokens.
        marker_tokens: ascending token positions in (0, len(token_ids)) worth a checkpoint.
    """

    text: str
    token_ids: list[int]
    marker_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Chat:
    """What is rendered again and again with fewer messages."""

    template: ChatTemplate
    messages: list[ChatMessage]
    tools: Sequence[Mapping[str, object]] | None
    options: Mapping[str, object] | None

    def prefix(self, num_messages: int, full: str) -> int | None:
        """Return the length of the text of the first messages, None if the full text does not begin with it."""
        try:
            text = self.template.render_normalized(
                self.messages[:num_messages],
                tools=self.tools,
                add_generation_prompt=False,
                options=self.options,
            )
        except RequestError:
            return None
        text = well_formed(text)
        return len(text) if full.startswith(text) else None

    def opener_prefix(self, num_system: int, full: str) -> int | None:
        """Return the length of what the full text has in common with that of another first question.

        For templates that refuse system messages and tools without a question.
        """
        if num_system >= len(self.messages):
            return None
        content = str(self.messages[num_system]["content"])
        question: ChatMessage = {"role": "user", "content": "b" if content[:1] == "a" else "a"}
        try:
            text = self.template.render_normalized(
                [*self.messages[:num_system], question],
                tools=self.tools,
                add_generation_prompt=False,
                options=self.options,
            )
        except RequestError:
            return None
        pairs = enumerate(zip(well_formed(text), full, strict=False))
        return next((index for index, (ours, theirs) in pairs if ours != theirs), None)


def build_chat_prompt(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, object]],
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    add_generation_prompt: bool = True,
    options: Mapping[str, object] | None = None,
    marked_messages: Collection[int] = (),
) -> ChatPrompt:
    """Render and tokenize a chat, and find the borders inside it.

    A border is the end of a part of the chat after which a later request may go on differently: the tools and leading
    system messages, the last question (what follows may lose its reasoning), each of the last turns, everything
    before the opener of the answer, and what the client marked. A border counts only if the prompt really begins with
    the text of the messages before it.

    Args:
        template: the model's template.
        tokenizer: the model's tokenizer.
        messages: as clients send them.
        tools: definitions of tools.
        add_generation_prompt: end with the opener of an answer.
        options: further variables of the template.
        marked_messages: indices of messages after which the client wants a border.

    Raises:
        RequestError: see `ChatTemplate.render`.
    """
    normalized = template.normalize(messages)
    text = well_formed(
        template.render_normalized(
            normalized, tools=tools, add_generation_prompt=add_generation_prompt, options=options
        )
    )
    encoded = tokenizer.encode_with_starts(text)
    chat = _Chat(template, normalized, tools, options)
    borders = {chat.prefix(count, text) for count in _border_counts(normalized, marked_messages)}
    markers = {_token_position(encoded, border) for border in borders if border is not None}
    num_system = _num_leading_system(normalized)
    if num_system or tools:
        markers.add(_system_position(chat, num_system, text, encoded, tokenizer.special_ids))
    inside = sorted(marker for marker in markers if 0 < marker < len(encoded.token_ids))
    return ChatPrompt(text, encoded.token_ids, tuple(inside))


def _num_leading_system(messages: Sequence[ChatMessage]) -> int:
    count = 0
    while count < len(messages) and messages[count]["role"] in ("system", "developer"):
        count += 1
    return count


def _system_position(
    chat: _Chat, num_system: int, text: str, encoded: EncodedText, special_ids: frozenset[int]
) -> int:
    """Return the token position behind leading system messages and tools, 0 if unknown."""
    border = chat.prefix(num_system, text) if num_system else None
    if border is not None:
        return _token_position(encoded, border)
    border = chat.opener_prefix(num_system, text)
    if border is None:
        return 0
    return _before_special(encoded.token_ids, _token_position(encoded, border), special_ids)


def _border_counts(messages: Sequence[ChatMessage], marked_messages: Collection[int]) -> set[int]:
    """Return numbers of leading messages whose end may be a border."""
    questions = [index for index, message in enumerate(messages) if message["role"] == "user"]
    counts = {len(messages)} | {index + 1 for index in marked_messages}
    counts |= set(questions[-_MAX_TURNS:])
    if questions:
        counts.add(questions[-1] + 1)
    return {count for count in counts if 0 < count <= len(messages)}


def _token_position(encoded: EncodedText, char: int) -> int:
    """Return the last token border that is not behind a character position."""
    index = bisect_left(encoded.starts, char)
    is_border = char >= encoded.num_chars or (
        index < len(encoded.starts) and encoded.starts[index] == char
    )
    return index if is_border else max(index - 1, 0)


def _before_special(token_ids: Sequence[int], position: int, special_ids: frozenset[int]) -> int:
    """Go back from a position inside an opener to where the opener's special token begins.

    A position right before a special token stays. Without any special token before it, it stays too.
    """
    if position < len(token_ids) and token_ids[position] in special_ids:
        return position
    for index in range(position - 1, -1, -1):
        if token_ids[index] in special_ids:
            return index or position
    return position
