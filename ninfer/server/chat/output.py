"""Text of one choice becomes reasoning, content and tool calls. Knows nothing about response formats."""

from dataclasses import dataclass

from ninfer.core.request import FinishReason
from ninfer.server.chat.reasoning import ReasoningSplitter
from ninfer.server.chat.tool_parser import CallDelta, ParsedDelta, ToolCallParser
from ninfer.server.generation.lane import Lane, LaneDelta, ShownToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDelta:
    """What one event added to a choice."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()
    tokens: tuple[ShownToken, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to tell."""
        return not (self.reasoning or self.content or self.calls or self.tokens)


class ChatOutput:
    """The answer of one choice while it grows.

    Attributes:
        num_reasoning_tokens: tokens inside `<think>`.

    Args:
        lane: where its text comes from.
        splitter: at the beginning of the answer.
        parser: at the beginning of the answer.
        is_one_call_enough: the answer ends with its first tool call.
    """

    def __init__(
        self,
        lane: Lane,
        splitter: ReasoningSplitter,
        parser: ToolCallParser,
        *,
        is_one_call_enough: bool,
    ) -> None:
        """Begin an empty answer."""
        self.lane = lane
        self.num_reasoning_tokens = 0
        self._splitter = splitter
        self._parser = parser
        self._is_one_call_enough = is_one_call_enough

    @property
    def is_complete(self) -> bool:
        """True if the engine need not go on."""
        return self._is_one_call_enough and self._parser.num_complete > 0

    @property
    def finish_reason(self) -> str:
        """OpenAI's finish reason: `length` wins over `tool_calls`, so that clients do not run half a call."""
        if self.lane.finish_reason is FinishReason.LENGTH:
            return "length"
        return "tool_calls" if self._parser.num_calls else "stop"

    def push(self, delta: LaneDelta) -> ChatDelta:
        """Append text; with the last delta, everything that was held back comes out."""
        reasoning, content = self._splitter.push(delta.text)
        if self._splitter.is_inside:
            self.num_reasoning_tokens += delta.num_tokens
        parsed = self._parse(content)
        if delta.is_last:
            late_reasoning, late_content = self._splitter.flush()
            reasoning += late_reasoning
            for part in (self._parse(late_content), self._parser.flush()):
                parsed.content += part.content
                parsed.calls += part.calls
        return ChatDelta(
            reasoning=reasoning,
            content=parsed.content,
            calls=tuple(parsed.calls),
            tokens=delta.tokens,
        )

    def _parse(self, content: str) -> ParsedDelta:
        if self.is_complete:
            return ParsedDelta()
        return self._parser.push(content)
