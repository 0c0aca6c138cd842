"""Requirements on what a tier holds and gives back, in one thread and without faults."""

from typing import Final

from ninfer.api import (
    ImageKey,
    ImageKind,
    PutItem,
    PutStatus,
    ReadItem,
    ReadResult,
    ReadStatus,
    StorageTier,
)
from ninfer.testing.oracle import Content
from ninfer.testing.requirement import requirement
from ninfer.testing.strategies import headers, payloads
from ninfer.testing.tier.harness import (
    MAX_FILLABLE_BYTES,
    MAX_HEADER_BYTES,
    TierHarness,
    bytes_of,
    content_of,
    key_of,
    put_item,
)

BATCH_IMAGES: Final = 20
"""Images of a batch; the core puts and reads up to 16 at once."""
MANY_KEYS: Final = 500


class TierContents(TierHarness):
    """Requirements on contents."""

    @requirement("TIER-01")
    def test_a_tier_opens_empty_on_an_empty_place(self) -> None:
        """A tier opened on an empty place holds nothing and has room."""
        tier = self.open(self.fresh_root())
        usage = tier.usage()
        self.expect("images in a new tier", got=usage.num_images, wanted=0)
        self.expect("used_bytes of a new tier", got=usage.used_bytes, wanted=0, unit="B")
        room = tier.stored_bytes(64, max(self.page_bytes, self.state_bytes))
        self.expect_that(
            "capacity_bytes of a new tier",
            holds=usage.capacity_bytes >= room,
            got=usage.capacity_bytes,
            wanted=f"room for one image, {room}",
            unit="B",
        )
        keys = [ImageKey(digest=bytes(32), kind=kind) for kind in ImageKind] + [key_of("any")]
        self.expect("contains in a new tier", got=tier.contains(keys), wanted=[False] * 3)
        if tier.capabilities.enumerable:
            self.expect("records of a new tier", got=list(tier.records()), wanted=[])

    @requirement("TIER-02")
    def test_an_absent_key_is_missing(self) -> None:
        """Reading a key that is not stored answers MISSING with an empty header."""
        tier = self.in_use()
        for name, kind in (("never put", ImageKind.PAGE), ("resident", ImageKind.STATE)):
            buffer = memoryview(bytearray(100))
            (result,) = tier.read_into([ReadItem(key=key_of(name, kind), buffer=buffer)])
            self.expect("read of an absent key", got=result.status, wanted=ReadStatus.MISSING)
            self.expect("header of an absent key", got=result.header, wanted=b"")

    @requirement("TIER-03")
    def test_what_is_read_is_what_was_put(self) -> None:
        """Header and payload come back byte for byte, whatever bytes they are."""
        tier = self.in_use()
        key = key_of("any bytes", ImageKind.STATE)

        def check(header: bytes, payload: bytes) -> None:
            tier.delete([key])
            self.put(tier, key, Content(header, payload))
            self.expect_image(tier, key, Content(header, payload), when="after a put")

        for header, payload in ((b"\0head\0\0", b"\0pay\0\0"), (b"\r\n\x1a", b"\xff\xfe\x80")):
            check(header, payload)
        self.explore(check, header=headers(), payload=payloads())

    @requirement("TIER-04")
    def test_empty_payload_and_header_are_stored(self) -> None:
        """An image without payload, without header or without both is an image like any other."""
        tier = self.in_use()
        for name, content in (
            ("no payload", Content(b"header", b"")),
            ("no header", Content(b"", b"payload")),
            ("neither", Content(b"", b"")),
        ):
            self.put(tier, key_of(name), content)
            self.expect_image(tier, key_of(name), content, when=f"of an image with {name}")

    @requirement("TIER-05")
    def test_the_largest_images_are_stored(self) -> None:
        """Headers of 4,096 bytes and payloads as long as full pages and states of the model are stored whole."""
        tier = self.in_use()
        header = bytes_of("large header", MAX_HEADER_BYTES)
        for kind, num_bytes in (
            (ImageKind.PAGE, self.page_bytes),
            (ImageKind.STATE, self.state_bytes),
        ):
            content = Content(header, bytes_of(kind, num_bytes))
            self.put(tier, key_of("large", kind), content)
            self.expect_image(tier, key_of("large", kind), content, when=f"of a full {kind} image")

    @requirement("TIER-06")
    def test_the_same_put_again_changes_nothing(self) -> None:
        """Putting a stored image again answers STORED, takes no room and leaves the image as it is."""
        tier = self.in_use()
        key, content = key_of("twice"), content_of("twice", 1000)
        self.put(tier, key, content)
        before = tier.usage()
        self.put(tier, key, content)
        self.expect("usage after the same put again", got=tier.usage(), wanted=before)
        statuses = [result.status for result in tier.put([put_item(key, content)] * 3)]
        self.expect("the same image thrice", got=statuses, wanted=[PutStatus.STORED] * 3)
        self.expect("usage after that", got=tier.usage(), wanted=before)
        self.expect_image(tier, key, content, when="after putting it again")
        capacity = before.capacity_bytes
        if capacity <= MAX_FILLABLE_BYTES:
            large = content_of("large", capacity * 3 // 5)
            for _ in range(2):
                self.put(tier, key_of("large"), large)
            self.expect_image(tier, key_of("large"), large, when="that fills more than half")

    @requirement("TIER-07")
    def test_other_content_replaces(self) -> None:
        """Putting other content under a stored key replaces header and payload as one."""
        tier = self.in_use()
        key = key_of("replaced")
        for number, num_bytes in enumerate((1000, 30, 1500, 1500)):
            content = content_of(("version", number), num_bytes)
            self.put(tier, key, content)
            self.expect_image(tier, key, content, when=f"after replacing it {number} times")
            self.expect("images stored", got=tier.usage().num_images, wanted=2)
        earlier, later = (content_of((word, "in one batch"), 700) for word in ("first", "second"))
        results = tier.put([put_item(key, earlier), put_item(key, later)])
        got = [result.status for result in results]
        self.expect("statuses of one key twice in a batch", got=got, wanted=[PutStatus.STORED] * 2)
        self.expect_image(tier, key, later, when="that a batch put last")

    @requirement("TIER-08")
    def test_delete_tells_what_was_there_and_frees_it(self) -> None:
        """`delete` tells for each key in order whether it was there, and its room is free on return."""
        tier = self.in_use()
        before = tier.usage()
        keys = [key_of(("deleted", number)) for number in range(3)]
        for key in keys[:2]:
            self.put(tier, key, content_of(key.digest, 400))
        got = tier.delete([keys[0], keys[2], keys[1], keys[0]])
        self.expect("answers of delete", got=got, wanted=[True, False, True, False])
        self.expect("usage after deletion", got=tier.usage(), wanted=before)
        self.expect("contains after deletion", got=tier.contains(keys), wanted=[False] * 3)
        self.expect("delete of no keys", got=tier.delete([]), wanted=[])

    @requirement("TIER-09")
    def test_contains_agrees_with_read(self) -> None:
        """`contains` tells for each key in order whether it can be read, and changes nothing."""
        tier = self.in_use()
        sizes = (1, self.page_bytes, self.state_bytes)
        for num_bytes in sizes:
            self.put(tier, key_of(("stored", num_bytes)), content_of(num_bytes, num_bytes))
        before = tier.usage()
        keys = [key_of((word, size)) for size in sizes for word in ("stored", "absent")]
        for _ in range(3):
            got = tier.contains(keys)
            self.expect("answers of contains", got=got, wanted=[True, False] * len(sizes))
        self.expect("usage after contains", got=tier.usage(), wanted=before)
        for num_bytes in sizes:
            content = content_of(num_bytes, num_bytes)
            self.expect_image(tier, key_of(("stored", num_bytes)), content, when="after contains")
        many = [key_of(("absent", number)) for number in range(MANY_KEYS)]
        got = tier.contains([*many, *keys])
        wanted = [False] * MANY_KEYS + [True, False] * len(sizes)
        self.expect(f"answers of contains for {len(wanted)} keys", got=got, wanted=wanted)
        self.expect("contains of no keys", got=tier.contains([]), wanted=[])

    @requirement("TIER-10")
    def test_results_come_one_per_item_and_in_order(self) -> None:
        """A batch is answered with one result per item, in order; an image that fails does not affect others."""
        tier = self.in_use()
        contents = {
            key_of(("batch", n)): content_of(("batch", n), 10 + n) for n in range(BATCH_IMAGES)
        }
        results = tier.put([put_item(key, content) for key, content in contents.items()])
        self.expect(
            "statuses of a batch of puts",
            got=[result.status for result in results],
            wanted=[PutStatus.STORED] * len(contents),
        )
        asked = [*contents, key_of("absent"), *reversed(contents), key_of("absent too")]
        buffers = [bytearray(len(contents[k].payload) if k in contents else 7) for k in asked]
        answers = tier.read_into([
            ReadItem(key=key, buffer=memoryview(buffer))
            for key, buffer in zip(asked, buffers, strict=True)
        ])
        self.expect("results of a batch of reads", got=len(answers), wanted=len(asked))
        for number, (key, buffer) in enumerate(zip(asked, buffers, strict=True)):
            self._expect_answer(number, answers[number], bytes(buffer), contents.get(key))
        self.expect("put of no images", got=tier.put([]), wanted=[])
        self.expect("read of no images", got=tier.read_into([]), wanted=[])
        self._expect_failures_to_stay_alone(tier)

    def _expect_failures_to_stay_alone(self, tier: StorageTier) -> None:
        """Put an image that cannot fit, and read into a buffer of the wrong length, among good ones."""
        good = {key_of(("beside", n)): content_of(("beside", n), 100) for n in range(4)}
        first, *others = good
        batch = [put_item(key, content) for key, content in good.items()]
        wanted = [PutStatus.STORED] * len(batch)
        capacity = tier.usage().capacity_bytes
        if capacity <= MAX_FILLABLE_BYTES:
            large = Content(b"large", bytes(capacity + 1))
            batch.insert(1, put_item(key_of("too large"), large))
            wanted.insert(1, PutStatus.FULL)
        got = [result.status for result in tier.put(batch)]
        self.expect("statuses of puts, the second too large", got=got, wanted=wanted)
        for key, content in good.items():
            self.expect_image(tier, key, content, when="that was put beside one too large")
        answers = tier.read_into([
            ReadItem(key=key, buffer=memoryview(bytearray(101 if key == first else 100)))
            for key in good
        ])
        read = [ReadStatus.FAILED] + [ReadStatus.READ] * len(others)
        got_reads = [answer.status for answer in answers]
        self.expect("statuses of reads, the first buffer too long", got=got_reads, wanted=read)

    def _expect_answer(
        self, number: int, answer: ReadResult, payload: bytes, wanted: Content | None
    ) -> None:
        where = f"of item {number} in a batch of reads"
        if wanted is None:
            self.expect_that(
                f"status {where}",
                holds=answer.status is not ReadStatus.READ,
                got=answer.status,
                wanted="anything but READ, the key is absent",
            )
        else:
            self.expect(f"status {where}", got=answer.status, wanted=ReadStatus.READ)
            self.expect(f"header {where}", got=answer.header, wanted=wanted.header)
            self.expect(f"payload {where}", got=payload, wanted=wanted.payload)

    @requirement("TIER-11")
    def test_buffers_of_the_caller_are_not_kept(self) -> None:
        """A buffer given to `put` or `read_into` is the caller's again when the call returns."""
        tier = self.in_use()
        key, content = key_of("borrowed"), content_of("borrowed", 1000)
        lent = bytearray(content.payload)
        results = tier.put([PutItem(key=key, header=content.header, payload=memoryview(lent))])
        self.expect("put", got=results[0].status, wanted=PutStatus.STORED)
        self.expect("buffer that was put, afterwards", got=bytes(lent), wanted=content.payload)
        lent[:] = bytes(len(lent))
        self.expect_image(tier, key, content, when="after the caller overwrote the buffer it put")
        mine = bytearray(len(content.payload))
        tier.read_into([ReadItem(key=key, buffer=memoryview(mine))])
        mine[:] = bytes(len(mine))
        self.expect_image(tier, key, content, when="after the caller overwrote what it had read")

    @requirement("TIER-12")
    def test_keys_never_collide(self) -> None:
        """Keys that differ in one bit of the digest, or only in kind, name different images."""
        tier = self.in_use()
        digest = key_of("neighbour").digest
        digests = [
            digest,
            bytes(32),
            b"/" * 32,
            b"." * 32,
            b"\n" * 32,
            b"\xff" * 32,
            b"A" * 32,
            b"a" * 32,
        ]
        for position in range(32):
            near = bytearray(digest)
            near[position] ^= 1 << (position % 8)
            digests.append(bytes(near))
        keys = [ImageKey(digest=d, kind=kind) for d in digests for kind in ImageKind]
        for key in keys:
            self.put(tier, key, content_of(key.text, 20))
        for key in keys:
            self.expect_image(tier, key, content_of(key.text, 20), when=f"under {key.text}")
        tier.delete(keys[::2])
        want = [number % 2 == 1 for number in range(len(keys))]
        self.expect("keys left after every other was deleted", got=tier.contains(keys), wanted=want)

    @requirement("TIER-13")
    def test_a_buffer_of_another_length_is_not_called_read(self) -> None:
        """Reading into a buffer that is not as long as the payload is refused with FAILED and drops nothing."""
        tier = self.in_use()
        key, content = key_of("measured"), content_of("measured", 500)
        self.put(tier, key, content)
        for num_bytes in (0, 499, 501, 5000):
            status, _ = self.read(tier, key, num_bytes)
            what = f"read of 500 bytes into a buffer of {num_bytes}"
            self.expect(what, got=status, wanted=ReadStatus.FAILED)
        self.expect_image(tier, key, content, when="after reads into wrong buffers")
