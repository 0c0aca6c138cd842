"""A disk tier opened with a lower cap than before: what stays, where it lies, and crashes on the way."""

import contextlib
import random

import pytest

from ninfer.api import PutStatus
from plugins.storage_disk.tests.faulty_files import (
    Crash,
    FaultyFiles,
    image,
    key,
    open_tier,
    payload_of,
    put,
    read,
    stored,
)

LARGE = 3 << 20
LENGTHS = [0, 3000, 20_000, 45_000, 70_000]


def contents_of(num_images, seed):
    rng = random.Random(seed)
    return {n: (1, rng.choice(LENGTHS)) for n in range(num_images)}


def by_rank(ranks):
    """Most valuable first: the lowest rank."""
    order = {key(n): rank for n, rank in ranks.items()}
    return lambda records: sorted(records, key=lambda record: order[record.key])


def fill(root, seed, *, files=None):
    """Store images with holes between them; return contents and ranks."""
    contents = contents_of(60, seed)
    tier = open_tier(root, files, capacity=LARGE)
    for n, content in contents.items():
        assert put(tier, {n: content}) == [PutStatus.STORED]
    rng = random.Random(seed + 1)
    for n in rng.sample(sorted(contents), 12):
        tier.delete([key(n)])
        del contents[n]
    big = {200: (1, 150_000), 201: (1, 90_000)}
    assert set(put(tier, big)) == {PutStatus.STORED}
    contents |= big
    tier.close()
    names = list(contents)
    rng.shuffle(names)
    return contents, {n: rank for rank, n in enumerate(names)}


def prefix_that_fits(tier, contents, ranks, capacity):
    kept, used = {}, 0
    for n in sorted(ranks, key=ranks.get):
        version, length = contents[n]
        used += tier.stored_bytes(len(b"%d" % version), length)
        if used > capacity:
            break
        kept[n] = contents[n]
    return kept


def images(contents):
    return {key(n): image(n, content) for n, content in contents.items()}


def folder_bytes(root):
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 0.75, 0.9, 1.0])
def test_exactly_the_most_valuable_prefix_stays(tmp_path, seed, share):
    contents, ranks = fill(tmp_path, seed)
    capacity = max(int(LARGE * share), 512 << 10)
    for _ in range(2):
        tier = open_tier(tmp_path, capacity=capacity, by_value=by_rank(ranks))
        expected = prefix_that_fits(tier, contents, ranks, capacity - (256 << 10))
        assert stored(tier) == images(expected)
        assert tier.check() == []
        assert folder_bytes(tmp_path) <= capacity
        usage = tier.usage()
        assert usage.used_bytes <= usage.capacity_bytes
        assert usage.num_images == len(expected)
        tier.close()
    tier = open_tier(tmp_path, capacity=LARGE)
    assert stored(tier) == images(expected)
    assert set(put(tier, {300: (1, 100_000)})) == {PutStatus.STORED}
    assert tier.check() == []
    tier.close()


def test_without_an_order_the_newest_stay(tmp_path):
    tier = open_tier(tmp_path, capacity=LARGE)
    contents = dict.fromkeys(range(40), (1, 50_000))
    for n, content in contents.items():
        put(tier, {n: content})
    tier.close()
    tier = open_tier(tmp_path, capacity=1 << 20)
    kept = stored(tier)
    assert kept == images({n: contents[n] for n in range(40 - len(kept), 40)})
    assert len(kept) > 10
    assert [record.key for record in tier.records()] == [key(n) for n in range(40 - len(kept), 40)]
    tier.close()


def test_what_an_order_leaves_out_counts_least(tmp_path):
    tier = open_tier(tmp_path, capacity=LARGE)
    contents = dict.fromkeys(range(40), (1, 50_000))
    put(tier, contents)
    tier.close()
    tier = open_tier(
        tmp_path, capacity=1 << 20, by_value=lambda records: [*records[5:7], *records[5:7]]
    )
    kept = stored(tier)
    assert {key(5), key(6)} <= set(kept)
    assert len(kept) > 10
    tier.close()


@pytest.mark.parametrize("is_power_loss", [False, True])
@pytest.mark.parametrize("sync", ["batch", "none"])
def test_a_crash_while_shrinking_leaves_old_or_new(tmp_path, sync, is_power_loss):
    if is_power_loss and sync == "none":
        pytest.skip("promises nothing")
    crash_at, is_done = 0, False
    while not is_done:
        crash_at += 1
        root = tmp_path / str(crash_at)
        contents, ranks = fill(root, 7)
        order = by_rank(ranks)
        files = FaultyFiles(crash_at, torn=0.4)
        try:
            tier = open_tier(root, files, sync, capacity=1 << 20, by_value=order)
            tier.close()
            is_done = True
        except Crash:
            files.die()
            if is_power_loss:
                files.lose_power(random.Random(crash_at))
        tier = open_tier(root, sync=sync, capacity=1 << 20, by_value=order)
        expected = prefix_that_fits(tier, contents, ranks, (1 << 20) - (256 << 10))
        found = stored(tier)
        if (
            is_power_loss
        ):  # some of those that did not fit may be gone for good and make room for others
            assert images(expected).items() <= found.items() <= images(contents).items()
        else:
            assert found == images(expected), f"crash at change {crash_at}"
        assert tier.check() == []
        tier.close()
    assert crash_at > 30


def test_the_larger_cap_again_after_a_crash_while_shrinking_serves_no_wrong_bytes(tmp_path):
    for crash_at in range(1, 60, 3):
        root = tmp_path / str(crash_at)
        contents, ranks = fill(root, 9)
        files = FaultyFiles(crash_at, torn=0.5)
        with contextlib.suppress(Crash):
            open_tier(root, files, capacity=1 << 20, by_value=by_rank(ranks)).close()
        files.die()
        tier = open_tier(root, capacity=LARGE)
        expected = prefix_that_fits(tier, contents, ranks, (1 << 20) - (256 << 10))
        found = stored(tier)
        assert images(expected).items() <= found.items() <= images(contents).items()
        tier.close()


@pytest.mark.parametrize("error_at", range(45, 80, 5))
def test_an_io_error_while_moving_costs_images_and_not_the_tier(tmp_path, error_at):
    contents, ranks = fill(tmp_path, 7)
    files = FaultyFiles(error_at=error_at, error=5)
    tier = open_tier(tmp_path, files, capacity=1 << 20, by_value=by_rank(ranks))
    found = stored(tier)
    assert found.items() <= images(contents).items()
    assert tier.check() == []
    tier.close()


def test_damage_in_a_moved_image_is_still_found(tmp_path):
    contents, ranks = fill(tmp_path, 3)
    open_tier(tmp_path, capacity=1 << 20, by_value=by_rank(ranks)).close()
    (path,) = tmp_path.glob("*/data")
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 4096):
        data[at] ^= 1
    path.write_bytes(data)
    tier = open_tier(tmp_path, capacity=1 << 20)
    for record in list(tier.records()):
        n = next(n for n in contents if key(n) == record.key)
        if record.num_bytes > 100:
            status, _, got = read(tier, n, record.num_bytes)
            assert status.value == "corrupt", (n, got == payload_of(n, 1, record.num_bytes))
    tier.close()
