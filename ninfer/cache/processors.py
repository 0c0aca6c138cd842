"""Keeps threads that work beside each other on different processors, where the system lets them choose.

An idle processor of a virtual machine counts as taken by others, so Linux wakes a thread on the processor of whoever woke it.
Two threads that hand the interpreter to each other then share one processor for milliseconds, while another idles.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def own_processors(number: int, num_threads: int) -> Iterator[None]:
    """Run the calling thread on its share of the processors it may use; on all of them where that cannot be done.

    Threads that are started inside have the same share for as long as they live.

    Args:
        number: of the thread, from 0.
        num_threads: that have a share each.
    """
    allowed = _narrowed(number, num_threads)
    try:
        yield
    finally:
        if allowed and sys.platform == "linux":
            with suppress(OSError):
                os.sched_setaffinity(0, allowed)


def _narrowed(number: int, num_threads: int) -> set[int]:
    """Keep the calling thread to its share; returns what it was allowed before, nothing if that is so still."""
    if sys.platform != "linux":
        return set()
    with suppress(OSError):
        allowed = os.sched_getaffinity(0)
        if len(allowed) >= num_threads:
            os.sched_setaffinity(0, sorted(allowed)[number::num_threads])
            return allowed
    return set()
