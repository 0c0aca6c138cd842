"""The only door to the file system. Knows nothing about images; tests replace it to inject faults."""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, cast

_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the operating system says when there is no room."""

_MAX_IO_BYTES: Final = 64 << 20
_READ_BYTES: Final = 1 << 20
"""Reads end at multiples of this; the page cache then keeps the file in slightly larger pieces (measured on ext4: a tenth
less time for later reads)."""

_FLUSH_BEGIN: Final = 2
"""`SYNC_FILE_RANGE_WRITE`: begin, wait for nothing."""


class Files:
    """Positioned reads and writes, flushes and renames that work on every platform.

    Handles are numbers, owned by the caller. All methods raise OSError as the operating system does. Where
    `os.pread` does not exist, one lock makes seek and read a unit.
    """

    def __init__(self) -> None:
        self._seek_lock = Lock()
        self._is_warm = False

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, private to the user where that exists."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, path: Path, *, is_new: bool = False) -> int:
        """Open for reading and writing, created private to the user if it does not exist.

        Args:
            path: the file.
            is_new: cut an existing file to zero bytes.
        """
        flags = _OPEN_FLAGS | os.O_CREAT | (os.O_TRUNC if is_new else 0)
        return os.open(path, flags, 0o600)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def size(self, handle: int) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(handle).st_size

    def is_at(self, handle: int, path: Path) -> bool:
        """Tell whether `path` still names the open file."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116 - half the time
        except FileNotFoundError:
            return False

    def is_deleted(self, handle: int) -> bool:
        """Tell whether no name leads to the open file any more. Cheaper than `is_at`."""
        return os.fstat(handle).st_nlink == 0

    def read_at(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; return the bytes read, fewer only at the end of the file."""
        done = 0
        while done < len(buffer):
            step = _READ_BYTES - (offset + done) % _READ_BYTES
            count = self._read_some(handle, buffer[done : done + step], offset + done)
            if count == 0:
                break
            done += count
        return done

    def read_parts(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill buffers with what follows each other from `offset`; return the bytes read, fewer only at the end of the file.

        In one call if the page cache has it; what comes from the device is read as `read_at` does it.
        """
        num_bytes = sum(map(len, buffers))
        done = 0
        # Whether the end is in the page cache is asked only after a read that was not: each call may wait for the interpreter.
        if self._is_warm or self._read_cached(handle, [bytearray(1)], offset + num_bytes - 1):
            done = self._read_cached(handle, buffers, offset)
        self._is_warm = done == num_bytes
        at = 0
        for buffer in buffers:
            missing = buffer[max(0, done - at) :]
            at += len(buffer)
            if missing:
                done = at - len(missing)
                num_read = self.read_at(handle, missing, offset + done)
                done += num_read
                if num_read < len(missing):
                    break
        return done

    def write_at(self, handle: int, buffer: memoryview, offset: int) -> None:
        """Write all of `buffer` at `offset`."""
        done = 0
        while done < len(buffer):
            done += self._write_some(handle, buffer[done : done + _MAX_IO_BYTES], offset + done)

    def truncate(self, handle: int, num_bytes: int) -> None:
        """Set the length of the file."""
        os.ftruncate(handle, num_bytes)

    def grow(self, handle: int, num_bytes: int) -> None:
        """Make the file longer, with room reserved on the device where that can be done, so that writing there finds it.

        Raises:
            OSError: the length is as before.
        """
        before = self.size(handle)
        if sys.platform == "linux":
            try:
                os.posix_fallocate(handle, before, num_bytes - before)
            except OSError as error:
                os.ftruncate(handle, before)
                if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                    raise
        os.ftruncate(handle, num_bytes)

    def sync(self, handle: int) -> None:
        """Flush the file's data to the device."""
        if sys.platform == "linux":
            os.fdatasync(handle)
        else:
            os.fsync(handle)

    def begin_flush(self, handle: int, offset: int, num_bytes: int) -> None:
        """Let the device begin with what was written there, where that can be asked for. Makes nothing durable."""
        if _sync_file_range is not None:
            _sync_file_range(handle, offset, num_bytes, _FLUSH_BEGIN)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over `target` as one step."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Delete a file if it exists."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Delete a folder if it is empty."""
        with contextlib.suppress(OSError):
            path.rmdir()

    def sync_folder(self, path: Path) -> None:
        """Flush renames and creations inside a folder, where folders can be flushed."""
        if sys.platform == "win32":
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def advise(self, handle: int, spans: Sequence[tuple[int, int]]) -> None:
        """Tell the operating system which (offset, length) will be read soon, where it can be told."""
        if sys.platform == "linux":
            for offset, length in spans:
                os.posix_fadvise(handle, offset, length, os.POSIX_FADV_WILLNEED)

    def _read_cached(
        self, handle: int, buffers: Sequence[memoryview | bytearray], offset: int
    ) -> int:
        """Fill buffers as far as the page cache has the file; return the bytes read, 0 where the system cannot do that."""
        if sys.platform != "linux" or not hasattr(os, "RWF_NOWAIT"):
            return 0
        try:
            return os.preadv(handle, buffers, offset, os.RWF_NOWAIT)
        except (OSError, NotImplementedError):
            return 0

    def _read_some(self, handle: int, buffer: memoryview, offset: int) -> int:
        if sys.platform == "win32":
            with self._seek_lock:
                os.lseek(handle, offset, os.SEEK_SET)
                data = os.read(handle, len(buffer))
            buffer[: len(data)] = data
            return len(data)
        return os.preadv(handle, [buffer], offset)

    def _write_some(self, handle: int, buffer: memoryview, offset: int) -> int:
        if sys.platform == "win32":
            with self._seek_lock:
                os.lseek(handle, offset, os.SEEK_SET)
                return os.write(handle, buffer)
        return os.pwrite(handle, buffer, offset)


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the C library's `sync_file_range`, which Python lacks; None where it is not there."""
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return cast("Callable[[int, int, int, int], int]", function)


_sync_file_range: Final = _find_sync_file_range()
