"""Requirements on threads: the core calls a tier from several at once."""

from collections.abc import Callable
from functools import partial

from ninfer.api import ImageKey, ReadStatus, StorageTier
from ninfer.testing.oracle import Content, ImageOracle
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import RESIDENT, TierHarness, content_of, key_of

NUM_THREADS = 4


class TierThreads(TierHarness):
    """Requirements on threads."""

    @requirement("TIER-35")
    def test_threads_on_one_key_see_whole_images(self) -> None:
        """Whatever threads do to one key at once, it holds one of the images put or none, and never a mix."""
        tier = self.in_use()
        for number in range(self.effort.num_rounds):
            contents = [content_of((number, letter), 3000) for letter in "ab"]
            self._race(tier, key_of(("shared", number)), contents)

    def _race(self, tier: StorageTier, key: ImageKey, contents: list[Content]) -> None:
        """Put both contents at once while a third thread looks; then delete twice at once."""
        seen: list[Content] = []
        answers: list[bool] = []

        def look() -> None:
            for _ in range(3):
                status, got = self.read(tier, key, 3000)
                if status is ReadStatus.READ:
                    seen.append(got)

        def writer(content: Content) -> Callable[[], None]:
            return lambda: self.put(tier, key, content)

        def remove() -> None:
            answers.extend(tier.delete([key]))

        self.together([writer(contents[0]), writer(contents[1]), look])
        look()
        self._expect_books(tier, contents)
        self.together([remove, remove, look])
        for got in seen:
            self.expect_that(
                "image read while two were put",
                holds=got in contents,
                got=got,
                wanted="header and payload of one of the two",
            )
        self.expect("answers of two deletes at once", got=sorted(answers), wanted=[False, True])
        self.expect("contains", got=tier.contains([key]), wanted=[False])

    def _expect_books(self, tier: StorageTier, contents: list[Content]) -> None:
        """Fail unless the tier counts its resident and one of the contents."""
        usage = tier.usage()
        self.expect("images", got=usage.num_images, wanted=2)
        sizes = [
            tier.stored_bytes(len(content.header), len(content.payload))
            for content in (*contents, RESIDENT)
        ]
        self.expect_that(
            "used_bytes after two puts of one key at once",
            holds=usage.used_bytes - sizes[2] in sizes[:2],
            got=usage.used_bytes,
            wanted=f"{sizes[2]} and one of {sizes[:2]}",
            unit="B",
        )

    @requirement("TIER-36")
    def test_threads_on_different_keys_do_not_disturb_each_other(self) -> None:
        """Threads that work on different keys get the answers they would get alone, and usage stays right."""
        tier = self.in_use()
        for number in range(self.effort.num_rounds):
            oracle = ImageOracle({key_of("resident"): RESIDENT})

            def work(thread: int, number: int = number, oracle: ImageOracle = oracle) -> None:
                keys = [key_of((number, thread, n)) for n in range(3)]
                for key in keys:
                    content = content_of(key.digest, 800)
                    self.put(tier, key, content)
                    self.expect_image(tier, key, content, when="in a thread of its own")
                self.expect("delete", got=tier.delete(keys[:2]), wanted=[True, True])
                oracle.images[keys[2]] = content_of(keys[2].digest, 800)

            self.together([partial(work, thread) for thread in range(NUM_THREADS)])
            self._expect_oracle(tier, oracle)
            tier.delete([key for key in oracle.images if key != key_of("resident")])
        self.expect("images at the end", got=tier.usage().num_images, wanted=1)

    def _expect_oracle(self, tier: StorageTier, oracle: ImageOracle) -> None:
        usage = tier.usage()
        self.expect("num_images", got=usage.num_images, wanted=len(oracle.images))
        wanted = oracle.used_bytes(tier.stored_bytes)
        self.expect("used_bytes", got=usage.used_bytes, wanted=wanted, unit="B")
        for key, content in oracle.images.items():
            self.expect_image(tier, key, content, when="after all threads ended")
