"""Measures what a call does, without a clock: instructions, system calls, memory. Knows nothing about plugins.

Timings on a busy machine say little; the same Python code always executes the same instructions.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any, Final

_TOUCHING_MODULES: Final = frozenset({
    "_io",
    "io",
    "posix",
    "nt",
    "_socket",
    "socket",
    "select",
    "_posixsubprocess",
    "fcntl",
    "mmap",
})
_HARMLESS: Final = frozenset({"fspath", "getpid", "text_encoding"})
_IN_MEMORY: Final = frozenset({"StringIO", "BytesIO"})


class _LimitReachedError(BaseException):
    """Ends a call that works too long; no plugin catches it by accident."""


def instructions_of(call: Callable[[], object], *, limit: int) -> int:
    """Count the Python instructions that a call executes on this thread.

    Work inside C functions counts as one instruction.

    Args:
        call: what to measure. Ended in the middle when it reaches the limit.
        limit: instructions after which counting is pointless.

    Returns:
        The number of instructions, `limit` if there were as many or more.
    """
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - itself
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
            if count >= limit:
                raise _LimitReachedError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except _LimitReachedError:
        return limit
    finally:
        sys.settrace(before)
    return count


def system_calls_of(call: Callable[[], object]) -> list[str]:
    """Return the functions a call uses that touch files, sockets or processes, or that sleep; by name, in order.

    Args:
        call: what to watch, on this thread.
    """
    found: list[str] = []

    def watch(_frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call" and isinstance(argument, BuiltinFunctionType):
            name = _touching_name(argument)
            if name:
                found.append(name)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def _touching_name(function: BuiltinFunctionType) -> str:
    """Return the name of a function if it leaves the process, else nothing."""
    owner = function.__self__
    modules = {str(function.__module__)}
    if owner is not None and not isinstance(owner, ModuleType):
        classes = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
        modules = {each.__module__ for each in classes}
        if _IN_MEMORY & {each.__name__ for each in classes}:
            return ""
    is_touching = bool(modules & _TOUCHING_MODULES) and function.__name__ not in _HARMLESS
    is_sleep = function.__name__ == "sleep" and "time" in modules
    return function.__qualname__ if is_touching or is_sleep else ""


def bytes_kept_by(warm_up: Callable[[], object], call: Callable[[], object]) -> int:
    """Return by how many bytes the memory of Python objects grew over a call; garbage does not count.

    Args:
        warm_up: called before, to fill what may fill up. Watched too, so that what the call merely replaces is not
            taken for growth.
        call: what to measure.
    """
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        warm_up()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        call()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        if not was_tracing:
            tracemalloc.stop()
    return after - before
