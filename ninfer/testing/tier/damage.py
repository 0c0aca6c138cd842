"""Requirements on damaged storage: what was not put is never returned."""

from pathlib import Path

from hypothesis import strategies as st

from ninfer.api import PutStatus, ReadStatus, StorageTier
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, content_of, flip_bit, key_of

NUM_IMAGES = 4


class TierDamage(TierHarness):
    """Requirements on damaged storage."""

    @requirement("TIER-31")
    def test_damage_is_found_when_reading(self) -> None:
        """A stored image that was damaged behind the tier's back reads as CORRUPT and is then no longer contained."""
        root = self.fresh_root()
        tier = self.open(root)
        for number in range(NUM_IMAGES):
            self.put(tier, key_of(number), content_of(number, 600))
        victim = content_of(1, 600)
        if not self.damage(root, key_of(1), victim.payload):
            self.not_applicable(
                "the payload is in no file below the root, and `damage` is not defined"
            )
        status, got = self.read(tier, key_of(1), 600)
        if status is ReadStatus.READ:  # from memory, which nobody damaged
            self.expect("damaged image", got=got, wanted=victim)
        else:
            self.expect("status of a damaged image", got=status, wanted=ReadStatus.CORRUPT)
            got_contains = tier.contains([key_of(1)])
            self.expect("contains after CORRUPT", got=got_contains, wanted=[False])
        for number in (0, 2, 3):
            content = content_of(number, 600)
            self.expect_image(tier, key_of(number), content, when="beside a damaged one")
        self.put(tier, key_of(1), victim)
        self.expect_image(tier, key_of(1), victim, when="after it was put again")

    @requirement("TIER-32")
    def test_damaged_files_cost_only_images(self) -> None:
        """After any damage to closed files the tier opens, and what it returns is what was put or nothing."""
        root = self.fresh_root()
        tier = self.open(root)
        self.put(tier, key_of("any"), content_of("any", 300))
        tier.close()
        has_files = any(path.is_file() and path.stat().st_size for path in root.rglob("*"))
        self.requires("a tier that keeps files below its root", holds=has_files)

        def check(file: float, place: float, fault: str) -> None:
            folder = self.fresh_root()
            tier = self.open_tier(folder)
            for number in range(NUM_IMAGES):
                self.put(tier, key_of(number), content_of(number, 100 + 50 * number))
            tier.close()
            damage_file(folder, file, place, fault)
            tier = self.open_tier(folder)
            self._expect_right_or_nothing(tier)
            tier.close()

        for step in range(24):
            check(0.5, step / 24, "flip")
        for place in (0.0, 0.5, 0.999):
            check(0.5, place, "cut")
        self.explore(
            check,
            file=st.floats(0, 0.999),
            place=st.floats(0, 0.999),
            fault=st.sampled_from(["flip", "cut", "zeros", "longer"]),
        )

    def _expect_right_or_nothing(self, tier: StorageTier) -> None:
        for number in range(NUM_IMAGES):
            key, content = key_of(number), content_of(number, 100 + 50 * number)
            status, got = self.read(tier, key, len(content.payload))
            if status is ReadStatus.READ:
                self.expect("image read after damage", got=got, wanted=content)
            else:
                contained = tier.contains([key])
                self.expect(f"contains after {status}", got=contained, wanted=[False])
                got_put = self.put_status(tier, key, content)
                self.expect("put of a lost image", got=got_put, wanted=PutStatus.STORED)
                self.expect_image(tier, key, content, when="after it was put again")


def damage_file(folder: Path, file: float, place: float, fault: str) -> None:
    """Damage one file.

    Args:
        folder: where to look for files that are not empty.
        file: which of them, as a share.
        place: where in it, as a share.
        fault: "flip" one bit, "cut" the rest off, write "zeros" over the rest, or make it "longer".
    """
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    path = paths[int(file * len(paths))]
    size = path.stat().st_size
    position = int(place * size)
    if fault == "flip":
        flip_bit(path, position)
        return
    old = path.read_bytes()
    new = {
        "cut": old[:position],
        "zeros": old[:position] + bytes(size - position),
        "longer": old + bytes(position + 1),
    }
    path.write_bytes(new[fault])
