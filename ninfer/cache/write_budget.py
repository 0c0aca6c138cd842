"""How many bytes may be written to a tier by now. Knows nothing about what they are, and moves none.

Token buckets: a bucket fills at a steady rate up to its burst, and what is written is taken out of it. So in any time
span no more than the burst and what flowed in since is written. The bucket of a day has a burst of an eighth and fills
with the other seven eighths in 24 hours: no 24 hours have more than the whole. A restart begins with full buckets.
"""

from typing import Final

from ninfer.api import Clock

BURST_S: Final = 10.0
"""What a bucket per second holds, in seconds of its rate."""
DAY_S: Final = 86_400.0
DAY_BURST: Final = 1 / 8
"""What a bucket per day holds, as a share of the day's bytes."""
SHORT: Final = 1 / 2
"""A budget is short when a bucket holds less than this share of its burst."""


class _Bucket:
    def __init__(self, clock: Clock, *, bytes_per_s: float, burst_bytes: float) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self.burst_bytes = burst_bytes
        self._held_bytes = burst_bytes
        self._filled_s = clock.monotonic_s()

    def held_bytes(self) -> float:
        flowed = (self._clock.monotonic_s() - self._filled_s) * self._bytes_per_s
        return min(self.burst_bytes, self._held_bytes + flowed)

    def take(self, num_bytes: int) -> None:
        self._held_bytes = self.held_bytes() - num_bytes
        self._filled_s = self._clock.monotonic_s()


class WriteBudget:
    """Write budget of one tier. Written to on the engine thread, asked from any.

    Args:
        clock: source of time.
        bytes_per_s: sustained rate; 0 for no limit.
        bytes_per_day: most bytes of any 24 hours of one process; 0 for no limit.
        largest_bytes: of one image; a bucket holds at least one, or it would never be written.
    """

    def __init__(
        self, clock: Clock, *, bytes_per_s: int, bytes_per_day: int, largest_bytes: int
    ) -> None:
        """Start with full buckets."""
        self._buckets: list[_Bucket] = []
        if bytes_per_s:
            burst = max(BURST_S * bytes_per_s, largest_bytes)
            self._buckets.append(_Bucket(clock, bytes_per_s=bytes_per_s, burst_bytes=burst))
        if bytes_per_day:
            burst = min(max(DAY_BURST * bytes_per_day, largest_bytes), bytes_per_day)
            rate = (bytes_per_day - burst) / DAY_S
            self._buckets.append(_Bucket(clock, bytes_per_s=rate, burst_bytes=burst))

    def allows(self, num_bytes: int) -> bool:
        """Tell whether so many bytes may be written now."""
        return all(bucket.held_bytes() >= num_bytes for bucket in self._buckets)

    @property
    def is_short(self) -> bool:
        """True if little is left, so that it should go to what matters."""
        return any(bucket.held_bytes() < SHORT * bucket.burst_bytes for bucket in self._buckets)

    @property
    def left_bytes(self) -> float | None:
        """Bytes that may be written now; None for no limit."""
        if not self._buckets:
            return None
        return max(0.0, min(bucket.held_bytes() for bucket in self._buckets))

    def take(self, num_bytes: int) -> None:
        """Book a write that begins. What was promised is written even if it is not allowed; later writes pay for it."""
        for bucket in self._buckets:
            bucket.take(num_bytes)
