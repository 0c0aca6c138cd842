"""What a disk tier counts for metrics."""

import errno

import pytest

from ninfer.api import PutStatus, ReadStatus
from plugins.storage_disk.tests.disk_kit import open_tier, pattern, put, read
from plugins.storage_disk.tests.faulty_files import FaultyFiles
from plugins.storage_disk.tests.faulty_files import open_tier as open_faulty
from plugins.storage_disk.tests.faulty_files import put as put_images


def events(tier):
    return {name: number for name, number in tier.usage().events.items() if number}


def file_of(root, name):
    (path,) = root.glob(f"disk/*/{name}")
    return path


def test_a_sound_tier_counts_nothing_and_its_cap_is_no_event(tmp_path):
    tier = open_tier(tmp_path, capacity=1 << 20)
    while put(tier, tier.usage().num_images, pattern("a", 60_000)) is PutStatus.STORED:
        pass
    assert events(tier) == {}
    tier.close()


def test_a_disk_without_room_is_counted_each_time(tmp_path):
    for error, name in ((errno.ENOSPC, "no_space"), (errno.EDQUOT, "no_space"), (errno.EIO, "")):
        root = tmp_path / str(error)
        files = FaultyFiles()
        tier = open_faulty(root, files)
        files.error_at, files.error = files.num_changes + 2, error
        (status,) = put_images(tier, {1: (1, 50_000)})
        assert status is (PutStatus.FULL if name else PutStatus.FAILED)
        assert events(tier) == ({name: 1} if name else {})
        assert put_images(tier, {1: (1, 50_000)}) == [PutStatus.STORED]
        tier.close()


def test_what_is_damaged_is_counted_when_it_is_found(tmp_path):
    tier = open_tier(tmp_path)
    for number in range(3):
        put(tier, number, pattern(number, 9000))
    data = file_of(tmp_path, "data")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    found = [read(tier, number, 9000)[0] for number in range(3)]
    assert sorted(found) == [ReadStatus.CORRUPT, ReadStatus.READ, ReadStatus.READ]
    assert events(tier) == {"quarantined": 1}
    tier.close()


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_images_beyond_a_data_file_that_was_cut_are_counted(tmp_path, keep):
    tier = open_tier(tmp_path)
    for number in range(6):
        put(tier, number, pattern(number, 9000))
    tier.close()
    data = file_of(tmp_path, "data")
    data.write_bytes(data.read_bytes()[: int(keep * data.stat().st_size)])
    tier = open_tier(tmp_path)
    assert events(tier) == {"quarantined": 6 - tier.usage().num_images}
    assert tier.usage().num_images <= 3
    tier.close()


def test_a_journal_that_is_put_aside_is_counted(tmp_path):
    open_tier(tmp_path).close()
    file_of(tmp_path, "journal").write_bytes(b"something else" * 100)
    tier = open_tier(tmp_path)
    assert events(tier) == {"quarantined": 1}
    tier.close()


def test_deleted_files_are_counted_as_lost(tmp_path):
    tier = open_tier(tmp_path)
    for number in range(4):
        put(tier, number, pattern(number, 9000))
    for name in ("data", "journal"):
        file_of(tmp_path, name).unlink()
    assert read(tier, 0, 9000)[0] is ReadStatus.MISSING
    assert events(tier) == {"lost": 4}
    tier.close()
