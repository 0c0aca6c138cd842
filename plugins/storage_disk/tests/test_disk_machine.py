"""Random operations, restarts, damage and crashes of the disk tier against a plain dict."""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ninfer.api import PutStatus, ReadStatus
from plugins.storage_disk.tests.faulty_files import (
    Crash,
    FaultyFiles,
    image,
    key,
    open_tier,
    put,
    read,
    stored,
)


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
        before = self.tier.usage()
        new_bytes = sum(self.tier.stored_bytes(4, length) for _, length in versions.values())
        for (n, content), status in zip(versions.items(), put(self.tier, versions), strict=True):
            if status is PutStatus.STORED:
                self.images[n] = content
            else:
                # What a batch replaces is free only when the batch is durable.
                assert status is PutStatus.FULL
                assert before.used_bytes + new_bytes > before.capacity_bytes

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
