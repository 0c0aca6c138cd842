"""Random operations on a tier beside a plain dict. Knows nothing about how the tier works."""

import shutil

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)
from typing_extensions import override

from ninfer.api import ImageKey, ImageKind, PutStatus, ReadStatus
from ninfer.testing.oracle import Content, ImageOracle
from ninfer.testing.tier.harness import TierHarness, bytes_of, key_of, put_item

KEYS = [key_of(number, kind) for number in range(2) for kind in ImageKind] + [key_of("fifth")]
_numbers = st.integers(0, len(KEYS) - 1)
_sizes = st.integers(1, 64)


class TierMachine(RuleBasedStateMachine):
    """Puts, replaces, deletes and reopens; after each step tier and dict must agree."""

    def __init__(self, suite: TierHarness) -> None:
        """Open a new tier."""
        super().__init__()
        self.suite = suite
        self.root = suite.fresh_root()
        self.tier = suite.open_tier(self.root)
        self.capabilities = self.tier.capabilities
        self.oracle = ImageOracle()
        self.version = 0

    def _new_content(self, num_bytes: int) -> Content:
        self.version += 1
        return Content(b"version %d" % self.version, bytes_of(self.version, num_bytes))

    @initialize()
    def begin(self) -> None:
        """Start with one image."""
        self.put({0: 10})

    @rule(sizes=st.dictionaries(_numbers, _sizes, min_size=1, max_size=3))
    def put(self, sizes: dict[int, int]) -> None:
        """Put new content under one to three keys."""
        batch = {KEYS[number]: self._new_content(size) for number, size in sizes.items()}
        results = self.tier.put([put_item(key, content) for key, content in batch.items()])
        got = [result.status for result in results]
        self.suite.expect("statuses of a put", got=got, wanted=[PutStatus.STORED] * len(batch))
        self.oracle.images |= batch
        self.agree()

    @rule(numbers=st.lists(_numbers, min_size=1, max_size=3, unique=True))
    def delete(self, numbers: list[int]) -> None:
        """Delete one to three keys."""
        keys = [KEYS[number] for number in numbers]
        wanted = [key in self.oracle.images for key in keys]
        self.suite.expect("answers of delete", got=self.tier.delete(keys), wanted=wanted)
        for key in keys:
            self.oracle.images.pop(key, None)
        self.agree()

    @precondition(lambda self: self.capabilities.durable)
    @rule()
    def reopen(self) -> None:
        """Close and open again."""
        self.tier.close()
        self.tier = self.suite.open_tier(self.root)
        self.agree()

    @precondition(lambda self: self.capabilities.addressable)
    @rule(number=_numbers, size=_sizes, is_kept=st.booleans())
    def allocate(self, number: int, size: int, is_kept: bool) -> None:  # noqa: FBT001 - hypothesis passes it
        """Write an image in place, or give its room back."""
        key, content = KEYS[number], self._new_content(size)
        memory = self.tier.allocate(key, content.header, size)
        is_free = key not in self.oracle.images
        self.suite.expect("allocate gave memory", got=memory is not None, wanted=is_free)
        if memory is not None and is_kept:
            memory[:] = content.payload
            self.tier.commit(key)
            self.oracle.images[key] = content
        elif memory is not None:
            self.tier.delete([key])
        self.agree()

    @precondition(lambda self: self.suite.effort.is_filling)
    @rule(number=_numbers, share=st.integers(2, 6))
    def put_large(self, number: int, share: int) -> None:
        """Put a large part of the capacity, which may be too much."""
        key = KEYS[number]
        content = self._new_content(self.tier.usage().capacity_bytes // share)
        status = self.suite.put_status(self.tier, key, content)
        if status is PutStatus.STORED:
            self.oracle.images[key] = content
        else:
            self.suite.expect("status of a large put", got=status, wanted=PutStatus.FULL)
        self.agree()

    def agree(self) -> None:
        """Fail unless the tier holds what the dict holds. No `invariant`: those clutter the example printed."""
        usage = self.tier.usage()
        self.suite.expect("num_images", got=usage.num_images, wanted=len(self.oracle.images))
        wanted = self.oracle.used_bytes(self.tier.stored_bytes)
        self.suite.expect("used_bytes", got=usage.used_bytes, wanted=wanted, unit="B")
        for key in KEYS:
            self._expect_key(key, self.oracle.images.get(key))
        if self.capabilities.enumerable:
            listed = sorted(record.key.text for record in self.tier.records())
            stored = sorted(key.text for key in self.oracle.images)
            self.suite.expect("keys of records", got=listed, wanted=stored)

    def _expect_key(self, key: ImageKey, content: Content | None) -> None:
        if content is not None:
            self.suite.expect_image(self.tier, key, content, when="in between")
            return
        status, _ = self.suite.read(self.tier, key, 10)
        self.suite.expect_that(
            "read of a key that is not stored",
            holds=status is not ReadStatus.READ,
            got=status,
            wanted="anything but READ",
        )

    @override
    def teardown(self) -> None:
        """Close the tier and remove its folder."""
        self.tier.close()
        shutil.rmtree(self.root, ignore_errors=True)
