"""A file layer that crashes, fails and forgets on demand, and small images to store through it."""

import hashlib

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import ImageKey, ImageKind, PutItem, ReadItem, ReadStatus, TierContext


class Crash(BaseException):
    """The process is gone."""


class FaultyFiles(Files):
    """Counts changes; at one of them crashes (perhaps half-way through a write) or raises an OSError.

    Keeps what is not flushed, so that `lose_power` can undo a random part of it.
    """

    def __init__(self, crash_at=None, torn=0.5, error_at=None, error=None, error_forever=False):
        super().__init__()
        self.crash_at, self.torn = crash_at, torn
        self.error_at, self.error, self.error_forever = error_at, error, error_forever
        self.num_changes = 0
        self.is_dead = False
        self.handles = {}
        self.unsynced = []

    def change(self, partly=lambda: None):
        if self.is_dead:
            raise Crash
        self.num_changes += 1
        if self.num_changes == self.crash_at:
            partly()
            self.is_dead = True
            raise Crash
        is_error = self.num_changes == self.error_at or (
            self.error_forever and self.num_changes > self.error_at
        )
        if self.error_at is not None and is_error:
            partly()
            raise OSError(self.error, "injected")

    def open(self, path, *, is_new=False):
        if self.is_dead:
            raise Crash
        if is_new:
            self.change()
        handle = super().open(path, is_new=is_new)
        self.handles[handle] = path
        return handle

    def close(self, handle):
        if handle in self.handles:
            del self.handles[handle]
            super().close(handle)

    def write_at(self, handle, buffer, offset):
        def write(count):
            old = bytearray(count)
            num_old = Files.read_at(self, handle, memoryview(old), offset)
            self.unsynced.append((self.handles[handle], offset, bytes(old[:num_old])))
            Files.write_at(self, handle, buffer[:count], offset)

        self.change(lambda: write(int(len(buffer) * self.torn)))
        write(len(buffer))

    def truncate(self, handle, num_bytes):
        self.change()
        super().truncate(handle, num_bytes)

    def grow(self, handle, num_bytes):
        self.change()
        super().grow(handle, num_bytes)

    def sync(self, handle):
        self.change()
        self.unsynced = [entry for entry in self.unsynced if entry[0] != self.handles[handle]]

    def replace(self, source, target):
        self.change()
        super().replace(source, target)
        self.unsynced = [
            (target if path == source else path, offset, old)
            for path, offset, old in self.unsynced
            if path != target
        ]

    def unlink(self, path):
        self.change()
        super().unlink(path)

    def sync_folder(self, path):
        self.change()

    def die(self):
        for handle in list(self.handles):
            self.close(handle)
        self.is_dead = True

    def lose_power(self, rng):
        for path, offset, old in reversed(self.unsynced):
            if rng.random() < 0.5 and path.exists():
                with path.open("r+b") as file:
                    file.seek(offset)
                    file.write(old)


class StoppedClock:
    def monotonic_s(self):
        return 0.0

    def unix_s(self):
        return 0.0


CAPACITY = 600 << 10


def open_tier(root, files=None, sync="batch", capacity=CAPACITY, **options):
    context = TierContext(
        tier_name="d", fingerprint=b"f" * 32, clock=StoppedClock(), host_allocator=None, **options
    )
    return DiskTier(context, DiskConfig(path=root, capacity=capacity, sync=sync), files or Files())


def key(name):
    return ImageKey(digest=hashlib.sha256(str(name).encode()).digest(), kind=ImageKind.STATE)


def payload_of(name, version, length):
    return (hashlib.sha256(f"{name}/{version}".encode()).digest() * (length // 32 + 1))[:length]


def put(tier, contents):
    items = [
        PutItem(key=key(n), header=b"%d" % v, payload=memoryview(payload_of(n, v, length)))
        for n, (v, length) in contents.items()
    ]
    return [result.status for result in tier.put(items)]


def read(tier, name, length):
    buffer = bytearray(length)
    result = tier.read_into([ReadItem(key=key(name), buffer=memoryview(buffer))])[0]
    return result.status, result.header, bytes(buffer)


def stored(tier):
    """Return {digest: (header, payload)} of everything the tier reports, or fail if it cannot be read."""
    found = {}
    for record in tier.records():
        buffer = bytearray(record.num_bytes)
        result = tier.read_into([ReadItem(key=record.key, buffer=memoryview(buffer))])[0]
        assert result.status is ReadStatus.READ, f"{record} is reported and reads as {result}"
        found[record.key] = (result.header, bytes(buffer))
    return found


def image(name, content):
    version, length = content
    return b"%d" % version, payload_of(name, version, length)
