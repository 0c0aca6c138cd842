"""Deaths and power losses at every change of files that a disk directory ever sees: old or new, bounded, no orphan."""

import random
import shutil
from collections import Counter

import pytest

from plugins.storage_disk.tests.crash_life import (
    Promise,
    lay_foreign,
    live,
    require_all,
)
from plugins.storage_disk.tests.recorded_files import crashed_at, crashes

SHARES = (0.0, 0.4, 0.999)


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    return {sync: live(tmp_path_factory.mktemp(sync), sync) for sync in ("batch", "none")}


def try_crash(root, changes, number, promise, sync, *, share=None, seed=None):
    root.mkdir()
    try:
        crashed_at(changes, number, share=share, seed=seed).lay_out(root)
        lay_foreign(root)
        require_all(root, promise, is_power_lost=seed is not None, sync=sync)
    except AssertionError as problem:
        where = changes[number] if number < len(changes) else "the end"
        raise AssertionError(f"crash at {number} {str(where)[:120]} {share=} {seed=}") from problem
    finally:
        shutil.rmtree(root)


def test_the_life_meets_every_kind_of_change(lives):
    kinds = Counter((c.kind, c.path.rpartition("/")[2]) for c in lives["batch"] if not c.is_mark)
    for expected in (
        ("write", "data"),
        ("write", "journal"),
        ("write", "journal.new"),
        ("truncate", "data"),
        ("sync", "data"),
        ("sync", "journal"),
        ("rename", "journal.new"),
        ("unlink", "data"),
        ("unlink", "journal"),
        ("unlink", "lock"),
    ):
        assert kinds[expected], expected
    assert kinds["rename", "journal.new"] >= 4, "created, compacted, moved, of another model"
    assert sum(kinds.values()) > 300


def test_a_sample_of_crashes_leaves_old_or_new(lives, tmp_path):
    rng = random.Random(5)
    for sync, changes in lives.items():
        for number, promise in crashes(changes, Promise()):
            if rng.random() < 0.06:
                how = {"share": rng.choice(SHARES)}
                if sync == "batch" and rng.random() < 0.6:
                    how = {"seed": rng.randrange(10**6)}
                try_crash(tmp_path / "at", changes, number, promise, sync, **how)


@pytest.mark.soak
@pytest.mark.parametrize("sync", ["batch", "none"])
@pytest.mark.parametrize("share", SHARES)
def test_a_death_at_every_change_leaves_old_or_new(lives, tmp_path, sync, share):
    changes = lives[sync]
    for number, promise in crashes(changes, Promise()):
        try_crash(tmp_path / "at", changes, number, promise, sync, share=share)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(4))
def test_a_power_loss_at_every_change_leaves_old_or_new(lives, tmp_path, block):
    changes = lives["batch"]
    for number, promise in crashes(changes, Promise()):
        try_crash(tmp_path / "at", changes, number, promise, "batch", seed=number * 31 + block)
