"""Keeps pauses of Python's cycle collector off the token path. Knows nothing about what the objects are.

A full collection walks every container object, also the hundreds of thousands of a well-filled context store, and
stops the engine for that long. So a full one is made while the engine is idle, and what survives is then left out of
later ones.
"""

import gc
from typing import Final

from ninfer.api import Clock

_PERIOD_S: Final = 30.0


class GarbagePauses:
    """Collects when asked to, at most every half minute.

    Args:
        clock: source of time.
    """

    def __init__(self, clock: Clock) -> None:
        """Collect nothing yet; loading a model counts as work."""
        self._clock = clock
        self._next_s = 0.0
        self._has_worked = True

    def note_work(self) -> None:
        """Something was computed since the last collection."""
        self._has_worked = True

    def collect_if_due(self) -> None:
        """Collect everything if there was work since and the last time is long ago. Call it when nothing runs."""
        now_s = self._clock.monotonic_s()
        if not self._has_worked or now_s < self._next_s:
            return
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._has_worked = False
        self._next_s = now_s + _PERIOD_S
