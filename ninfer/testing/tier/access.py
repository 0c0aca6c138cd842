"""Requirements on capabilities: what is promised works, what is not promised is refused."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from ninfer.api import (
    ImageKey,
    ImageKind,
    ImageRecord,
    StorageTier,
    TierCapabilities,
    TierError,
    Unsupported,
)
from ninfer.testing.base import RequirementFailed
from ninfer.testing.oracle import Content
from ninfer.testing.requirement import requirement
from ninfer.testing.tier.harness import TierHarness, bytes_of, content_of, key_of

if TYPE_CHECKING:
    from collections.abc import Callable


class TierAccess(TierHarness):
    """Requirements on listing and on direct access."""

    @requirement("TIER-19")
    def test_capabilities_are_constant(self) -> None:
        """`capabilities` is a TierCapabilities with boolean promises and stays the same over the tier's life."""
        tier = self.in_use()
        before = tier.capabilities
        self.expect("class of capabilities", got=type(before), wanted=TierCapabilities)
        for name, value in asdict(before).items():
            self.expect(f"class of the promise {name}", got=type(value), wanted=bool)
        self.put(tier, key_of("later"), content_of("later", self.page_bytes))
        self.expect("capabilities after a put", got=tier.capabilities, wanted=before)
        tier.delete([key_of("later"), key_of("resident")])
        self.expect("capabilities of an emptied tier", got=tier.capabilities, wanted=before)

    @requirement("TIER-20")
    def test_what_is_not_promised_is_refused(self) -> None:
        """Without `enumerable`, `addressable` or `shared`, their methods raise Unsupported."""
        tier = self.in_use()
        key = key_of("resident")
        refused: dict[str, Callable[[], object]] = {}
        if not tier.capabilities.enumerable:
            refused["records"] = lambda: list(tier.records())
        if not tier.capabilities.addressable:
            refused["view"] = lambda: tier.view(key)
            refused["allocate"] = lambda: tier.allocate(key_of("new"), b"header", 10)
            refused["commit"] = lambda: tier.commit(key_of("new"))
        if not tier.capabilities.shared:
            refused["changes"] = lambda: tier.changes(b"", 10)
        if not refused:
            self.not_applicable("the tier promises all of it")
        for name, call in refused.items():
            self.expect_raises(f"{name} of a tier that does not promise it", Unsupported, call)

    @requirement("TIER-21")
    def test_records_list_exactly_what_is_stored(self) -> None:
        """An enumerable tier lists every stored image once, with its whole header and payload length."""
        tier = self.in_use()
        self.requires("capabilities.enumerable", holds=tier.capabilities.enumerable)
        contents = {
            key_of(("listed", n), kind): Content(bytes_of(n, 1 + n * 300), bytes_of(n, n * 50))
            for n in range(4)
            for kind in ImageKind
        }
        for key, content in contents.items():
            self.put(tier, key, content)
        gone = next(iter(contents))
        tier.delete([gone])
        del contents[gone]
        contents[key_of("resident")] = Content(b"resident", b"image")
        wanted = {
            key: ImageRecord(key=key, header=content.header, num_bytes=len(content.payload))
            for key, content in contents.items()
        }
        records = list(tier.records())
        self.expect("records listed", got=len(records), wanted=len(wanted))
        for record in records:
            self.expect("a record", got=record, wanted=wanted.get(record.key))
        self._expect_listing_while_others_work(tier, set(wanted))

    def _expect_listing_while_others_work(self, tier: StorageTier, before: set[ImageKey]) -> None:
        """Put and delete in another thread in the middle of a listing."""
        new, gone = key_of("put meanwhile"), key_of("resident")
        content = content_of("put meanwhile", 60)
        listing = iter(tier.records())
        seen = [next(listing).key]
        try:
            self.together([lambda: self.put(tier, new, content), lambda: tier.delete([gone])])
            seen.extend(record.key for record in listing)
        except RequirementFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self.fail("listing while images come and go", got=error, wanted="records")
        finally:
            if isinstance(listing, Generator):
                listing.close()  # it may hold a lock
        lasting = [key.text for key in seen if key not in {new, gone}]
        self.expect(
            "images there all the time, in a listing while others came and went",
            got=sorted(lasting),
            wanted=sorted(key.text for key in before - {gone}),
        )

    @requirement("TIER-22")
    def test_view_gives_the_stored_bytes(self) -> None:
        """`view` of an addressable tier gives header and payload, valid until the image is deleted."""
        tier = self._addressable()
        contents = {key_of(("seen", n)): content_of(("seen", n), 200 + n) for n in range(4)}
        for key, content in contents.items():
            self.put(tier, key, content)
        views = {key: tier.view(key) for key in contents}
        self.put(tier, key_of("another"), content_of("another", 1000))
        tier.delete([key_of("another"), key_of("resident")])
        self.put(tier, key_of("a third"), content_of("a third", 900))
        for key, view in views.items():
            if view is None:
                self.fail("view of a stored image", got=view, wanted="header and payload")
            self.expect("header in a view", got=view[0], wanted=contents[key].header)
            self.expect("payload in a view", got=bytes(view[1]), wanted=contents[key].payload)
        self.expect("view of an absent key", got=tier.view(key_of("absent")), wanted=None)

    @requirement("TIER-42")
    def test_view_run_shows_the_images_asked_for(self) -> None:
        """`view_run` of an addressable tier gives the first images asked for, of one length, in order and without gaps."""
        tier = self._addressable()
        sizes = [4096] * 4 + [8192, 4096]
        contents = {
            key_of(("run", n)): content_of(("run", n), size) for n, size in enumerate(sizes)
        }
        for key, content in contents.items():
            self.put(tier, key, content)
        stored, absent = list(contents), key_of("absent")
        orders = [stored, stored[::-1], stored[3:], [*stored[:2], absent, *stored[2:]], stored[::2]]
        for keys in orders:
            self._expect_run(tier, keys, contents)
        tier.delete([stored[2]])
        del contents[stored[2]]
        self._expect_run(tier, stored, contents)
        self.expect("view_run of an absent key", got=tier.view_run([absent, *stored]), wanted=None)

    def _expect_run(
        self, tier: StorageTier, keys: Sequence[ImageKey], contents: Mapping[ImageKey, Content]
    ) -> None:
        found = tier.view_run(keys)
        if found is None:
            self.fail("view_run of stored images", got=found, wanted="headers and payloads")
        headers, payloads = found
        shown = [contents[key] for key in keys[: len(headers)] if key in contents]
        wanted = [content.header for content in shown]
        self.expect_that(
            "images in a view_run", holds=len(headers) > 0, got=len(headers), wanted="at least one"
        )
        self.expect("headers in a view_run", got=list(headers), wanted=wanted)
        lengths = {len(content.payload) for content in shown}
        self.expect_that(
            "lengths of images in a view_run", holds=len(lengths) == 1, got=lengths, wanted="one"
        )
        whole = b"".join(content.payload for content in shown)
        self.expect("payloads in a view_run", got=bytes(payloads), wanted=whole)

    @requirement("TIER-23")
    def test_an_allocated_image_is_invisible_until_commit(self) -> None:
        """What is allocated cannot be seen until `commit`; afterwards it is an image like any other."""
        tier = self._addressable()
        key, content = key_of("direct"), content_of("direct", 700)
        memory = self._allocate(tier, key, content)
        self.expect("contains before commit", got=tier.contains([key]), wanted=[False])
        self.expect("view before commit", got=tier.view(key), wanted=None)
        if tier.capabilities.enumerable:
            listed = [record.key for record in tier.records()]
            self.expect("records before commit", got=listed, wanted=[key_of("resident")])
        memory[:] = content.payload
        tier.commit(key)
        self.expect("contains after commit", got=tier.contains([key]), wanted=[True])
        self.expect_image(tier, key, content, when="after commit")
        for name, other in (("once more", key), ("of what was never allocated", key_of("no"))):
            self.expect_raises(f"commit {name}", TierError, partial(tier.commit, other))

    @requirement("TIER-24")
    def test_an_allocated_image_has_its_room(self) -> None:
        """`allocate` takes the room, answers None for a taken key or too little room; `delete` gives it back."""
        tier = self._addressable()
        before = tier.usage()
        key, content = key_of("promised"), content_of("promised", 600)
        self._allocate(tier, key, content)
        taken = tier.usage().used_bytes - before.used_bytes
        wanted = tier.stored_bytes(len(content.header), len(content.payload))
        self.expect("used_bytes taken by allocate", got=taken, wanted=wanted, unit="B")
        again = tier.allocate(key, content.header, 600)
        self.expect("allocate of an allocated key", got=again, wanted=None)
        stored = tier.allocate(key_of("resident"), b"header", 10)
        self.expect("allocate of a stored key", got=stored, wanted=None)
        room = tier.usage().capacity_bytes
        large = tier.allocate(key_of("large"), b"header", room)
        self.expect("allocate of more than there is", got=large, wanted=None)
        tier.delete([key])
        self.expect("usage after delete", got=tier.usage(), wanted=before)

    def _addressable(self) -> StorageTier:
        tier = self.in_use()
        self.requires("capabilities.addressable", holds=tier.capabilities.addressable)
        return tier

    def _allocate(self, tier: StorageTier, key: ImageKey, content: Content) -> memoryview:
        num_bytes = len(content.payload)
        memory = tier.allocate(key, content.header, num_bytes)
        if memory is None:
            self.fail("allocate in a tier with room", got=None, wanted="writable memory")
        what = f"bytes of memory allocated for {num_bytes} bytes"
        self.expect(what, got=memory.nbytes, wanted=num_bytes)
        self.expect("is the memory read-only", got=memory.readonly, wanted=False)
        return memory
