"""The suite of storage tiers: all requirements TIER-nn. Contains the two that look at everything at once."""

from ninfer.api import ImageKind, PutStatus, StorageTier
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.access import TierAccess
from ninfer.testing.tier.broken_storage import TierBrokenStorage
from ninfer.testing.tier.contents import TierContents
from ninfer.testing.tier.damage import TierDamage
from ninfer.testing.tier.harness import content_of, key_of
from ninfer.testing.tier.lifetime import TierLifetime
from ninfer.testing.tier.machine import TierMachine
from ninfer.testing.tier.room import TierRoom
from ninfer.testing.tier.sharing import TierSharing
from ninfer.testing.tier.threads import TierThreads


class StorageTierSuite(
    TierContents,
    TierRoom,
    TierAccess,
    TierLifetime,
    TierDamage,
    TierBrokenStorage,
    TierThreads,
    TierSharing,
):
    """All requirements of a storage tier.

    A test file of a tier, complete:

        class TestAcmeTier(StorageTierSuite):
            def open_tier(self, root: Path) -> StorageTier:
                return AcmeTier.open(self.context(), AcmeConfig.sample(root))
    """

    @requirement("TIER-37")
    def test_check_finds_nothing_wrong(self) -> None:
        """`check` of a tier that works returns an empty list, whatever was done before."""
        root = self.fresh_root()
        tier = self.open(root)
        self._expect_sound(tier, "of a new tier")
        for round_number in range(3):
            for number in range(6):
                key = key_of(("checked", number), ImageKind.STATE)
                self.put(tier, key, content_of(number, (number + round_number) * 400))
            self._expect_sound(tier, "after puts")
            tier.delete([key_of(("checked", n), ImageKind.STATE) for n in range(0, 6, 2)])
            self._expect_sound(tier, "after deletions")
        large = tier.usage().capacity_bytes // 5
        statuses = [
            self.put_status(tier, key_of(("large", n)), content_of(n, large)) for n in range(6)
        ]
        self.expect("status of the last put", got=statuses[-1], wanted=PutStatus.FULL)
        self._expect_sound(tier, "of a full tier")
        tier.close()
        self._expect_sound(self.open(root), "after reopening")

    def _expect_sound(self, tier: StorageTier, when: str) -> None:
        self.expect(f"check {when}", got=tier.check(), wanted=[])

    @requirement("TIER-38")
    def test_any_sequence_of_operations_agrees_with_a_dict(self) -> None:
        """After any sequence of operations a tier holds what a plain dict would hold."""
        self.explore_machine(lambda: TierMachine(self))
