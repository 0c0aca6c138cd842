"""The directory of a disk tier: other models, foreign files, the cap, permissions."""

import os
import stat
import sys
import time

import pytest

from ninfer.api import PutStatus, TierUnavailable
from plugins.storage_disk.tests.disk_kit import (
    FINGERPRINT,
    folder_bytes,
    item,
    key,
    open_tier,
    pattern,
    put,
    read,
)


@pytest.fixture
def tier(tmp_path):
    tier = open_tier(tmp_path)
    yield tier
    tier.close()


def test_foreign_files_are_counted_but_neither_read_nor_deleted(tmp_path):
    root = tmp_path / "disk"
    (root / "photos").mkdir(parents=True)
    (root / "note.txt").write_bytes(b"mine")
    (root / "photos" / "cat").write_bytes(bytes(3 << 20))
    (root / ("ab" * 16)).mkdir()
    (root / ("ab" * 16) / "journal").write_bytes(b"NINFERJ but not really")
    tier = open_tier(tmp_path)
    assert tier.usage().capacity_bytes < 1 << 20
    n = 0
    while put(tier, n, pattern(n, 50_000)) is PutStatus.STORED:
        n += 1
    assert folder_bytes(tmp_path) <= 4 << 20
    tier.close()
    assert (root / "note.txt").read_bytes() == b"mine"
    assert (root / "photos" / "cat").stat().st_size == 3 << 20
    assert (root / ("ab" * 16) / "journal").read_bytes() == b"NINFERJ but not really"


def test_models_share_a_directory_and_its_cap_but_never_images(tmp_path):
    first = open_tier(tmp_path, reclaim_other_models=False)
    put(first, 1, pattern(1, 1 << 20))
    second = open_tier(tmp_path, fingerprint=b"2" * 32, reclaim_other_models=False)
    assert second.contains([key(1)]) == [False]
    assert list(second.records()) == []
    for n in range(100):
        put(first, n, pattern(n, 60_000))
        put(second, n, pattern(-n, 60_000))
    assert folder_bytes(tmp_path) <= 4 << 20
    assert second.usage().num_images > 10
    assert read(second, 2, 60_000)[2] == pattern(-2, 60_000)
    first.close()
    second.close()


def test_unused_stores_of_other_models_make_way_the_longest_unused_first(tmp_path):
    for age, fingerprint in ((300, b"1" * 32), (200, b"2" * 32), (100, b"3" * 32)):
        tier = open_tier(tmp_path, fingerprint=fingerprint, reclaim_other_models=False)
        assert put(tier, 1, pattern(1, 800_000)) is PutStatus.STORED
        tier.close()
        journal = next((tmp_path / "disk").glob(f"{fingerprint.hex()[:32]}/journal"))
        os.utime(journal, (time.time() - age,) * 2)
    in_use = open_tier(tmp_path, fingerprint=b"1" * 32, reclaim_other_models=False)
    tier = open_tier(tmp_path)
    names = {path.name for path in (tmp_path / "disk").iterdir() if path.is_dir()}
    assert names == {(b"1" * 16).hex(), (b"3" * 16).hex(), FINGERPRINT.hex()[:32]}
    assert read(in_use, 1, 800_000)[2] == pattern(1, 800_000)
    in_use.close()
    tier.close()


def test_lowered_cap_drops_images_at_opening(tmp_path):
    tier = open_tier(tmp_path, capacity=4 << 20)
    tier.put([item(n, pattern(n, 60_000)) for n in range(55)])
    tier.close()
    tier = open_tier(tmp_path, capacity=1 << 20)
    assert folder_bytes(tmp_path) <= 1 << 20
    usage = tier.usage()
    assert usage.used_bytes <= usage.capacity_bytes <= 1 << 20
    for record in tier.records():
        n = next(n for n in range(55) if key(n) == record.key)
        assert read(tier, n, 60_000)[2] == pattern(n, 60_000)
    assert tier.check() == []
    tier.close()


def test_a_store_in_use_is_refused_with_advice(tmp_path, tier):
    with pytest.raises(TierUnavailable, match="its own `path`"):
        open_tier(tmp_path)


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path):
    (tmp_path / "disk").write_bytes(b"file")
    with pytest.raises(TierUnavailable, match="nvme"):
        open_tier(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
def test_directory_and_files_are_private(tmp_path, tier):
    put(tier, 1, b"secret")
    for path in [tmp_path / "disk", *(tmp_path / "disk").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
