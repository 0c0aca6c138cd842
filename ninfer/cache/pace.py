"""How much of a processor copies take while the model computes on all of them. Knows nothing about what is copied."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

COPY_SHARE: Final = 0.125
"""Of one processor, for a thread that copies while steps run. A step waits for the slowest of its threads, so it takes
longer by about what a copy takes of any. 94 MB then come back in 0.2 s instead of 0.03; computing them takes seconds."""


class Pace:
    """Lets threads rest between pieces of their work while somebody else is to be left alone.

    `begin` and `end` belong to one thread, which never waits here; `piece` may be used by any others.

    Args:
        share: of its time that a thread works between `begin` and `end`, in (0, 1]; 1 never rests.
    """

    def __init__(self, share: float = 1.0) -> None:
        """Start with nobody to be left alone."""
        self._rest = 1.0 / share - 1.0
        self._is_alone = threading.Event()
        self._is_alone.set()

    @property
    def is_alone(self) -> bool:
        """True if there is no reason to rest."""
        return not self._rest or self._is_alone.is_set()

    def begin(self) -> None:
        """Steps are computed from now on."""
        if self._is_alone.is_set():
            self._is_alone.clear()

    def end(self) -> None:
        """Nothing is computed any more: whoever rests goes on at once."""
        self._is_alone.set()

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Do a piece of work inside, then rest as long as its processor time asks for. Hold no lock."""
        started_s = time.thread_time()
        try:
            yield
        finally:
            if not self.is_alone:
                self._is_alone.wait((time.thread_time() - started_s) * self._rest)
