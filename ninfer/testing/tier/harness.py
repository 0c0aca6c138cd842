"""How the tier suite opens, fills and reads tiers, and the hooks a subclass may fill in. Contains no test."""

import hashlib
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from typing_extensions import override

from ninfer.api import (
    ImageKey,
    ImageKind,
    ImageRecord,
    PutItem,
    PutStatus,
    ReadItem,
    ReadStatus,
    StorageTier,
    TierContext,
    TierProvider,
)
from ninfer.testing.base import ConformanceSuite
from ninfer.testing.faults import StorageFaults
from ninfer.testing.oracle import Content

FINGERPRINT: Final = bytes(range(32))
MAX_HEADER_BYTES: Final = 4096
MAX_FILLABLE_BYTES: Final = 64 << 20
"""Tests that fill a tier are for sample configurations up to this size."""

DEADLOCK_S: Final = 60.0
SWITCH_INTERVAL_S: Final = 1e-6
"""Shorter than any operation: threads that race change places between any two instructions."""
RESIDENT: Final = Content(b"resident", b"image")
"""What a tier in use holds from the start."""

_CAPACITY: Final = "capacity"
"""Name of the setting by which `bound_to` makes a tier smaller, as the shipped tiers call it."""


class PlainAllocator:
    """Host memory for tests: zero-filled, not pinned."""

    def allocate_host(self, num_bytes: int) -> memoryview:
        """Return writable, zero-filled memory."""
        return memoryview(bytearray(num_bytes))


def oldest_last(records: Sequence[ImageRecord]) -> list[ImageRecord]:
    """Order records given oldest first: newest first."""
    return list(reversed(records))


class TierHarness(ConformanceSuite):
    """Opening, filling and reading tiers.

    Attributes:
        page_bytes: payload length of a full page image that the context announces.
        state_bytes: payload length of a state image.
    """

    kind = "tier"
    page_bytes: ClassVar[int] = 2048
    state_bytes: ClassVar[int] = 5000

    @abstractmethod
    def open_tier(self, root: Path) -> StorageTier:
        """Open a tier on a folder, with `self.context()`.

        A small one: of at most a few MiB. Opening on the same folder again after `close` is reopening; tiers on
        different folders have nothing to do with each other. A tier that keeps nothing in files may ignore the
        folder; one that uses a server should use a name space of its own per folder.

        Args:
            root: empty, or used by this method before.
        """

    def open_tier_of(self, root: Path, capacity_bytes: int) -> StorageTier | None:
        """Open a tier as `open_tier` does, of another capacity; None if that cannot be chosen. Optional."""
        del root, capacity_bytes
        return None

    def open_tier_with_faults(self, root: Path, faults: StorageFaults) -> StorageTier | None:
        """Open a tier as `open_tier` does, on storage that fails as `faults` says. Optional.

        The storage calls `faults.change()` before each of its writes, and registers with `faults.at_death` what
        the operating system would release when the process dies.

        Returns:
            The tier; None if there is no such storage. `CrashingTier` and `FaultyTier` need none.
        """
        del root, faults
        return None

    def damage(self, root: Path, key: ImageKey, payload: bytes) -> bool:
        """Change one stored byte of an image behind the tier's back; tell whether that was possible. Optional.

        Without an override: looks below `root` for a file that has the payload as it is, and flips one bit.

        Args:
            root: folder of the tier, which may be open.
            key: the image.
            payload: its bytes; they occur once.
        """
        del key
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            position = path.read_bytes().find(payload)
            if position >= 0:
                flip_bit(path, position + len(payload) // 2)
                return True
        return False

    @classmethod
    @override
    def bound_to(cls, provider: TierProvider[Any]) -> type[Self]:
        """Return a suite of an installed provider, on its sample configuration."""

        def open_tier(self: TierHarness, root: Path) -> StorageTier:
            return provider.open(self.context(), provider.sample_config(root))

        def open_tier_of(self: TierHarness, root: Path, capacity_bytes: int) -> StorageTier | None:
            sample = provider.sample_config(root)
            if _CAPACITY not in type(sample).model_fields:
                return None
            values = {name: sample.__dict__[name] for name in type(sample).model_fields}
            try:
                config = type(sample).model_validate({**values, _CAPACITY: capacity_bytes})
            except ValueError:  # smaller than it can be
                return None
            return provider.open(self.context(), config)

        return cls.derived(
            f"Test_{provider.kind}", {"open_tier": open_tier, "open_tier_of": open_tier_of}
        )

    _num_roots = 0
    _fingerprint = FINGERPRINT
    _by_value: Callable[[Sequence[ImageRecord]], Sequence[ImageRecord]] = staticmethod(oldest_last)

    def context(self) -> TierContext:
        """Return what the core would hand to the tier; tests change parts of it between two openings."""
        return TierContext(
            tier_name="conformance",
            fingerprint=self._fingerprint,
            model_name="conformance model",
            page_image_bytes=self.page_bytes,
            state_image_bytes=self.state_bytes,
            clock=self.clock,
            host_allocator=PlainAllocator(),
            cache_dir=self.folder / "cache",
            by_value=self._by_value,
        )

    def fresh_root(self) -> Path:
        """Return a new empty folder."""
        self._num_roots += 1
        root = self.folder / f"root{self._num_roots}"
        root.mkdir()
        return root

    def open(self, root: Path) -> StorageTier:
        """Open a tier that is closed when the test is over."""
        tier = self.open_tier(root)
        self.at_end(tier.close)
        return tier

    def in_use(self) -> StorageTier:
        """Return a new tier that holds one small image already, as most do most of the time."""
        tier = self.open(self.fresh_root())
        self.put(tier, key_of("resident"), RESIDENT)
        return tier

    def put(self, tier: StorageTier, key: ImageKey, content: Content) -> None:
        """Store an image; fails the requirement on any answer but STORED."""
        self.expect(
            f"status of a put of {len(content.payload)} bytes into a tier with room",
            got=self.put_status(tier, key, content),
            wanted=PutStatus.STORED,
        )

    def put_status(self, tier: StorageTier, key: ImageKey, content: Content) -> PutStatus:
        """Put an image in a batch of one and return the status."""
        results = tier.put([put_item(key, content)])
        self.expect("results of a put of one image", got=len(results), wanted=1)
        return results[0].status

    def read(self, tier: StorageTier, key: ImageKey, num_bytes: int) -> tuple[ReadStatus, Content]:
        """Read an image in a batch of one into a buffer that is not zero; return status and what came back."""
        buffer = bytearray(b"\xa5" * num_bytes)
        results = tier.read_into([ReadItem(key=key, buffer=memoryview(buffer))])
        self.expect("results of a read of one image", got=len(results), wanted=1)
        return results[0].status, Content(results[0].header, bytes(buffer))

    def expect_image(
        self, tier: StorageTier, key: ImageKey, content: Content, *, when: str
    ) -> None:
        """Fail the requirement unless an image reads back as it was put."""
        status, got = self.read(tier, key, len(content.payload))
        self.expect(f"status of a read {when}", got=status, wanted=ReadStatus.READ)
        self.expect(f"header {when}", got=got.header, wanted=content.header)
        self.expect(f"payload {when}", got=got.payload, wanted=content.payload)

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run calls at once, each in a thread; fails the requirement if one raises or does not return.

        Threads take turns as often as Python can make them, so that gaps of a few instructions are met too.
        """
        barrier = threading.Barrier(len(calls))
        problems: list[BaseException] = []

        def run(call: Callable[[], object]) -> None:
            try:
                barrier.wait(DEADLOCK_S)
                call()
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
                problems.append(error)

        threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(DEADLOCK_S)
        finally:
            sys.setswitchinterval(interval_s)
        is_busy = any(thread.is_alive() for thread in threads)
        self.expect("a thread still busy after a minute", got=is_busy, wanted=False)
        for problem in problems:
            if isinstance(problem, AssertionError):
                raise problem
            self.fail("call in a thread", got=problem, wanted="no exception")

    def fillable(self, tier: StorageTier) -> int:
        """Return the capacity in bytes of a tier that can be filled quickly; else not applicable."""
        capacity = tier.usage().capacity_bytes
        self.requires(
            f"a sample configuration of at most {MAX_FILLABLE_BYTES} bytes, this one has {capacity}",
            holds=capacity <= MAX_FILLABLE_BYTES,
        )
        return capacity


def key_of(name: object, kind: ImageKind = ImageKind.PAGE) -> ImageKey:
    """Return a key that looks like those of the core."""
    return ImageKey(digest=hashlib.sha256(repr(name).encode()).digest(), kind=kind)


def bytes_of(name: object, num_bytes: int) -> bytes:
    """Return bytes that belong to a name: random-looking, the same every time."""
    return hashlib.shake_256(repr(name).encode()).digest(num_bytes)


def content_of(name: object, num_bytes: int) -> Content:
    """Return content that belongs to a name."""
    return Content(b"header of " + repr(name).encode(), bytes_of(name, num_bytes))


def put_item(key: ImageKey, content: Content) -> PutItem:
    """Return one item for `put`."""
    return PutItem(key=key, header=content.header, payload=memoryview(content.payload))


def flip_bit(path: Path, position: int) -> None:
    """Change one bit of a file in place."""
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([old[0] ^ 0x10]))
