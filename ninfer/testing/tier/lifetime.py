"""Requirements on opening, closing and reopening."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ninfer.api import ImageKind, ImageRecord, ReadStatus, TierClosed
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, content_of, key_of

OTHER_FINGERPRINT = bytes(range(31)) + b"\xff"
FOREIGN_NAMES = ("notes.txt", "x.tmp", ".hidden", f"{key_of('foreign').text}.old", "data.bak")


class TierLifetime(TierHarness):
    """Requirements on opening and closing."""

    @requirement("TIER-25")
    def test_a_durable_tier_keeps_its_images(self) -> None:
        """A durable tier has after reopening exactly the images that it had when it was closed."""
        root = self.fresh_root()
        tier = self.open(root)
        self.requires("capabilities.durable", holds=tier.capabilities.durable)
        contents = {
            key_of(("kept", n), kind): content_of((n, kind), n * 700)
            for n in range(3)
            for kind in ImageKind
        }
        gone = key_of("gone")
        for key, content in contents.items():
            self.put(tier, key, content)
        self.put(tier, gone, content_of("gone", 50))
        tier.delete([gone])
        usage = tier.usage()
        for number in (1, 2):
            tier.close()
            tier = self.open(root)
            when = f"after reopening {number} times"
            self.expect(f"usage {when}", got=tier.usage(), wanted=usage)
            self.expect(
                f"contains of a deleted key {when}", got=tier.contains([gone]), wanted=[False]
            )
            for key, content in contents.items():
                self.expect_image(tier, key, content, when=when)

    @requirement("TIER-26")
    def test_a_tier_that_is_not_durable_opens_empty(self) -> None:
        """A tier that does not promise `durable` holds nothing when it opens, whatever it held before."""
        root = self.fresh_root()
        tier = self.open(root)
        self.requires("a tier that is not durable", holds=not tier.capabilities.durable)
        self.put(tier, key_of("forgotten"), content_of("forgotten", 100))
        tier.close()
        tier = self.open(root)
        self.expect("images after reopening", got=tier.usage().num_images, wanted=0)
        self.expect("used_bytes after reopening", got=tier.usage().used_bytes, wanted=0, unit="B")
        got = tier.contains([key_of("forgotten")])
        self.expect("contains after reopening", got=got, wanted=[False])

    @requirement("TIER-27")
    def test_a_smaller_tier_keeps_the_most_valuable(self) -> None:
        """A durable tier that opens with less capacity keeps images from the front of what `by_value` returns."""
        root = self.fresh_root()
        tier = self.open(root)
        self.requires("capabilities.durable", holds=tier.capabilities.durable)
        capacity = self.fillable(tier)
        contents = {key_of(("valued", n)): content_of(n, capacity // 24) for n in range(18)}
        for key, content in contents.items():
            self.put(tier, key, content)
        tier.close()
        given: list[ImageRecord] = []
        ordered: list[ImageRecord] = []

        def by_value(records: Sequence[ImageRecord]) -> Sequence[ImageRecord]:
            given[:] = records
            ordered[:] = sorted(records, key=lambda record: record.key.digest)
            return ordered

        self._by_value = by_value
        small = self.open_tier_of(root, capacity // 2)
        if small is None:
            self.not_applicable("needs open_tier_of to open a tier with half of the capacity")
        self.at_end(small.close)
        usage = small.usage()
        self.expect_that(
            "usage of a tier reopened with half of the capacity",
            holds=0 < usage.used_bytes <= usage.capacity_bytes < capacity,
            got=usage,
            wanted=f"some images, within a capacity below {capacity}",
        )
        got = [record.key for record in given]
        self.expect("keys given to by_value, oldest first", got=got, wanted=list(contents))
        kept = small.contains([record.key for record in ordered])
        front = [position < sum(kept) for position in range(len(kept))]
        self.expect("kept of what by_value returned, in its order", got=kept, wanted=front)
        for record in ordered[: sum(kept)]:
            self.expect_image(small, record.key, contents[record.key], when="of what was kept")

    @requirement("TIER-28")
    def test_images_of_another_fingerprint_are_never_returned(self) -> None:
        """A tier opened with another fingerprint returns, lists and contains nothing stored under the first."""
        root = self.fresh_root()
        tier = self.open(root)
        keys = [key_of(("theirs", n)) for n in range(3)]
        for key in keys:
            self.put(tier, key, content_of(key.digest, 100))
        tier.close()
        self._fingerprint = OTHER_FINGERPRINT
        other = self.open(root)
        self.expect("contains of theirs", got=other.contains(keys), wanted=[False] * 3)
        for key in keys:
            status, _ = self.read(other, key, 100)
            self.expect_that(
                "read of theirs",
                holds=status is not ReadStatus.READ,
                got=status,
                wanted="anything but READ",
            )
        self.expect("images counted as ours", got=other.usage().num_images, wanted=0)
        if other.capabilities.enumerable:
            self.expect("records", got=list(other.records()), wanted=[])
        self.put(other, keys[0], content_of("ours", 90))
        self.expect_image(other, keys[0], content_of("ours", 90), when="under a key of theirs")

    @requirement("TIER-29")
    def test_foreign_files_are_left_alone(self) -> None:
        """Files below the root that the tier did not write are neither read as images nor changed nor deleted."""
        root = self.fresh_root()
        self._plant(root)
        tier = self.open(root)
        self.put(tier, key_of("own"), content_of("own", 300))
        tier.close()
        folders = {path.parent for path in root.rglob("*") if path.is_file()} - {root}
        own = [path for path in root.rglob("*") if path.is_file() and not _is_foreign(path)]
        self.requires("a tier that keeps files below its root", holds=bool(own))
        for folder in folders:
            self._plant(folder)
        tier = self.open(root)
        self.put(tier, key_of("more"), content_of("more", 300))
        tier.delete([key_of("own"), key_of("foreign")])
        self.expect("images", got=tier.usage().num_images, wanted=1)
        tier.close()
        self.open(root).close()
        for folder in {root, *folders}:
            for name in FOREIGN_NAMES:
                path = folder / name
                got = path.read_bytes() if path.exists() else None
                what = f"file {path.relative_to(root)} that the tier did not write"
                self.expect(what, got=got, wanted=content_of(name, 200).payload)

    def _plant(self, folder: Path) -> None:
        for name in FOREIGN_NAMES:
            (folder / name).write_bytes(content_of(name, 200).payload)

    @requirement("TIER-30")
    def test_a_closed_tier_refuses_everything(self) -> None:
        """After `close` every operation raises TierClosed, also on empty batches; closing twice is allowed."""
        tier = self.in_use()
        key = key_of("resident")
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: self.put_status(tier, key, content_of("late", 10)),
            "put of nothing": lambda: tier.put([]),
            "read_into": lambda: self.read(tier, key, 5),
            "read_into of nothing": lambda: tier.read_into([]),
            "contains": lambda: tier.contains([key]),
            "contains of nothing": lambda: tier.contains([]),
            "delete": lambda: tier.delete([key]),
            "delete of nothing": lambda: tier.delete([]),
            "usage": tier.usage,
            "check": tier.check,
        }
        if tier.capabilities.enumerable:
            calls["records"] = lambda: list(tier.records())
        if tier.capabilities.addressable:
            calls["view"] = lambda: tier.view(key)
            calls["allocate"] = lambda: tier.allocate(key_of("late"), b"header", 10)
            calls["commit"] = lambda: tier.commit(key)
        if tier.capabilities.shared:
            calls["changes"] = lambda: tier.changes(b"", 10)
        tier.close()
        tier.close()
        for name, call in calls.items():
            self.expect_raises(f"{name} after close", TierClosed, call)


def _is_foreign(path: Path) -> bool:
    return path.name in FOREIGN_NAMES
