"""Keeps threads that work beside each other on different processors, where the system lets them choose.

An idle processor of a virtual machine counts as taken by others, so Linux wakes a thread on the processor of whoever woke it.
Two threads that hand the interpreter to each other then share one processor for milliseconds, while another idles.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_processors(number: int, num_threads: int) -> Iterator[None]:
    """Run the calling thread on its share of the processors it may use; on all of them where that cannot be done.

    Args:
        number: of the thread, from 0.
        num_threads: that have a share each.
    """
    if sys.platform != "linux":
        yield
        return
    allowed = os.sched_getaffinity(0)
    own = sorted(allowed)[number::num_threads]
    is_moved = len(allowed) >= num_threads
    if is_moved:
        try:
            os.sched_setaffinity(0, own)
        except OSError:
            is_moved = False
    try:
        yield
    finally:
        if is_moved:
            os.sched_setaffinity(0, allowed)
