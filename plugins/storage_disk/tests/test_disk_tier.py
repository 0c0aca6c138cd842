"""The disk tier: what it promises in normal operation and with damaged, foreign and missing files."""

import hashlib
import os
import shutil
import stat
import sys
import threading
import time

import pytest
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.plugin import ninfer_storage_tiers
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutStatus,
    ReadItem,
    ReadStatus,
    TierClosed,
    TierContext,
    TierUnavailable,
)

FINGERPRINT = bytes(range(32))


class StoppedClock:
    def monotonic_s(self):
        return 0.0

    def unix_s(self):
        return 0.0


class NoAllocator:
    def allocate_host(self, num_bytes):
        raise AssertionError("a disk tier needs no host memory")


def open_tier(root, capacity=4 << 20, fingerprint=FINGERPRINT, page=0, **options):
    context = TierContext(
        tier_name="nvme",
        fingerprint=fingerprint,
        clock=StoppedClock(),
        host_allocator=NoAllocator(),
        page_image_bytes=page,
        cache_dir=root,
    )
    return DiskTier.open(context, DiskConfig(path=root / "disk", capacity=capacity, **options))


@pytest.fixture
def tier(tmp_path):
    tier = open_tier(tmp_path)
    yield tier
    tier.close()


def key(name, kind=ImageKind.PAGE):
    return ImageKey(digest=hashlib.sha256(str(name).encode()).digest(), kind=kind)


def item(name, payload, header=b"h"):
    return PutItem(key=key(name), header=header, payload=memoryview(payload))


def put(tier, name, payload, header=b"h"):
    return tier.put([item(name, payload, header)])[0].status


def read(tier, name, num_bytes):
    buffer = bytearray(num_bytes)
    result = tier.read_into([ReadItem(key=key(name), buffer=memoryview(buffer))])[0]
    return result.status, result.header, bytes(buffer)


def pattern(name, num_bytes):
    return (hashlib.sha256(str(name).encode()).digest() * (num_bytes // 32 + 1))[:num_bytes]


def folder_bytes(root):
    return sum(path.stat().st_size for path in (root / "disk").rglob("*") if path.is_file())


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


def test_deleted_images_stay_deleted_after_reopening(tmp_path):
    tier = open_tier(tmp_path)
    tier.put([item(n, pattern(n, 5000)) for n in range(10)])
    assert tier.delete([key(3), key(99), key(3)]) == [True, False, False]
    used = tier.usage()
    tier.close()
    tier = open_tier(tmp_path)
    assert tier.usage() == used
    assert tier.contains([key(n) for n in range(4)]) == [True, True, True, False]
    assert read(tier, 3, 5000)[0] is ReadStatus.MISSING
    tier.close()


def test_putting_again_changes_nothing_and_other_content_replaces(tier):
    put(tier, 1, pattern(1, 9000), b"a")
    before = tier.usage()
    assert put(tier, 1, pattern(1, 9000), b"a") is PutStatus.STORED
    assert tier.usage() == before
    results = tier.put([item(1, b"x" * 10, b"b"), item(1, b"y" * 20, b"c")])
    assert [r.status for r in results] == [PutStatus.STORED] * 2
    assert read(tier, 1, 20) == (ReadStatus.READ, b"c", b"y" * 20)
    assert tier.usage().num_images == 1
    assert tier.usage().used_bytes == tier.stored_bytes(1, 20)
    assert tier.check() == []


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


def test_closed_tier_refuses_everything(tmp_path):
    tier = open_tier(tmp_path)
    tier.close()
    tier.close()
    for call in (
        lambda: put(tier, 1, b""),
        lambda: read(tier, 1, 0),
        lambda: tier.contains([]),
        lambda: tier.delete([]),
        tier.usage,
        tier.check,
        tier.records,
    ):
        with pytest.raises(TierClosed):
            call()


def test_provider_opens_its_own_sample(tmp_path):
    (provider,) = ninfer_storage_tiers()
    context = TierContext(
        tier_name="t", fingerprint=b"", clock=StoppedClock(), host_allocator=NoAllocator()
    )
    tier = provider.open(context, provider.sample_config(tmp_path))
    assert put(tier, 1, b"abc") is PutStatus.STORED
    tier.close()


def test_threads_see_whole_images_or_none(tmp_path):
    tier = open_tier(tmp_path, sync="none")
    stop = threading.Event()
    problems = []

    def writer(seed):
        n = 0
        while not stop.is_set():
            n += 1
            name = (n * seed) % 7
            tier.put([
                item(name, bytes([name]) * 30_000),
                item(f"{seed}-{n % 3}", bytes([seed]) * 9000),
            ])
            tier.delete([key((n * seed + 3) % 7)])

    def reader():
        while not stop.is_set():
            for name in range(7):
                status, _, got = read(tier, name, 30_000)
                if status is ReadStatus.CORRUPT or (
                    status is ReadStatus.READ and got != bytes([name]) * 30_000
                ):
                    problems.append((name, status))

    threads = [threading.Thread(target=writer, args=(s,)) for s in (2, 5)]
    threads += [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert tier.check() == []
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
