"""Disks with little room: a real file system where one can be mounted, and a file layer with a quota anywhere."""

import contextlib
import errno
import subprocess
import sys

import pytest
from ninfer_storage_disk.files import Files

FRAME_BYTES = 4096


class SmallFiles(Files):
    """Has room for `quota_bytes` in all files together, in frames as file systems give it."""

    def __init__(self, quota_bytes):
        super().__init__()
        self.quota_bytes = quota_bytes
        self._frames = {}
        self._names = {}

    @property
    def num_bytes(self):
        return FRAME_BYTES * sum(map(len, self._frames.values()))

    def _take(self, handle, start, end):
        held = self._frames.setdefault(self._names[handle], set())
        new = set(range(start // FRAME_BYTES, -(-end // FRAME_BYTES))) - held
        if new and self.num_bytes + FRAME_BYTES * len(new) > self.quota_bytes:
            raise OSError(errno.ENOSPC, "no room on a small disk")
        held |= new

    def _keep(self, name, num_bytes):
        held = self._frames.get(name, set())
        self._frames[name] = {f for f in held if f * FRAME_BYTES < num_bytes}

    def open(self, path, *, is_new=False):
        handle = super().open(path, is_new=is_new)
        self._names[handle] = path
        if is_new:
            self._keep(path, 0)
        return handle

    def write_at(self, handle, buffer, offset):
        self._take(handle, offset, offset + len(buffer))
        super().write_at(handle, buffer, offset)

    def grow(self, handle, num_bytes):
        self._take(handle, self.size(handle), num_bytes)
        super().truncate(handle, num_bytes)

    def truncate(self, handle, num_bytes):
        self._keep(self._names[handle], num_bytes)
        super().truncate(handle, num_bytes)

    def replace(self, source, target):
        super().replace(source, target)
        self._frames[target] = self._frames.pop(source, set())

    def unlink(self, path):
        super().unlink(path)
        self._frames.pop(path, None)

    def sync(self, handle):
        pass

    def sync_folder(self, path):
        pass


@contextlib.contextmanager
def mounted(folder, num_bytes):
    """Mount a file system of that size; skips where that is not allowed.

    Yields:
        A function that changes its size.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("mounting a small file system needs Linux")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"mounting is not allowed here: {tried.stderr.strip()}")

    def resize(new_bytes):
        options = f"remount,size={new_bytes}"
        subprocess.run(["mount", "-o", options, str(folder)], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def short_files(num_bytes):
    """Let no file of this process grow beyond so many bytes; skips where that cannot be said."""
    resource = pytest.importorskip("resource", reason="limits on files need POSIX")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
