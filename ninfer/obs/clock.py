"""Where time comes from: the system, or a test. Nothing else in ninfer reads a clock."""

import time


class SystemClock:
    """The system's clocks. The calls themselves, without a layer around them: plugins are timed at every call."""

    monotonic_s = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back."""
    unix_s = staticmethod(time.time)
    """Seconds since 1970-01-01 UTC."""


class FakeClock:
    """A clock that moves only when told to.

    Args:
        start_s: first reading of both clocks.
    """

    def __init__(self, start_s: float = 1_000_000.0) -> None:
        """Start at `start_s`."""
        self._now_s = start_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now_s += seconds

    def monotonic_s(self) -> float:
        """Return the fake time in seconds."""
        return self._now_s

    def unix_s(self) -> float:
        """Return the fake time in seconds."""
        return self._now_s
