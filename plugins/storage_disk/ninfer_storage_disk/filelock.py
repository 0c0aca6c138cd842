"""Advisory locks between processes. Knows nothing about what they protect."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Final

_RETRY_S: Final = 0.01
_TIMEOUT_S: Final = 10.0


def try_lock(handle: int) -> bool:
    """Lock an open file for this handle alone; False if another handle holds it. Closing the handle unlocks."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(handle: int) -> None:
    """Undo `try_lock`."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415

        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl  # noqa: PLC0415

        fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(handle: int) -> Iterator[None]:
    """Hold the lock inside a `with`; waits for other processes, at most 10 s.

    Raises:
        TimeoutError: another process did not let go of it.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while not try_lock(handle):
        if time.monotonic() > deadline:
            raise TimeoutError("the lock of the disk tier's directory is held by another process")
        time.sleep(_RETRY_S)
    try:
        yield
    finally:
        unlock(handle)
