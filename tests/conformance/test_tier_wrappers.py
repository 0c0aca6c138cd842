"""Wrappers of tiers keep what the wrapped tier promises, and do what they are for."""

import errno

import pytest

from ninfer.api import PutStatus, ReadStatus
from ninfer.testing import (
    CrashingTier,
    FakeClock,
    FaultyTier,
    SlowTier,
    StorageFaults,
    StorageTierSuite,
    WrappedTier,
)
from ninfer.testing.faults import Crashed
from ninfer.testing.mutants.file_tier import FileTier
from ninfer.testing.tier.harness import content_of, key_of, put_item


class TestSlowTier(StorageTierSuite):
    def open_tier(self, root):
        return SlowTier(FileTier(self.context(), root), lambda: self.clock.advance(1.0))


class TestFaultyTier(StorageTierSuite):
    """With faults that the wrapper injects, where the tier's own storage never fails."""

    def open_tier(self, root):
        return FaultyTier(FileTier(self.context(), root), StorageFaults())

    def open_tier_with_faults(self, root, faults):
        return FaultyTier(FileTier(self.context(), root), faults)


class TestCrashingTier(StorageTierSuite):
    def open_tier(self, root):
        return WrappedTier(FileTier(self.context(), root))

    def open_tier_with_faults(self, root, faults):
        return CrashingTier(FileTier(self.context(), root), faults)


@pytest.fixture
def suite(tmp_path):
    class Suite(StorageTierSuite):
        def open_tier(self, root):
            return FileTier(self.context(), root)

    suite = Suite()
    suite.folder, suite.clock, suite.requirement_id = tmp_path, FakeClock(), "wrappers"
    return suite


def test_a_faulty_tier_fails_one_image_and_touches_nothing(suite):
    faults = StorageFaults(error_at=2, error=errno.ENOSPC)
    tier = FaultyTier(suite.open_tier(suite.fresh_root()), faults)
    items = [put_item(key_of(n), content_of(n, 10)) for n in range(3)]
    results = tier.put(items)
    assert [r.status for r in results] == [PutStatus.STORED, PutStatus.FAILED, PutStatus.STORED]
    assert tier.contains([key_of(n) for n in range(3)]) == [True, False, True]
    assert "injected" in results[1].message


def test_a_faulty_tier_fails_reads_and_loses_nothing(suite):
    tier = FaultyTier(suite.open_tier(suite.fresh_root()), StorageFaults(error_at=2))
    suite.put(tier, key_of(1), content_of(1, 10))
    assert suite.read(tier, key_of(1), 10)[0] is ReadStatus.FAILED
    suite.expect_image(tier, key_of(1), content_of(1, 10), when="afterwards")


def test_a_crashed_tier_stays_dead_and_keeps_what_was_before(suite):
    root = suite.fresh_root()
    faults = StorageFaults(crash_at=3)
    tier = CrashingTier(suite.open_tier(root), faults)
    suite.put(tier, key_of(1), content_of(1, 10))
    for _ in range(2):
        with pytest.raises(Crashed):
            tier.put([put_item(key_of(2), content_of(2, 10))])
    faults.kill()
    assert suite.open_tier(root).contains([key_of(1), key_of(2)]) == [True, False]


def test_a_slow_tier_waits_before_and_after_each_call_that_may_block(suite):
    waits = []
    tier = SlowTier(suite.open_tier(suite.fresh_root()), lambda: waits.append(1))
    suite.put(tier, key_of(1), content_of(1, 10))
    assert len(waits) == 2
    tier.usage()
    assert len(waits) == 2
