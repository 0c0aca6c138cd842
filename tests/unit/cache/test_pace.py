"""Copies rest while somebody is to be left alone, and go on at once when nobody is."""

import threading
import time

import pytest

from ninfer.cache.move import MoveStatus
from ninfer.cache.pace import Pace
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.transfers import Transfers
from ninfer.obs.clock import SystemClock
from tests.fakes.harness import Harness
from tests.unit.cache.test_transfers import PAGE_BYTES, Device, GatedTier, drained, move


def work(seconds):
    """Use the processor for so long."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_a_piece_is_followed_by_a_rest_while_steps_run():
    pace = Pace(0.25)
    pace.begin()
    started_s = time.monotonic()
    with pace.piece():
        work(0.02)
    assert time.monotonic() - started_s >= 0.08


def test_full_speed_never_rests():
    pace = Pace()
    pace.begin()
    assert pace.is_alone


def test_the_end_of_the_last_step_ends_all_rests():
    pace = Pace(1e-6)
    pace.begin()
    assert not pace.is_alone
    has_worked = threading.Event()

    def copy():
        with pace.piece():
            work(0.02)
            has_worked.set()

    thread = threading.Thread(target=copy)
    thread.start()
    assert has_worked.wait(10)
    pace.end()
    thread.join(10)
    assert not thread.is_alive()
    assert pace.is_alone


def test_the_engine_is_left_alone_by_copies_while_it_computes_and_only_then():
    harness = Harness()
    pace = harness.transfers.pace = Pace(0.5)
    execute, seen = harness.device.execute, []

    def watched(plan):
        seen.append(pace.is_alone)
        return execute(plan)

    harness.device.execute = watched
    answer = harness.submit([1] * 70, 4)
    thread = threading.Thread(target=harness.loop.run)
    thread.start()
    is_idle = threading.Event()

    def look():
        if answer.finished and pace.is_alone:
            is_idle.set()
        elif thread.is_alive():
            harness.loop.command(look)

    look()
    assert is_idle.wait(10)
    harness.loop.stop()
    thread.join(10)
    assert seen
    assert not any(seen)
    harness.close()


@pytest.mark.parametrize(("num_steps", "sizes"), [(0, [1, 7]), (1, [1, 2, 2, 2, 1])])
def test_while_steps_run_no_write_is_longer_than_a_piece(monkeypatch, num_steps, sizes):
    monkeypatch.setattr("ninfer.cache.move_steps._PIECE_BYTES", 2 * PAGE_BYTES)
    tier, wake, pace = GatedTier(), threading.Event(), Pace(0.5)
    transfers = Transfers(
        [TierHandle("gated", tier)],
        Device(40),
        SystemClock(),
        deadline_s=10.0,
        wake=wake.set,
        pace=pace,
    )
    for _ in range(num_steps):
        pace.begin()
    moves = [move(n, source=0, target=1, location=n) for n in range(8)]
    transfers.start(moves[:1])
    assert tier.is_asked.wait(10)
    transfers.start(moves[1:])
    tier.gate.set()
    assert {m.status for m in drained(transfers, wake)} == {MoveStatus.DONE}
    assert [len(call) for call in tier.calls] == sizes
    assert tier.contains([m.key for m in moves]) == [True] * 8
    transfers.close(5)
