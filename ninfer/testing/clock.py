"""A clock for tests. Knows nothing about real time."""


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
