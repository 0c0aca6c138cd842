"""Requirements on capacity: what is counted, what is refused, what is free again."""

from collections.abc import Iterator
from functools import partial

from ninfer.api import ImageKey, ImageKind, PutStatus, StorageTier
from ninfer.testing.oracle import Content, ImageOracle
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, bytes_of, content_of, key_of, put_item

MAX_IMAGES = 200
"""A tier that takes more images than this, each at least 1/20 of its capacity, does not count them."""


class TierRoom(TierHarness):
    """Requirements on room."""

    @requirement("TIER-14")
    def test_usage_is_the_sum_of_what_is_stored(self) -> None:
        """`usage` counts the stored images and sums up `stored_bytes` of each."""
        tier = self.open(self.fresh_root())
        oracle = ImageOracle()
        sizes = (0, 1, 255, 256, 257, self.page_bytes, self.state_bytes, 333, 4096, self.page_bytes)
        for number, num_bytes in enumerate(sizes):
            key = key_of(("counted", number), ImageKind.STATE)
            oracle.images[key] = Content(bytes(1 + number * 7), bytes_of(number, num_bytes))
            self.put(tier, key, oracle.images[key])
            self._expect_usage(tier, oracle)
        for key in list(oracle.images)[::2]:
            tier.delete([key])
            del oracle.images[key]
            self._expect_usage(tier, oracle)

    def _expect_usage(self, tier: StorageTier, oracle: ImageOracle) -> None:
        usage = tier.usage()
        self.expect("num_images", got=usage.num_images, wanted=len(oracle.images))
        wanted = oracle.used_bytes(tier.stored_bytes)
        self.expect("used_bytes", got=usage.used_bytes, wanted=wanted, unit="B")

    @requirement("TIER-15")
    def test_stored_bytes_is_pure(self) -> None:
        """`stored_bytes` depends on its two arguments only and never shrinks when one of them grows."""
        tier = self.in_use()
        lengths = (0, 1, 100, 4095, 4096, 4097, 100_000, 1 << 20, (1 << 24) + 1)
        grid = [(header, payload) for header in (0, 1, 200, 4096) for payload in lengths]
        before = {pair: tier.stored_bytes(*pair) for pair in grid}
        self.put(tier, key_of("one more"), content_of("one more", 300))
        for pair in grid:
            what = f"stored_bytes{pair} after a put, beside before"
            self.expect(what, got=tier.stored_bytes(*pair), wanted=before[pair], unit="B")
        for header, payload in grid:
            for other in [(h, p) for h, p in grid if h >= header and p >= payload]:
                self.expect_that(
                    f"stored_bytes{other}",
                    holds=before[other] >= before[header, payload] >= 0,
                    got=before[other],
                    wanted=f"at least stored_bytes{(header, payload)}, {before[header, payload]}",
                    unit="B",
                )

    @requirement("TIER-16")
    def test_a_full_tier_changes_nothing(self) -> None:
        """What does not fit is refused with FULL, and nothing else changes: a tier never makes room by itself."""
        tier = self.in_use()
        stored = dict(self._fill(tier))
        before = tier.usage()
        refused, content = stored.popitem()
        for _ in range(3):
            got = self.put_status(tier, refused, content)
            self.expect("the same put into a full tier", got=got, wanted=PutStatus.FULL)
        self.expect("usage after FULL", got=tier.usage(), wanted=before)
        self.expect("contains of what was refused", got=tier.contains([refused]), wanted=[False])
        larger = Content(b"larger", bytes(before.capacity_bytes))
        for key in (*stored, key_of("resident")):
            got = self.put_status(tier, key, larger)
            self.expect("put of more than fits in place of another", got=got, wanted=PutStatus.FULL)
        self.expect("usage after refused replacements", got=tier.usage(), wanted=before)
        for key, kept in stored.items():
            self.expect_image(tier, key, kept, when="after others were refused with FULL")

    @requirement("TIER-17")
    def test_room_freed_by_delete_can_be_used(self) -> None:
        """The room of a deleted image takes an image of the same size, as often as one likes."""
        tier = self.in_use()
        stored = dict(self._fill(tier))
        *keys, refused = stored
        for _ in range(5):
            for key in keys[:3]:
                tier.delete([key])
            for key in keys[:3]:
                got = self.put_status(tier, key, stored[key])
                what = "put of the size of what was just deleted"
                self.expect(what, got=got, wanted=PutStatus.STORED)
        tier.delete(keys)
        got = self.put_status(tier, refused, stored[refused])
        self.expect("put after all was deleted", got=got, wanted=PutStatus.STORED)

    @requirement("TIER-18")
    def test_capacity_is_never_exceeded(self) -> None:
        """`used_bytes` never exceeds `capacity_bytes`; an image larger than the whole tier is FULL."""
        tier = self.open(self.fresh_root())
        capacity = self.fillable(tier)
        large = Content(b"large", bytes(capacity + 1))
        for name in ("into an empty tier", "again"):
            got = self.put_status(tier, key_of("too large"), large)
            self.expect(f"put of more than the capacity {name}", got=got, wanted=PutStatus.FULL)
        self.expect("images after that", got=tier.usage().num_images, wanted=0)
        for number in range(30):
            num_bytes = capacity // (3 + number % 7)
            tier.put([put_item(key_of(number), content_of(number, num_bytes))])
            usage = tier.usage()
            self.expect_that(
                "used_bytes while filling",
                holds=usage.used_bytes <= usage.capacity_bytes == capacity,
                got=usage,
                wanted=f"at most capacity_bytes, and that always {capacity}",
                unit="B",
            )
        self._expect_room_given_once(capacity)

    def _expect_room_given_once(self, capacity: int) -> None:
        """Let threads put at once what fits one at a time."""
        for number in range(self.effort.num_rounds):
            tier = self.open(self.fresh_root())
            content = content_of(number, capacity * 3 // 5)
            statuses: list[PutStatus] = []

            def put(
                thread: int,
                tier: StorageTier = tier,
                content: Content = content,
                statuses: list[PutStatus] = statuses,
            ) -> None:
                statuses.append(self.put_status(tier, key_of(thread), content))

            self.together([partial(put, thread) for thread in range(3)])
            self.expect(
                "puts of 3/5 of the capacity by three threads that were STORED",
                got=statuses.count(PutStatus.STORED),
                wanted=1,
            )
            tier.close()

    def _fill(self, tier: StorageTier) -> Iterator[tuple[ImageKey, Content]]:
        """Put images of a twentieth of the capacity until one is refused; yield all, the refused one last."""
        num_bytes = self.fillable(tier) // 20
        for number in range(MAX_IMAGES):
            key, content = key_of(("fill", number)), content_of(("fill", number), num_bytes)
            status = self.put_status(tier, key, content)
            yield key, content
            if status is not PutStatus.STORED:
                self.expect("put that does not fit", got=status, wanted=PutStatus.FULL)
                return
        self.fail(
            f"images of {num_bytes} bytes stored in {num_bytes * 20} bytes",
            got=MAX_IMAGES,
            wanted="about 19, then FULL",
        )
