"""What a handle makes of a tier that fails: a fault of its own, told once, and over when the tier works again."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from ninfer.api import ImageKey, ImageKind, PutItem, PutResult, PutStatus, ReadItem, ReadStatus
from ninfer.cache.tier_handle import TierHandle
from tests.fakes.dict_tier import DictTier

KEY = ImageKey(kind=ImageKind.PAGE, digest=bytes(32))


class Moody(DictTier):
    """Raises `error`, or calls every image FAILED while `fails`."""

    error: BaseException | None = None
    fails = False

    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        if self.error is not None:
            raise self.error
        if self.fails:
            return [PutResult(status=PutStatus.FAILED, message="no server") for _ in items]
        return super().put(items)


def _put(handle: TierHandle) -> PutStatus:
    return handle.put([PutItem(key=KEY, header=b"h", payload=memoryview(b"payload"))])[0].status


def test_what_is_no_exception_costs_an_image_and_not_the_thread() -> None:
    tier = Moody(1 << 20)
    handle = TierHandle("t1", tier)
    for error in (asyncio.CancelledError("gone"), GeneratorExit(), SystemExit(3)):
        tier.error = error
        assert _put(handle) is PutStatus.FAILED
        assert type(error).__name__ in handle.problems()[0]
    tier.error = None
    assert _put(handle) is PutStatus.STORED
    assert handle.problems() == []


def test_the_user_s_interrupt_goes_through() -> None:
    tier = Moody(1 << 20)
    tier.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        _put(TierHandle("t1", tier))


def test_a_tier_that_fails_for_a_while_is_told_twice() -> None:
    tier = Moody(1 << 20)
    handle = TierHandle("t1", tier)
    with capture_logs() as logs:
        tier.fails = True
        for _ in range(5):
            assert _put(handle) is PutStatus.FAILED
            assert "no server" in handle.problems()[0]
        tier.fails = False
        assert _put(handle) is PutStatus.STORED
    assert [entry["event"] for entry in logs] == ["tier_failed", "tier_works_again"]
    assert (
        handle.read_into([ReadItem(key=KEY, buffer=memoryview(bytearray(7)))])[0].status
        is ReadStatus.READ
    )


class Halfway(DictTier):
    """Stores one image, then raises."""

    def put(self, items: Sequence[PutItem]) -> list[PutResult]:
        super().put(items[:1])
        raise OSError("pulled out")


def test_what_a_tier_stored_before_it_raised_is_removed() -> None:
    tier = Halfway(1 << 20)
    assert _put(TierHandle("t1", tier)) is PutStatus.FAILED
    assert not tier.images
