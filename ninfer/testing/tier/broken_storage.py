"""Requirements on storage that fails or dies while it is written. Needs the hook `open_tier_with_faults`."""

from collections.abc import Iterator
from itertools import compress
from pathlib import Path

from ninfer.api import ImageKey, NinferError, PutStatus, StorageTier
from ninfer.testing.faults import Crashed, StorageFaults
from ninfer.testing.oracle import Content
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, content_of, key_of, put_item

_History = dict[ImageKey, list[Content | None]]
"""What each key may hold, oldest first; None is nothing."""

UNTOUCHED = {key_of(name): content_of(name, 400) for name in ("still", "stiller")}
OLD = {key_of(name): content_of((name, "old"), 500) for name in ("replaced", "removed")}
NEW = {
    key_of("replaced"): content_of((("replaced", "new")), 500),
    key_of("first"): content_of("first", 700),
    key_of("second"): content_of("second", 90),
}
LAST = {key_of("last"): content_of("last", 300)}


class TierBrokenStorage(TierHarness):
    """Requirements on crashes and errors."""

    @requirement("TIER-33")
    def test_a_crash_leaves_old_or_new(self) -> None:
        """After a crash at any write the tier opens, and each image is old or new or gone, never a mix."""
        for root, point in self._roots_with_points(crash=True):
            faults = StorageFaults(crash_at=point)
            history: _History = {key: [c] for key, c in {**UNTOUCHED, **OLD}.items()}
            try:
                self._write(self._faulty(root, faults), history)
            except Crashed:
                pass
            else:
                self.fail(f"change {point}", got="no crash", wanted="Crashed to come through")
            finally:
                faults.kill()
            tier = self.open_tier(root)
            self._expect_one_of(tier, history, f"after a crash at change {point}")
            self.put(tier, key_of("afterwards"), content_of("afterwards", 400))
            tier.close()

    @requirement("TIER-34")
    def test_an_error_while_writing_is_an_answer(self) -> None:
        """An I/O error at any write is answered with FAILED or FULL, and nothing new is visible under that key."""
        for root, point in self._roots_with_points(crash=False):
            faults = StorageFaults(error_at=point)
            try:
                tier = self._faulty(root, faults)
            except NinferError:
                continue  # a tier may refuse to open
            when = f"with an I/O error at change {point}"
            before = {**UNTOUCHED, **OLD}
            is_there = tier.contains(list(before))
            stored = dict(compress(before.items(), is_there))
            for batch in (NEW, LAST):
                results = tier.put([put_item(key, content) for key, content in batch.items()])
                self.expect(f"results {when}", got=len(results), wanted=len(batch))
                for (key, content), result in zip(batch.items(), results, strict=True):
                    if result.status is PutStatus.STORED:
                        stored[key] = content
            for key in {**NEW, **LAST}:
                self.expect(f"contains {when}", got=tier.contains([key]), wanted=[key in stored])
            for key, content in stored.items():
                self.expect_image(tier, key, content, when=when)
            self.expect(f"check {when}", got=tier.check(), wanted=[])
            for key, content in {**NEW, **LAST}.items():
                self.put(tier, key, content)
            tier.close()
            faults.kill()

    def _roots_with_points(self, *, crash: bool) -> Iterator[tuple[Path, int]]:
        """Yield a prepared folder for each change at which something is to go wrong; else not applicable."""
        faults = StorageFaults()
        root = self._prepared()
        self._write(self._faulty(root, faults), {}, is_crash=crash)
        faults.kill()
        self.expect_that(
            "changes counted by open_tier_with_faults",
            holds=faults.num_changes > 0,
            got=faults.num_changes,
            wanted="at least one; its storage must call faults.change()",
        )
        total = faults.num_changes
        step = max(1, total // self.effort.num_crash_points)
        for point in range(1, total + 1, step):
            yield self._prepared(), point

    def _prepared(self) -> Path:
        root = self.fresh_root()
        tier = self.open_tier(root)
        for key, content in {**UNTOUCHED, **OLD}.items():
            self.put(tier, key, content)
        tier.close()
        return root

    def _faulty(self, root: Path, faults: StorageFaults) -> StorageTier:
        tier = self.open_tier_with_faults(root, faults)
        if tier is None:
            self.not_applicable(
                "needs storage that fails on demand: open_tier_with_faults is not defined"
            )
        return tier

    def _write(self, tier: StorageTier, history: _History, *, is_crash: bool = True) -> None:
        """Put, replace and delete; write down beforehand what each key may hold afterwards."""
        for key, content in NEW.items():
            history.setdefault(key, [None]).append(content)
        tier.put([put_item(key, content) for key, content in NEW.items()])
        if is_crash:
            history.setdefault(key_of("removed"), []).append(None)
            tier.delete([key_of("removed")])
        for key, content in LAST.items():
            history.setdefault(key, [None]).append(content)
        tier.put([put_item(key, content) for key, content in LAST.items()])
        tier.close()

    def _expect_one_of(self, tier: StorageTier, history: _History, when: str) -> None:
        num_images = 0
        for key, versions in history.items():
            (is_there,) = tier.contains([key])
            num_images += is_there
            if is_there:
                known = [content for content in versions if content is not None]
                got = [self.read(tier, key, len(content.payload))[1] for content in known]
                holds = any(have == content for have, content in zip(got, known, strict=True))
                wanted = f"one of the {len(known)} images put under {key.text}"
                self.expect_that(f"image {when}", holds=holds, got=got, wanted=wanted)
            elif tier.capabilities.durable and key in UNTOUCHED:
                self.fail(f"image that nobody touched {when}", got="nothing", wanted=key.text)
        self.expect(f"num_images {when}", got=tier.usage().num_images, wanted=num_images)
        self.expect(f"check {when}", got=tier.check(), wanted=[])
