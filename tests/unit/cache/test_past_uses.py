"""Which counter of uses was current when."""

import random
from bisect import bisect_right

from ninfer.cache.past_uses import PastUses


def test_the_counter_of_an_earlier_second_is_found_and_memory_is_bounded():
    rng = random.Random(3)
    past, times, indexes, now_s, index = PastUses(50.0), [], [], 0.0, 0
    for _ in range(3000):
        now_s += rng.choice([0.0, 0.1, 0.4, 3.0])
        index += rng.randrange(4)
        past.note(now_s, index)
        times.append(now_s)
        indexes.append(index)
        asked = now_s - rng.choice([1.0, 10.0, 50.0])
        at = bisect_right(times, asked) - 1
        found = past.index_at(asked)
        # Samples are a second apart: it is that of the time asked for, or of up to one second around it.
        low = bisect_right(times, asked - 4.0) - 1
        high = bisect_right(times, asked + 1.0) - 1
        assert (indexes[low] if low >= 0 else 0) <= found <= (indexes[high] if at >= 0 else 0)
    assert len(past._times_s) <= 60


def test_before_the_first_sample_nothing_was_used():
    past = PastUses(10.0)
    assert past.index_at(5.0) == 0
    past.note(100.0, 7)
    assert (past.index_at(99.0), past.index_at(100.0)) == (0, 7)
