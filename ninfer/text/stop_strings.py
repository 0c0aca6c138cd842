"""Finds stop strings in text that arrives in pieces. Knows nothing about tokens."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopResult:
    """What became certain with a piece of text.

    Attributes:
        text: text to emit now; never contains any part of a stop that was, or still may be, matched.
        stop: the stop string that was found, None if none was.
    """

    text: str
    stop: str | None = None

    @property
    def is_stopped(self) -> bool:
        """True if a stop string was found."""
        return self.stop is not None


class StopMatcher:
    """Emits text up to the first stop string, holding back whatever may still become one.

    The stop that is complete first as the text arrives character by character is the one that counts, whatever the
    pieces are; of several that end at the same character, the longest.

    Invariants:
        emitted + held back == everything pushed, while not stopped
        held back is the longest suffix that is a proper prefix of a stop string
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Begin an empty text.

        Args:
            stops: stop strings; empty ones are ignored.
        """
        self._stops = tuple(sorted({stop for stop in stops if stop}, key=len))
        self._max_held = max((len(stop) for stop in self._stops), default=1) - 1
        self._held = ""
        self._is_stopped = False

    def push(self, delta: str) -> StopResult:
        """Append text.

        Args:
            delta: what arrived; ignored after a stop was found.

        Returns:
            What may be emitted. After a stop was found, nothing ever again.
        """
        if self._is_stopped:
            return StopResult("")
        if not self._stops:
            return StopResult(delta)
        text = self._held + delta
        found = self._first_stop(text)
        if found is not None:
            position, stop = found
            self._is_stopped = True
            self._held = ""
            return StopResult(text[:position], stop)
        border = len(text) - self._held_length(text)
        self._held = text[border:]
        return StopResult(text[:border])

    def flush(self) -> str:
        """End the text; return what was held back. Empty after a stop was found."""
        text, self._held = self._held, ""
        return text

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        """Find the stop that counts, as (position, stop); None if there is none."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            position = text.find(stop)
            if position >= 0:
                key = (position + len(stop), position, stop)
                best = key if best is None or key < best else best
        return None if best is None else (best[1], best[2])

    def _held_length(self, text: str) -> int:
        for length in range(min(self._max_held, len(text)), 0, -1):
            suffix = text[-length:]
            if any(len(stop) > length and stop.startswith(suffix) for stop in self._stops):
                return length
        return 0
