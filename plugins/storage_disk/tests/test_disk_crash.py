"""Crashes, power losses and I/O errors at every write of the disk tier."""

import errno
import random
from dataclasses import replace

import pytest

from ninfer.api import PutStatus, TierUnavailable
from plugins.storage_disk.tests.faulty_files import (
    Crash,
    FaultyFiles,
    image,
    key,
    open_tier,
    put,
    stored,
)

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
        ("delete", [2, 11]),
        ("put", {0: (3, 12_000), 10: (3, 8000)}),
        ("put", {2: (2, 25_000)}),
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
                assert replace(tier.usage(), events={}) == replace(before, events={})
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
