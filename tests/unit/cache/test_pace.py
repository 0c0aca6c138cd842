"""Copies rest while somebody is to be left alone, and go on at once when nobody is."""

import threading
import time

from ninfer.cache.pace import Pace
from tests.fakes.harness import Harness


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
