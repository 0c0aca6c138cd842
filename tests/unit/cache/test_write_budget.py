"""Token buckets of a tier's writes, with a clock that the tests move."""

import random

import pytest

from ninfer.cache.write_budget import DAY_S, WriteBudget
from ninfer.testing.clock import FakeClock


def budget(clock, per_s=0, per_day=0, largest=1):
    return WriteBudget(clock, bytes_per_s=per_s, bytes_per_day=per_day, largest_bytes=largest)


def greedy(clock, bucket, rng, *, days, image=1000):
    """Write whatever is allowed at random times; return (time, bytes) of each write."""
    written, start_s = [], clock.monotonic_s()
    while clock.monotonic_s() - start_s < days * DAY_S:
        for _ in range(rng.choice([1, 3, 50])):
            if bucket.allows(image):
                bucket.take(image)
                written.append((clock.monotonic_s(), image))
        clock.advance(rng.choice([1.0, 60.0, 900.0, 7200.0]))
    return written


def test_without_limits_everything_is_allowed():
    found = budget(FakeClock())
    found.take(10**18)
    assert found.allows(10**18)
    assert found.left_bytes is None
    assert not found.is_short


@pytest.mark.parametrize("seed", range(5))
def test_no_24_hours_have_more_than_a_day_and_most_of_it_can_be_used(seed):
    clock, day = FakeClock(), 200_000
    written = greedy(clock, budget(clock, per_day=day), random.Random(seed), days=6)
    for at, (start_s, _) in enumerate(written):
        window = [size for time_s, size in written[at:] if time_s < start_s + DAY_S]
        assert sum(window) <= day
    assert sum(size for _, size in written) >= 4 * day


def test_the_rate_per_second_holds_on_average_and_a_burst_is_ten_seconds():
    clock = FakeClock()
    found = budget(clock, per_s=100)
    total = 0
    for _ in range(1000):
        while found.allows(10):
            found.take(10)
            total += 10
        clock.advance(0.5)
    assert 100 * 500 <= total <= 100 * 510


def test_both_limits_hold_together():
    clock = FakeClock()
    found = budget(clock, per_s=1000, per_day=8000)
    assert found.left_bytes == 1000
    found.take(1000)
    clock.advance(3600)
    assert found.left_bytes == pytest.approx(7000 / 24, rel=1e-6)


def test_one_image_passes_however_low_the_rate_is_and_then_it_takes_its_time():
    clock = FakeClock()
    found = budget(clock, per_s=1, largest=5000)
    assert found.allows(5000)
    found.take(5000)
    clock.advance(4999)
    assert not found.allows(5000)
    clock.advance(1)
    assert found.allows(5000)


def test_an_image_larger_than_a_day_is_never_written():
    assert not budget(FakeClock(), per_day=4000, largest=5000).allows(5000)


def test_what_was_promised_is_paid_for_by_later_writes():
    clock = FakeClock()
    found = budget(clock, per_s=100)
    found.take(1500)
    assert found.left_bytes == 0
    clock.advance(5)
    assert not found.allows(1)
    clock.advance(1)
    assert found.left_bytes == 100


def test_a_budget_is_short_when_less_than_half_is_left():
    clock = FakeClock()
    found = budget(clock, per_s=100)
    found.take(400)
    assert not found.is_short
    found.take(200)
    assert found.is_short
    clock.advance(1)
    assert not found.is_short
