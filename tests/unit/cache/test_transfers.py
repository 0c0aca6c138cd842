"""Transfers against plain dictionaries: each move is reported once, bytes are identical, cancelled means hands off."""

import random
import threading

import pytest
import torch
from ninfer_storage_host.arena import GRANULE_BYTES
from ninfer_storage_host.tier import HostTier

from ninfer.api import ImageKey, ImageKind, TierContext
from ninfer.cache.identity import ImageHeader, encode_tokens
from ninfer.cache.move import BATCH_BYTES, Move, MoveStatus, batches_of
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.exec.host_memory import HostMemory
from ninfer.obs.clock import SystemClock
from tests.fakes.dict_tier import DictTier

PAGE_BYTES = 64


class Device:
    """Device memory that notices who touches it."""

    def __init__(self, num_pages):
        self.pages = [bytes([page]) * PAGE_BYTES for page in range(num_pages)]
        self.touched = []

    def copy_page_out(self, page, buffer):
        self.touched.append(page)
        buffer[:] = self.pages[page]

    def copy_page_in(self, page, buffer):
        self.touched.append(page)
        self.pages[page] = bytes(buffer)

    def copy_pages_in(self, pages, buffer):
        for at, page in enumerate(pages):
            self.copy_page_in(page, buffer[at * PAGE_BYTES : (at + 1) * PAGE_BYTES])

    def copy_pages_out(self, pages, buffer):
        for at, page in enumerate(pages):
            self.copy_page_out(page, buffer[at * PAGE_BYTES : (at + 1) * PAGE_BYTES])


def header(number):
    return ImageHeader(
        kind=ImageKind.PAGE,
        end_tokens=64,
        num_uses=1,
        created_unix_s=0.0,
        last_use_unix_s=0.0,
        parent_digest=bytes(32),
        domain=b"",
        tokens=encode_tokens([number] * 64),
    )


def move(number, *, source, target, location=-1):
    return Move(
        key=ImageKey(digest=number.to_bytes(32, "big"), kind=ImageKind.PAGE),
        header=header(number),
        num_bytes=PAGE_BYTES,
        source=source,
        target=target,
        location=location,
        tag=number,
    )


class Rig:
    def __init__(self, *, num_pages=40, deadline_s=10.0):
        self.tiers = [DictTier(10**6), DictTier(10**6)]
        self.device = Device(num_pages)
        self.wake = threading.Event()
        handles = [TierHandle(f"t{n}", tier) for n, tier in enumerate(self.tiers, start=1)]
        self.transfers = Transfers(
            handles, self.device, SystemClock(), deadline_s=deadline_s, wake=self.wake.set
        )

    def drain(self):
        ended = []
        for _ in range(2_000):
            ended += self.transfers.poll()
            if not self.transfers.num_waiting():
                return ended
            self.wake.wait(0.01)
            self.wake.clear()
        raise AssertionError("moves are still waiting")


@pytest.fixture
def rig():
    made = Rig()
    yield made
    for tier in made.tiers:
        tier.gate.set()
    made.transfers.close(5.0)


@pytest.mark.parametrize("seed", range(15))
def test_random_moves_are_reported_once_and_keep_their_bytes(rig, seed):
    rng = random.Random(seed)
    content = {}
    for number in range(40):
        content[number] = rng.randbytes(PAGE_BYTES)
        rig.device.pages[number] = content[number]
    started, ended, held = [], [], {1: set(), 2: set()}
    for _ in range(25):
        way = rng.choice([(0, 1), (0, 2), (1, 2), (1, 0), (2, 0)])
        source, target = way
        numbers = rng.sample(range(40), rng.randint(1, 20))
        if rng.random() < 0.3 and source:
            rig.tiers[source - 1].raises = True
        if rng.random() < 0.2 and target:
            rig.tiers[target - 1].refuses = True
        moves = [
            move(number, source=source, target=target, location=number if 0 in way else -1)
            for number in numbers
        ]
        if not target:
            for number in numbers:
                rig.device.pages[number] = b"?" * PAGE_BYTES
        started += moves
        rig.transfers.start(moves)
        done = rig.drain()
        ended += done
        for tier in rig.tiers:
            tier.raises = tier.refuses = False
        for one in done:
            if one.status is not MoveStatus.DONE:
                assert one.message
                rig.device.pages[one.tag] = content[one.tag]
            elif target:
                held[target].add(one.tag)
            else:
                assert one.tag in held[source]
            assert rig.device.pages[one.tag] == content[one.tag]
        for tier, dict_tier in enumerate(rig.tiers, start=1):
            assert {key.digest[-1] for key in dict_tier.images} == held[tier]
            assert all(
                dict_tier.images[key][1] == content[key.digest[-1]] for key in dict_tier.images
            )
    assert len(ended) == len(started)
    assert {id(one) for one in ended} == {id(one) for one in started}


@pytest.mark.parametrize("way", [(0, 1), (1, 0), (1, 2)])
def test_cancelled_moves_touch_no_device_memory_leave_nothing_and_are_reported(rig, way):
    source, target = way
    if source:
        rig.transfers.start([move(n, source=0, target=source, location=n) for n in range(20)])
        rig.drain()
    rig.device.touched.clear()
    for tier in rig.tiers:
        tier.gate.clear()
    numbers = range(20, 40) if not source else range(20)
    batches = rig.transfers.start([
        move(n, source=source, target=target, location=n if 0 in way else -1) for n in numbers
    ])
    before = len(rig.device.touched)
    rig.transfers.cancel(batches)
    touched = len(rig.device.touched)
    assert touched - before <= 20
    for tier in rig.tiers:
        tier.gate.set()
    ended = rig.drain()
    assert len(rig.device.touched) == touched
    assert [one.tag for one in ended] == list(numbers)
    assert all(one.status is MoveStatus.GIVEN_UP for one in ended)
    if target:
        assert not rig.tiers[target - 1].images


def test_images_written_for_nobody_are_removed_and_a_later_copy_of_the_same_stays(rig):
    rig.tiers[0].gate.clear()
    first = rig.transfers.start([move(1, source=0, target=1, location=1)])
    rig.transfers.cancel(first)
    rig.transfers.start([move(1, source=0, target=1, location=1)])
    rig.tiers[0].gate.set()
    ended = rig.drain()
    assert [one.status for one in ended] == [MoveStatus.GIVEN_UP, MoveStatus.DONE]
    assert len(rig.tiers[0].images) == 1


def test_deletions_come_in_the_order_they_were_asked_for(rig):
    key = move(1, source=0, target=1).key
    rig.tiers[0].gate.clear()
    rig.transfers.start([move(1, source=0, target=1, location=1)])
    rig.transfers.delete(1, key)
    rig.transfers.start([move(1, source=0, target=1, location=1)])
    rig.tiers[0].gate.set()
    rig.drain()
    assert key in rig.tiers[0].images


def test_a_worker_without_progress_loses_its_work_and_gets_new_work_when_it_answers():
    rig = Rig(deadline_s=0.05)
    rig.transfers.start([move(n, source=0, target=1, location=n) for n in range(3)])
    rig.drain()
    rig.tiers[0].gate.clear()
    rig.transfers.start([move(n, source=1, target=0, location=n) for n in range(3)])
    ended = rig.drain()
    assert [one.status for one in ended] == [MoveStatus.GIVEN_UP] * 3
    assert all("no progress" in one.message for one in ended)
    assert rig.transfers.is_stalled(1)
    assert not rig.transfers.is_stalled(2)
    touched = len(rig.device.touched)
    rig.tiers[0].gate.set()
    rig.transfers.start([move(7, source=0, target=1, location=7)])
    assert [one.status for one in rig.drain()] == [MoveStatus.DONE]
    for _ in range(200):
        if not rig.transfers.is_stalled(1):
            break
        assert not rig.transfers.poll()
        rig.wake.wait(0.01)
    assert not rig.transfers.is_stalled(1)
    assert len(rig.device.touched) == touched + 1
    rig.transfers.close(5.0)


@pytest.mark.parametrize("what", ["kind", "end_tokens", "parent_digest", "domain", "tokens"])
def test_an_image_of_other_content_under_the_right_name_is_not_used(rig, what):
    other = {
        "kind": ImageKind.STATE,
        "end_tokens": 128,
        "parent_digest": bytes(31) + b"\1",
        "domain": b"x",
        "tokens": encode_tokens([2] * 64),
    }
    fields = {name: getattr(header(1), name) for name in ImageHeader.__dataclass_fields__}
    stored = ImageHeader(**{**fields, what: other[what]})
    wanted = move(1, source=1, target=0, location=5)
    rig.tiers[0].images[wanted.key] = (stored.pack(), b"!" * PAGE_BYTES)
    rig.transfers.start([wanted])
    assert rig.drain()[0].status is MoveStatus.SOURCE_LOST
    assert rig.device.pages[5] == bytes([5]) * PAGE_BYTES


class GatedTier(DictTier):
    """Writes wait for a gate; remembers how many images each call brought."""

    def __init__(self):
        super().__init__(10**6)
        self.gate = threading.Event()
        self.is_asked = threading.Event()
        self.calls = []

    def put(self, items):
        self.is_asked.set()
        assert self.gate.wait(10)
        self.calls.append([item.key for item in items])
        return super().put(items)

    def delete(self, keys):
        self.calls.append(("delete", *keys))
        return super().delete(keys)


@pytest.fixture
def gated():
    tier, wake = GatedTier(), threading.Event()
    device = Device(40)
    handle = TierHandle("gated", tier)
    transfers = Transfers([handle], device, SystemClock(), deadline_s=10.0, wake=wake.set)
    yield tier, transfers, wake
    tier.gate.set()
    transfers.close(5)


def drained(transfers, wake):
    ended = []
    while transfers.num_waiting():
        assert wake.wait(10)
        wake.clear()
        ended += transfers.poll()
    return ended


def test_copies_that_wait_for_a_tier_are_written_together_but_not_past_a_deletion(gated):
    tier, transfers, wake = gated
    moves = [move(n, source=0, target=1, location=n) for n in range(12)]
    transfers.start(moves[:1])
    assert tier.is_asked.wait(10)
    for one in moves[1:6]:
        transfers.start([one])
    transfers.delete(1, moves[0].key)
    for one in moves[6:]:
        transfers.start([one])
    tier.gate.set()
    ended = drained(transfers, wake)
    assert {m.status for m in ended} == {MoveStatus.DONE}
    keys = [m.key for m in moves]
    assert tier.calls == [keys[:1], keys[1:6], ("delete", keys[0]), keys[6:]]


def test_a_batch_cancelled_while_it_waits_is_left_out_of_what_is_written_together(gated):
    tier, transfers, wake = gated
    moves = [move(n, source=0, target=1, location=n) for n in range(4)]
    transfers.start(moves[:1])
    assert tier.is_asked.wait(10)
    batches = [transfers.start([one])[0] for one in moves[1:]]
    transfers.cancel(batches[1:2])
    tier.gate.set()
    drained(transfers, wake)
    assert tier.calls == [[moves[0].key], [moves[1].key, moves[3].key]]
    statuses = [m.status for m in moves]
    assert statuses == [
        MoveStatus.DONE,
        MoveStatus.DONE,
        MoveStatus.GIVEN_UP,
        MoveStatus.DONE,
    ]


def test_joined_writes_stay_below_their_limit(gated, monkeypatch):
    monkeypatch.setattr("ninfer.cache.transfers.JOINED_BYTES", 3 * PAGE_BYTES)
    tier, transfers, wake = gated
    moves = [move(n, source=0, target=1, location=n) for n in range(8)]
    transfers.start(moves[:1])
    assert tier.is_asked.wait(10)
    for one in moves[1:]:
        transfers.start([one])
    tier.gate.set()
    drained(transfers, wake)
    assert [len(call) for call in tier.calls] == [1, 3, 3, 1]


def test_batches_of_small_images_have_more_of_them():
    small = [move(n, source=1, target=0, location=n) for n in range(40)]
    assert [len(batch.moves) for batch in batches_of(small)] == [40]
    for one in small:
        one.num_bytes = BATCH_BYTES // 20
    assert [len(batch.moves) for batch in batches_of(small)] == [20, 20]
    for one in small:
        one.num_bytes = BATCH_BYTES
    assert [len(batch.moves) for batch in batches_of(small)] == [16, 16, 8]
    assert batches_of([]) == []


def test_what_is_written_to_a_slower_tier_does_not_change_when_its_source_goes(gated_below_host):
    """A batch that is given up loses its leases, while the slow tier may still be reading what it was given."""
    host, slow, transfers, wake = gated_below_host
    transfers.start([move(1, source=0, target=1, location=1)])
    drained(transfers, wake)
    batches = transfers.start([move(1, source=1, target=2)])
    assert slow.is_asked.wait(10)
    transfers.cancel(batches)
    transfers.delete(1, move(1, source=1, target=2).key)
    transfers.start([move(2, source=0, target=1, location=2)])
    while transfers.queue_lengths(1) != (0, 0):
        assert wake.wait(10)
        wake.clear()
        transfers.poll()
    assert host.contains([move(2, source=0, target=1).key]) == [True]
    slow.gate.set()
    drained(transfers, wake)
    assert slow.payloads == [bytes([1]) * PAGE_BYTES]
    assert not slow.images


def test_a_copy_that_raises_leaves_nothing_of_its_batch_on_the_tier(gated_below_host):
    host, _, transfers, wake = gated_below_host
    moves = [move(n, source=0, target=1, location=n) for n in (1, 99)]
    transfers.start(moves)
    drained(transfers, wake)
    assert [one.status for one in moves] == [MoveStatus.SOURCE_LOST] * 2
    assert host.usage().used_bytes == 0


class RecordingTier(GatedTier):
    """Remembers what it was asked to write, even if it is deleted again."""

    def __init__(self):
        super().__init__()
        self.payloads = []

    def put(self, items):
        results = super().put(items)
        self.payloads += [bytes(item.payload) for item in items]
        return results


@pytest.fixture
def gated_below_host():
    context = TierContext(
        tier_name="host",
        fingerprint=b"f" * 32,
        clock=SystemClock(),
        host_allocator=HostMemory(torch.device("cpu")),
        page_image_bytes=PAGE_BYTES,
    )
    host, slow, wake = HostTier(context, 2 * GRANULE_BYTES), RecordingTier(), threading.Event()
    handles = [TierHandle("host", host), TierHandle("slow", slow)]
    transfers = Transfers(handles, Device(40), SystemClock(), deadline_s=10.0, wake=wake.set)
    yield host, slow, transfers, wake
    slow.gate.set()
    transfers.close(5)
    host.close()
