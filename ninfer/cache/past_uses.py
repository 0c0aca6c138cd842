"""Which running number of uses was current at an earlier time. Knows no objects."""

from bisect import bisect_right
from typing import Final

_STEP_S: Final = 1.0


class PastUses:
    """Samples of the counter of uses, one a second at most.

    Args:
        span_s: how far back anybody asks.
    """

    def __init__(self, span_s: float) -> None:
        """Start without samples."""
        self._span_s = span_s
        self._times_s: list[float] = []
        self._indexes: list[int] = []

    def note(self, now_s: float, use_index: int) -> None:
        """Keep a sample, the last one of each second; those that are too old to be asked for go."""
        if self._times_s and now_s - self._times_s[-1] < _STEP_S:
            self._indexes[-1] = use_index
            return
        old = bisect_right(self._times_s, now_s - self._span_s) - 1
        if old > 0:
            del self._times_s[:old], self._indexes[:old]
        self._times_s.append(now_s)
        self._indexes.append(use_index)

    def index_at(self, time_s: float) -> int:
        """Return the counter of the last sample up to a time, 0 if there is none."""
        at = bisect_right(self._times_s, time_s) - 1
        return self._indexes[at] if at >= 0 else 0
