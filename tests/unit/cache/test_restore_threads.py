"""Several threads restore one batch: they copy beside each other, and a batch that is given up waits for all of them."""

import threading

import pytest

from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.obs.clock import SystemClock
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
