"""What ninfer means by time. Knows nothing about where it comes from."""

from typing import Protocol


class Clock(Protocol):
    """A source of time that tests can replace."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def unix_s(self) -> float:
        """Return seconds since 1970-01-01 UTC."""
        ...
