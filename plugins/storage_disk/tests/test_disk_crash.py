"""Crashes, power losses and I/O errors at every write of the disk tier."""

import contextlib
import errno
import hashlib
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutStatus,
    ReadItem,
    ReadStatus,
    TierContext,
    TierUnavailable,
)


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


def open_tier(root, files=None, sync="batch", capacity=CAPACITY):
    context = TierContext(
        tier_name="d", fingerprint=b"f" * 32, clock=StoppedClock(), host_allocator=None
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


FIRST = dict.fromkeys(range(8), (0, 20000))
FRESH = dict.fromkeys(range(10, 14), (0, 15000))


def workload(tier):
    """Put, replace, delete, fill freed blocks, force a rewrite of the journal. Yields the images allowed."""
    now = {}
    steps = [
        ("put", FIRST),
        ("put", {1: (1, 9000), 2: (1, 30_000)}),
        ("delete", [0, 3, 5]),
        ("put", FRESH),
        ("delete", [1, 10]),
        ("put", {1: (2, 70_000)}),
    ]
    for kind, argument in steps:
        before = {n: {content} for n, content in now.items()}
        allowed = {n: set(before.get(n, {None})) for n in range(20)}
        if kind == "put":
            now |= argument
        else:
            now = {n: content for n, content in now.items() if n not in argument}
        for n in range(20):
            allowed[n].add(now.get(n))
        yield allowed
        if kind == "put":
            assert set(put(tier, argument)) == {PutStatus.STORED}
        else:
            tier.delete([key(n) for n in argument])


def agree(tier, allowed, where):
    found = stored(tier)
    for n, contents in allowed.items():
        images = {None if content is None else image(n, content) for content in contents}
        assert found.pop(key(n), None) in images, f"{where}: image {n} is neither old nor new"
    assert found == {}
    assert tier.check() == [], where


def num_changes_of_workload(root, sync):
    files = FaultyFiles()
    tier = open_tier(root, files, sync)
    for _ in workload(tier):
        pass
    tier.close()
    return files.num_changes


@pytest.mark.parametrize("sync", ["batch", "none"])
@pytest.mark.parametrize("torn", [0.0, 0.3, 0.999])
def test_a_crash_at_any_write_leaves_old_or_new(tmp_path, sync, torn):
    total = num_changes_of_workload(tmp_path / "count", sync)
    assert total > 25
    for crash_at in range(1, total + 1):
        root = tmp_path / str(crash_at)
        files = FaultyFiles(crash_at, torn)
        allowed = {n: {None} for n in range(20)}
        try:
            tier = open_tier(root, files, sync)
            for allowed in workload(tier):  # noqa: B007
                pass
            tier.close()
        except Crash:
            files.die()
        else:
            files.die()
        tier = open_tier(root, sync=sync)
        agree(tier, allowed, f"crash at change {crash_at}")
        assert set(put(tier, {19: (5, 5000)})) == {PutStatus.STORED}
        tier.close()


def test_a_power_loss_at_any_write_leaves_old_or_new(tmp_path):
    total = num_changes_of_workload(tmp_path / "count", "batch")
    for crash_at in range(1, total + 1):
        for seed in range(4):
            root = tmp_path / f"{crash_at}-{seed}"
            files = FaultyFiles(crash_at, torn=random.Random(seed).random())
            allowed = {n: {None} for n in range(20)}
            lost = set()
            try:
                tier = open_tier(root, files)
                for allowed in workload(tier):
                    # a delete is durable with the next put; until then it may come back
                    for n, contents in allowed.items():
                        contents |= {content for m, content in lost if m == n}
                    lost |= {
                        (n, content)
                        for n, contents in allowed.items()
                        for content in contents
                        if content
                    }
                tier.close()
            except Crash:
                pass
            files.die()
            files.lose_power(random.Random(crash_at * 31 + seed))
            tier = open_tier(root)
            agree(tier, allowed, f"power loss at change {crash_at}, seed {seed}")
            tier.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("forever", [False, True])
def test_an_io_error_at_any_write_changes_nothing_visible(tmp_path, error, forever):
    total = num_changes_of_workload(tmp_path / "count", "batch")
    for error_at in range(1, total + 1):
        root = tmp_path / str(error_at)
        files = FaultyFiles(error_at=error_at, error=error, error_forever=forever)
        now = {}
        try:
            tier = open_tier(root, files)
        except TierUnavailable:
            files.die()
            continue
        for step in (FIRST, {1: (1, 9000), 2: (1, 30_000)}, None, FRESH):
            if step is None:
                tier.delete([key(n) for n in (0, 3, 5)])
                now = {n: content for n, content in now.items() if n not in {0, 3, 5}}
                continue
            before = tier.usage()
            statuses = put(tier, step)
            expected = PutStatus.FULL if error == errno.ENOSPC else PutStatus.FAILED
            assert set(statuses) <= {PutStatus.STORED, expected, PutStatus.FULL}
            now |= {
                n: content
                for (n, content), s in zip(step.items(), statuses, strict=True)
                if s is PutStatus.STORED
            }
            if PutStatus.STORED not in statuses:
                assert tier.usage() == before
        assert stored(tier) == {key(n): image(n, content) for n, content in now.items()}
        tier.close()
        files.die()
        tier = open_tier(root)
        found = stored(tier)
        for n, content in now.items():
            # a device that fails for ever cannot take back the half of a failed batch that did reach it
            tried = [
                step[n] for step in (FIRST, {1: (1, 9000), 2: (1, 30_000)}, FRESH) if n in step
            ]
            assert found[key(n)] in [
                image(n, c) for c in ([content, *tried] if forever else [content])
            ]
        assert tier.check() == []
        tier.close()


class DiskMachine(RuleBasedStateMachine):
    """Random operations, restarts and crashes against a plain dict."""

    names = st.integers(0, 9)
    lengths = st.sampled_from([0, 1, 100, 4096, 5000, 20_000, 90_000])

    @initialize(tmp=st.uuids())
    def open(self, tmp):
        import tempfile
        from pathlib import Path

        self.root = Path(tempfile.mkdtemp(prefix="ninfer-disk-"))
        self.files = FaultyFiles()
        self.tier = open_tier(self.root, self.files)
        self.images = {}
        self.version = 0

    @rule(contents=st.dictionaries(names, lengths, min_size=1, max_size=5))
    def put(self, contents):
        self.version += 1
        versions = {n: (self.version, length) for n, length in contents.items()}
        for (n, content), status in zip(versions.items(), put(self.tier, versions), strict=True):
            if status is PutStatus.STORED:
                self.images[n] = content
            else:
                assert status is PutStatus.FULL
                usage = self.tier.usage()
                assert (
                    usage.used_bytes
                    + sum(self.tier.stored_bytes(4, length) for _, length in versions.values())
                    + 100_000
                    > usage.capacity_bytes
                )

    @rule()
    def put_again(self):
        before = self.tier.usage()
        assert set(put(self.tier, self.images)) <= {PutStatus.STORED}
        assert self.tier.usage() == before

    @rule(names=st.lists(names, max_size=4, unique=True))
    def delete(self, names):
        assert self.tier.delete([key(n) for n in names]) == [n in self.images for n in names]
        for n in names:
            self.images.pop(n, None)

    @rule(name=names, where=st.floats(0, 0.999))
    def corrupt(self, name, where):
        if name in self.images and self.images[name][1]:
            length = self.images[name][1]
            entry = self.tier._store.find(key(name))
            path = next(self.root.glob("*/data"))
            at = int(where * length)
            block = self.tier._store.block_bytes
            blocks = [b for run in entry.runs for b in range(run.start, run.end)]
            with path.open("r+b") as file:
                file.seek(blocks[at // block] * block + at % block)
                old = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([old[0] ^ 1]))
            assert read(self.tier, name, length)[0] is ReadStatus.CORRUPT
            assert read(self.tier, name, length)[0] is ReadStatus.MISSING
            del self.images[name]

    @rule()
    def reopen(self):
        self.tier.close()
        self.files = FaultyFiles()
        self.tier = open_tier(self.root, self.files)

    @rule(after=st.integers(1, 8), contents=st.dictionaries(names, lengths, min_size=1, max_size=3))
    def crash_during_put(self, after, contents):
        self.version += 1
        versions = {n: (self.version, length) for n, length in contents.items()}
        self.files.crash_at = self.files.num_changes + after
        with contextlib.suppress(Crash):
            put(self.tier, versions)
        self.files.die()
        self.files = FaultyFiles()
        self.tier = open_tier(self.root, self.files)
        found = stored(self.tier)
        for n, content in versions.items():
            if found.get(key(n)) == image(n, content):
                self.images[n] = content

    @invariant()
    def agrees_with_the_dict(self):
        assert self.tier.check() == []
        assert stored(self.tier) == {
            key(n): image(n, content) for n, content in self.images.items()
        }
        usage = self.tier.usage()
        assert usage.num_images == len(self.images)
        assert usage.used_bytes <= usage.capacity_bytes
        assert usage.used_bytes == sum(
            self.tier.stored_bytes(len(b"%d" % v), length) for v, length in self.images.values()
        )

    def teardown(self):
        import shutil

        self.tier.close()
        shutil.rmtree(self.root)


DiskMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestDiskMachine = DiskMachine.TestCase
