"""One choice of a request: its tokens become text, up to a stop. Knows nothing about other choices or formats."""

from dataclasses import dataclass

from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestStats,
    StartedEvent,
    TokenLogprob,
    TokensEvent,
)
from ninfer.server.text_port import Detokenizer
from ninfer.text.stop_strings import StopMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownToken:
    """A token of the answer with its log-probabilities.

    Attributes:
        logprob: as the engine reported it.
        text_offset: characters of the answer before it.
    """

    logprob: TokenLogprob
    text_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDelta:
    """What one event added to an answer.

    Attributes:
        text: may be empty.
        tokens: with log-probabilities, if they were asked for.
        num_tokens: how many tokens were added.
        is_last: nothing follows.
    """

    text: str = ""
    tokens: tuple[ShownToken, ...] = ()
    num_tokens: int = 0
    is_last: bool = False


class Lane:
    """The answer of one `GenerationRequest` while it grows.

    Attributes:
        index: number of the choice in the response.
        request: what was asked of the engine.
        num_tokens: tokens of the answer, a stop token included.
        is_stopped: the answer is complete although the engine may go on.
        finished: the engine's last event.

    Args:
        index: number of the choice in the response.
        request: what is asked of the engine.
        detokenizer: at the beginning of a text.
        stops: stop strings.
    """

    def __init__(
        self, index: int, request: GenerationRequest, detokenizer: Detokenizer, stops: StopMatcher
    ) -> None:
        """Begin an empty answer."""
        self.index = index
        self.request = request
        self.num_tokens = 0
        self.is_stopped = False
        self.finished: FinishedEvent | None = None
        self._num_cached = 0
        self._num_chars = 0
        self._detokenizer = detokenizer
        self._stops = stops

    @property
    def is_first_of_prompt(self) -> bool:
        """True for the choice that computes the prompt, False for its forks."""
        return self.request.fork_of is None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended, None while it grows."""
        if self.finished is None:
            return None
        return FinishReason.STOP if self.is_stopped else self.finished.reason

    @property
    def stats(self) -> RequestStats:
        """What it cost, as far as is known."""
        if self.finished is not None:
            return self.finished.stats
        return RequestStats(
            num_prompt_tokens=len(self.request.prompt_token_ids),
            num_cached_tokens=self._num_cached,
            num_completion_tokens=self.num_tokens,
        )

    def start(self, event: StartedEvent) -> None:
        """Note that the prompt is being computed."""
        self._num_cached = event.num_cached_tokens

    def push(self, event: TokensEvent) -> LaneDelta:
        """Append tokens, up to the first stop; what comes after it is ignored."""
        text = ""
        tokens: list[ShownToken] = []
        before = self.num_tokens
        for position, token_id in enumerate(event.token_ids):
            if self.is_stopped:
                break
            self.num_tokens += 1
            if token_id in self.request.stop_token_ids:
                break
            if position < len(event.logprobs):
                tokens.append(
                    ShownToken(logprob=event.logprobs[position], text_offset=self._num_chars)
                )
            piece = self._detokenizer.push((token_id,))
            self._num_chars += len(piece)
            result = self._stops.push(piece)
            text += result.text
            self.is_stopped = result.is_stopped
        return LaneDelta(text=text, tokens=tuple(tokens), num_tokens=self.num_tokens - before)

    def finish(self, event: FinishedEvent) -> LaneDelta:
        """Take the engine's last event; return the text that was held back."""
        self.finished = event
        if self.is_stopped:
            return LaneDelta(is_last=True)
        result = self._stops.push(self._detokenizer.flush())
        self.is_stopped = result.is_stopped
        return LaneDelta(text=result.text + self._stops.flush(), is_last=True)

    def stop(self) -> None:
        """Call the answer complete; tokens that still arrive are ignored."""
        self.is_stopped = True
