"""Requirements on tiers that several processes use at once. Two instances on one place stand for two processes."""

from ninfer.api import ImageKey, ImageRecord, PutStatus, StorageTier
from ninfer.testing.oracle import Content
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, content_of, key_of

NUM_IMAGES = 7
LIMIT = 3
"""Images asked for at once: fewer than there are, so that a change must not fall between two answers."""


class TierSharing(TierHarness):
    """Requirements on shared tiers."""

    @requirement("TIER-39")
    def test_instances_of_a_shared_tier_see_the_same(self) -> None:
        """What one instance of a shared tier stores, replaces or deletes, another one sees from then on."""
        ours, theirs = self._two()
        key = key_of("common")
        for version in ("first", "second"):
            content = content_of((version, "content"), 300)
            self.put(theirs, key, content)
            self.expect_image(ours, key, content, when=f"after another instance put the {version}")
            self.expect("contains of theirs", got=ours.contains([key]), wanted=[True])
        self.expect("delete of theirs", got=ours.delete([key]), wanted=[True])
        self.expect("contains after our delete", got=theirs.contains([key]), wanted=[False])
        self.expect("their delete of the same", got=theirs.delete([key]), wanted=[False])

    @requirement("TIER-40")
    def test_changes_tell_what_others_stored(self) -> None:
        """`changes` of a shared tier tells from one cursor to the next of every image that others stored."""
        ours, theirs = self._two()
        self.put(theirs, key_of("earlier"), content_of("earlier", 50))
        start = ours.changes(b"", LIMIT)
        self.expect("records at the present place", got=list(start.records), wanted=[])
        self.expect("removed at the present place", got=list(start.removed), wanted=[])
        stored = {key_of(("new", n)): content_of(("new", n), 40 + n) for n in range(NUM_IMAGES)}
        for key, content in stored.items():
            self.put(theirs, key, content)
        gone = key_of(("new", 2))
        theirs.delete([gone, key_of("earlier")])
        del stored[gone]
        records, removed = self._follow(ours, start.cursor, len(stored))
        for key, content in stored.items():
            wanted = ImageRecord(key=key, header=content.header, num_bytes=len(content.payload))
            self.expect("record of what another stored", got=records.get(key), wanted=wanted)
        self.expect("record of what is gone again", got=records.get(gone), wanted=None)
        wrong = removed & set(stored)
        self.expect("told to be removed and still there", got=wrong, wanted=set())

    def _follow(
        self, tier: StorageTier, cursor: bytes, num_records: int
    ) -> tuple[dict[ImageKey, ImageRecord], set[ImageKey]]:
        """Ask for changes until there are none; return the last record of each key, and what was removed."""
        records: dict[ImageKey, ImageRecord] = {}
        removed: set[ImageKey] = set()
        for _ in range(10 * num_records):
            self.expect_that(
                "cursor of an answer", holds=bool(cursor), got=cursor, wanted="anything but empty"
            )
            answer = tier.changes(cursor, LIMIT)
            records |= {record.key: record for record in answer.records}
            removed |= set(answer.removed)
            if answer.cursor == cursor:
                return records, removed
            cursor = answer.cursor
        return self.fail("answers without an end", got=10 * num_records, wanted="the same cursor")

    @requirement("TIER-41")
    def test_instances_of_a_shared_tier_share_its_room(self) -> None:
        """`usage` of a shared tier counts what everybody stored, and what others took is FULL for all."""
        ours, theirs = self._two()
        num_bytes = self.fillable(ours) // 10
        keys = [key_of(("filled", n)) for n in range(30)]
        statuses = []
        for number, key in enumerate(keys):
            tier = ours if number % 2 else theirs
            statuses.append(self.put_status(tier, key, content_of(number, num_bytes)))
        num_stored = statuses.index(PutStatus.FULL) if PutStatus.FULL in statuses else len(keys)
        self.expect_that(
            f"images of {num_bytes} bytes that fit",
            holds=num_stored <= 10,
            got=num_stored,
            wanted="at most 10 for both together",
        )
        wanted = [PutStatus.STORED] * num_stored + [PutStatus.FULL] * (len(keys) - num_stored)
        self.expect("statuses of both in turn", got=statuses, wanted=wanted)
        self.expect("usage of both", got=ours.usage(), wanted=theirs.usage())
        self.expect("images", got=ours.usage().num_images, wanted=num_stored)
        ours.delete([keys[0]])
        status = self.put_status(
            theirs, keys[-1], Content(content_of(0, 1).header, bytes(num_bytes))
        )
        self.expect("put after another deleted", got=status, wanted=PutStatus.STORED)

    def _two(self) -> tuple[StorageTier, StorageTier]:
        root = self.fresh_root()
        ours = self.open(root)
        self.requires("capabilities.shared", holds=ours.capabilities.shared)
        return ours, self.open(root)
