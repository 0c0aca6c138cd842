"""Several threads restore what waits: beside each other, each batch told of when it is done, and waited for when given up."""

import threading

import pytest

from ninfer.cache.move import BATCH_IMAGES, Batch, MoveStatus
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.obs.clock import SystemClock
from ninfer.testing.clock import FakeClock
from tests.fakes.dict_tier import DictTier
from tests.unit.cache.test_transfers import PAGE_BYTES, Device, drained, move


class LaneDevice(Device):
    """Device whose copies wait, each thread for its own sign."""

    def __init__(self, num_pages):
        super().__init__(num_pages)
        self.both_copy = threading.Barrier(3)
        self.may_end = {True: threading.Event(), False: threading.Event()}
        self.has_ended = threading.Event()

    def copy_pages_in(self, pages, buffer):
        is_worker = threading.current_thread().name.startswith("ninfer-read")
        self.both_copy.wait(10)
        assert self.may_end[is_worker].wait(10)
        super().copy_pages_in(pages, buffer)
        self.has_ended.set()


class StoppingDevice(Device):
    """Device that waits for a sign, or fails, before it takes one page."""

    def __init__(self, num_pages, stop_at, error=None):
        super().__init__(num_pages)
        self.stop_at, self.error = stop_at, error
        self.may_go_on = threading.Event()

    def copy_pages_in(self, pages, buffer):
        if self.stop_at in pages:
            assert self.may_go_on.wait(10)
            if self.error is not None:
                raise self.error
        super().copy_pages_in(pages, buffer)


@pytest.fixture
def started(monkeypatch):
    """Start restores of three batches, with two threads, to a device; returns transfers and what wakes their owner."""
    monkeypatch.setattr("ninfer.cache.move_steps._LANE_BYTES", 2 * PAGE_BYTES)
    monkeypatch.setattr("ninfer.cache.move_steps._SMALL_BYTES", PAGE_BYTES)
    monkeypatch.setattr("ninfer.cache.move.BATCH_BYTES", PAGE_BYTES)
    opened = []

    def start(device, count, clock=None, tier=None):
        wake = threading.Event()
        handle = TierHandle("t", tier or DictTier(10**6))
        clock = clock or SystemClock()
        transfers = Transfers([handle], device, clock, deadline_s=10.0, wake=wake.set)
        opened.append(transfers)
        transfers.start([move(n, source=0, target=1, location=n) for n in range(count)])
        drained(transfers, wake)
        transfers.start([move(n, source=1, target=0, location=n) for n in range(count)])
        return transfers, wake

    yield start
    for transfers in opened:
        transfers.close(5)


def test_a_batch_is_told_of_when_it_is_done_though_others_behind_it_are_not(started):
    count = 3 * BATCH_IMAGES
    device = StoppingDevice(count, stop_at=count - 1)
    transfers, wake = started(device, count)
    ended = []
    while len(ended) < 2 * BATCH_IMAGES:
        assert wake.wait(10)
        wake.clear()
        ended += transfers.poll()
    assert sorted(one.tag for one in ended) == list(range(2 * BATCH_IMAGES))
    assert transfers.num_waiting() == 1
    device.may_go_on.set()
    assert len(drained(transfers, wake)) == BATCH_IMAGES


def test_a_copy_that_fails_costs_the_batches_that_are_not_done_and_no_other(started):
    count = 3 * BATCH_IMAGES
    device = StoppingDevice(count, stop_at=BATCH_IMAGES, error=OSError("device on fire"))
    device.may_go_on.set()
    transfers, wake = started(device, count)
    status = {one.tag: one.status for one in drained(transfers, wake)}
    assert len(status) == count
    assert {status[n] for n in range(BATCH_IMAGES)} == {MoveStatus.DONE}
    assert {status[n] for n in range(BATCH_IMAGES, 2 * BATCH_IMAGES)} == {MoveStatus.SOURCE_LOST}
    done = [n for n in range(count) if status[n] is MoveStatus.DONE]
    assert all(device.pages[n] == bytes([n]) * PAGE_BYTES for n in done)


@pytest.mark.parametrize("is_worker_first", [True, False])
def test_threads_of_a_restore_copy_beside_each_other_and_cancelling_waits_for_both(
    monkeypatch, is_worker_first
):
    monkeypatch.setattr("ninfer.cache.move_steps._LANE_BYTES", PAGE_BYTES)
    monkeypatch.setattr("ninfer.cache.move_steps._SMALL_BYTES", PAGE_BYTES)
    tier, wake, device = DictTier(10**6), threading.Event(), LaneDevice(40)
    transfers = Transfers(
        [TierHandle("t", tier)], device, SystemClock(), deadline_s=10.0, wake=wake.set
    )
    transfers.start([move(n, source=0, target=1, location=n) for n in range(2)])
    drained(transfers, wake)
    device.touched.clear()
    (batch,) = transfers.start([move(n, source=1, target=0, location=n) for n in range(2)])
    device.both_copy.wait(10)
    device.may_end[is_worker_first].set()
    assert device.has_ended.wait(10)
    canceller = threading.Thread(target=transfers.cancel, args=([batch],))
    canceller.start()
    canceller.join(0.05)
    assert canceller.is_alive(), "the other thread still copies"
    assert len(device.touched) == 1
    device.may_end[not is_worker_first].set()
    canceller.join(10)
    assert len(device.touched) == 2
    assert len(drained(transfers, wake)) == 2, "given up, or done by then"
    transfers.close(5)


class TickingDevice(Device):
    """Device on which each page takes a second of a clock that others share."""

    def __init__(self, num_pages, clock):
        super().__init__(num_pages)
        self.clock = clock

    def copy_pages_in(self, pages, buffer):
        super().copy_pages_in(pages, buffer)
        self.clock.advance(len(pages))


@pytest.mark.parametrize("small_bytes", [PAGE_BYTES, 10 * PAGE_BYTES])
def test_moves_of_batches_that_are_restored_together_share_the_time_that_passed(
    monkeypatch, started, small_bytes
):
    count, clock = 3 * BATCH_IMAGES, FakeClock()
    monkeypatch.setattr("ninfer.cache.move_steps._SMALL_BYTES", small_bytes)
    transfers, wake = started(TickingDevice(count, clock), count, clock)
    seconds = {one.tag: one.seconds for one in drained(transfers, wake)}
    assert sum(seconds.values()) == pytest.approx(count)
    assert transfers.handles[0].counters.read_s == pytest.approx(count)


def test_batches_of_other_sizes_are_not_restored_together():
    worker = Transfers([], Device(1), SystemClock(), deadline_s=1, wake=lambda: None)._worker("w")
    batches = [Batch(moves=[move(n, source=1, target=0, location=n)]) for n in range(4)]
    batches[2].moves[0].num_bytes *= 2
    worker.taken.extend(batches[1:])
    assert list(worker._joining(batches[0])) == [batches[1]]
    assert list(worker.taken) == batches[2:]
    worker.taken.clear()
    worker.queue.put(None)
    worker.thread.join(10)


class HangingTier(DictTier):
    """Tier whose reads wait, each thread of a restore for a sign of its own."""

    def __init__(self):
        super().__init__(10**6)
        self.may_go_on = {True: threading.Event(), False: threading.Event()}
        self.both_wait = threading.Barrier(3)
        self.is_waited_for = True

    def read_into(self, items):
        if self.is_waited_for:
            self.both_wait.wait(10)
        is_worker = threading.current_thread().name.startswith("ninfer-read")
        assert self.may_go_on[is_worker].wait(10)
        return super().read_into(items)


@pytest.mark.parametrize("is_worker_hung", [True, False])
def test_a_tier_that_hangs_for_one_thread_has_not_answered_while_the_other_goes_on(
    started, is_worker_hung
):
    count, clock, tier = 3 * BATCH_IMAGES, FakeClock(), HangingTier()
    transfers, wake = started(Device(count), count, clock, tier)
    tier.both_wait.wait(10)
    tier.is_waited_for = False
    clock.advance(11)
    assert len(transfers.poll()) == count
    assert transfers.is_stalled(1)
    wake.clear()
    tier.may_go_on[not is_worker_hung].set()
    assert wake.wait(10), "a batch that was given up is done"
    assert transfers.poll() == []
    assert transfers.is_stalled(1)
    tier.may_go_on[is_worker_hung].set()
    for _ in range(1000):
        transfers.poll()
        if not transfers.is_stalled(1):
            break
        wake.wait(0.01)
        wake.clear()
    assert not transfers.is_stalled(1)
