"""The disk tier: what it promises in normal operation and with damaged and missing files."""

import shutil
import sys
import time

import pytest
from ninfer_storage_disk.plugin import ninfer_storage_tiers

from ninfer.api import PutStatus, ReadItem, ReadStatus, TierContext
from plugins.storage_disk.tests.disk_kit import (
    NoAllocator,
    StoppedClock,
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


def test_images_come_back_also_after_reopening(tmp_path):
    tier = open_tier(tmp_path)
    lengths = [0, 1, 7, 8, 4095, 4096, 4097, 100_000]
    results = tier.put([item(n, pattern(n, n), b"head%d" % n) for n in lengths])
    assert [result.status for result in results] == [PutStatus.STORED] * len(lengths)
    for _ in range(2):
        for n in lengths:
            assert read(tier, n, n) == (ReadStatus.READ, b"head%d" % n, pattern(n, n))
        assert [(r.key, r.header, r.num_bytes) for r in tier.records()] == [
            (key(n), b"head%d" % n, n) for n in lengths
        ]
        assert tier.usage().used_bytes == sum(
            tier.stored_bytes(len(b"head%d" % n), n) for n in lengths
        )
        assert tier.check() == []
        tier.close()
        tier = open_tier(tmp_path)
    tier.close()


def test_full_tier_changes_nothing_and_its_files_stay_below_the_cap(tmp_path, tier):
    n = 0
    while put(tier, n, pattern(n, 50_000)) is PutStatus.STORED:
        n += 1
        assert folder_bytes(tmp_path) <= 4 << 20
    usage = tier.usage()
    assert usage.used_bytes > 0.95 * usage.capacity_bytes
    assert usage.used_bytes + tier.stored_bytes(1, 50_000) > usage.capacity_bytes
    assert put(tier, n, pattern(n, 50_000)) is PutStatus.FULL
    assert tier.usage() == usage
    assert all(read(tier, i, 50_000)[2] == pattern(i, 50_000) for i in range(n))
    tier.delete([key(i) for i in range(0, n, 2)])
    assert put(tier, "big", pattern("big", 700_000)) is PutStatus.STORED, (
        "scattered blocks hold a large image"
    )
    assert read(tier, "big", 700_000)[2] == pattern("big", 700_000)
    assert tier.check() == []


def test_churn_never_exceeds_the_cap(tmp_path):
    tier = open_tier(tmp_path, capacity=1 << 20, sync="none")
    live = []
    for n in range(3000):
        length = (n * 7919) % 20_000
        header = bytes((n * 31) % 600)
        while put(tier, n, pattern(n, length), header) is PutStatus.FULL:
            assert live, "an empty tier refused an image"
            tier.delete([key(live.pop(0)[0])])
        live.append((n, length))
        if n % 50 == 0:
            assert folder_bytes(tmp_path) <= 1 << 20
            assert tier.check() == []
    for n, length in live:
        assert read(tier, n, length)[2] == pattern(n, length)
    tier.close()


@pytest.mark.parametrize("name", ["data", "journal"])
@pytest.mark.parametrize("fault", ["flip", "cut", "zero"])
@pytest.mark.parametrize("is_open", [True, False])
def test_damage_anywhere_is_never_served(tmp_path, name, fault, is_open):
    lengths = {n: 3000 * (n + 1) for n in range(6)}
    for position in range(0, 100, 4):
        root = tmp_path / str(position)
        tier = open_tier(root)
        tier.put([item(n, pattern(n, length), b"head") for n, length in lengths.items()])
        if not is_open:
            tier.close()
        (path,) = (root / "disk").glob(f"*/{name}")
        size = path.stat().st_size
        at = size * position // 100
        with path.open("r+b") as file:
            if fault == "cut":
                file.truncate(at)
            else:
                file.seek(at)
                old = file.read(1 if fault == "flip" else 2000)
                file.seek(at)
                file.write(bytes([old[0] ^ 0x40]) if fault == "flip" else bytes(len(old)))
        if not is_open:
            tier = open_tier(root)
        for n, length in lengths.items():
            was_there = tier.contains([key(n)])[0]
            status, header, got = read(tier, n, length)
            if status is ReadStatus.READ:
                assert (header, got) == (b"head", pattern(n, length))
            else:
                assert status is (ReadStatus.CORRUPT if was_there else ReadStatus.MISSING)
                assert tier.contains([key(n)]) == [False]
                assert read(tier, n, length)[0] is ReadStatus.MISSING
            assert put(tier, n, pattern(n, length), b"head") is PutStatus.STORED
            assert read(tier, n, length) == (ReadStatus.READ, b"head", pattern(n, length))
        tier.close()
        shutil.rmtree(root)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted")
@pytest.mark.parametrize("victim", ["data", "everything"])
def test_files_deleted_under_the_server_are_a_miss_and_writing_goes_on(tmp_path, victim):
    tier = open_tier(tmp_path)
    put(tier, 1, pattern(1, 5000))
    if victim == "everything":
        shutil.rmtree(tmp_path / "disk")
    else:
        next((tmp_path / "disk").glob(f"*/{victim}")).unlink()
    assert read(tier, 1, 5000)[0] is ReadStatus.MISSING
    assert tier.contains([key(1)]) == [False]
    assert put(tier, 1, pattern(1, 5000)) is PutStatus.STORED
    assert read(tier, 1, 5000)[2] == pattern(1, 5000)
    tier.close()
    tier = open_tier(tmp_path)
    assert read(tier, 1, 5000)[2] == pattern(1, 5000)
    tier.close()


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted")
def test_a_journal_deleted_under_the_server_is_written_again(tmp_path):
    tier = open_tier(tmp_path)
    put(tier, 1, pattern(1, 5000))
    next((tmp_path / "disk").glob("*/journal")).unlink()
    assert read(tier, 1, 5000)[2] == pattern(1, 5000)
    put(tier, 2, pattern(2, 5000))
    tier.close()
    tier = open_tier(tmp_path)
    for n in (1, 2):
        assert read(tier, n, 5000)[2] == pattern(n, 5000)
    tier.close()


def test_provider_opens_its_own_sample(tmp_path):
    (provider,) = ninfer_storage_tiers()
    context = TierContext(
        tier_name="t", fingerprint=b"", clock=StoppedClock(), host_allocator=NoAllocator()
    )
    tier = provider.open(context, provider.sample_config(tmp_path))
    assert put(tier, 1, b"abc") is PutStatus.STORED
    tier.close()


def test_reopening_reads_the_journal_only_and_fast(tmp_path):
    tier = open_tier(tmp_path, capacity=1 << 30, sync="none")
    header = bytes(400)
    for start in range(0, 20_000, 1000):
        results = tier.put([item(n, b"x" * 100, header) for n in range(start, start + 1000)])
        assert {r.status for r in results} == {PutStatus.STORED}
    tier.close()
    started = time.process_time()
    tier = open_tier(tmp_path, capacity=1 << 30)
    num_records = len(list(tier.records()))
    seconds = time.process_time() - started
    assert num_records == 20_000
    assert num_records / seconds > 10_000, f"{num_records / seconds:.0f} records/s"
    tier.close()


@pytest.mark.parametrize("num_whole", [0, 1, 4])
def test_images_behind_the_end_of_a_cut_file_are_damaged_although_they_were_read_before(
    tmp_path, num_whole
):
    """Small images are read together into memory that still has the same images from the last time."""
    tier = open_tier(tmp_path, page=5000)
    tier.put([item(name, pattern(name, 5000)) for name in range(6)])

    def statuses():
        buffers = [memoryview(bytearray(5000)) for _ in range(6)]
        items = [ReadItem(key=key(name), buffer=buffers[name]) for name in range(6)]
        return [result.status for result in tier.read_into(items)]

    assert statuses() == [ReadStatus.READ] * 6
    (data,) = (tmp_path / "disk").rglob("data")
    with data.open("r+b") as file:
        file.truncate(num_whole * 8192 + 4999)
    assert statuses() == [ReadStatus.READ] * num_whole + [ReadStatus.CORRUPT] * (6 - num_whole)
    tier.close()


def test_images_of_several_lengths_in_one_batch_come_back_from_scattered_blocks(tmp_path):
    tier = open_tier(tmp_path, page=5000)
    sizes = [5000, 5000, 0, 0, 4096, 300_000, 300_000, 7, 5000, 1 << 20, 5000, 600_000]
    images = {name: pattern(name, size) for name, size in enumerate(sizes)}
    tier.put([item(name, payload) for name, payload in images.items()])
    tier.delete([key(name) for name in (1, 4, 7)])
    images |= {name: pattern((name, "new"), 9000) for name in (1, 4, 7)}
    tier.put([item(name, images[name]) for name in (1, 4, 7)])
    order = [*range(11, -1, -2), *range(0, 12, 2)]
    buffers = {name: memoryview(bytearray(len(images[name]))) for name in order}
    results = tier.read_into([ReadItem(key=key(name), buffer=buffers[name]) for name in order])
    assert [result.status for result in results] == [ReadStatus.READ] * 12
    assert {name: bytes(buffer) for name, buffer in buffers.items()} == images
    assert tier.check() == []
    tier.close()
