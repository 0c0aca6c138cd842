"""What a call does is counted without a clock."""

import io
import os
import socket
import sys
import time
from functools import partial
from pathlib import Path

from ninfer.testing.work import bytes_kept_by, instructions_of, system_calls_of


def squares(count):
    return [at * at for at in range(count)]


def test_instructions_grow_with_the_work_and_are_the_same_every_time():
    calls = [partial(squares, count) for count in (10, 1_000, 1_000)]
    counts = [instructions_of(call, limit=10**6) for call in calls]
    assert counts[1] > 50 * counts[0]
    assert counts[1] == counts[2]


def test_counting_ends_a_call_at_its_limit_and_leaves_no_trace_function():
    before = sys.gettrace()
    assert instructions_of(lambda: squares(10**9), limit=500) == 500
    assert sys.gettrace() is before


def test_errors_of_a_call_come_through():
    for measure in (lambda call: instructions_of(call, limit=100), system_calls_of):
        try:
            measure(lambda: {}["missing"])
        except KeyError:
            continue
        raise AssertionError("no KeyError")


def test_files_sockets_and_sleep_are_seen(tmp_path):
    def touch():
        (tmp_path / "file").write_text("x")
        time.sleep(0)
        socket.socket().close()
        tmp_path.stat()

    found = system_calls_of(touch)
    assert {"open", "TextIOWrapper.write", "sleep", "socket.close", "stat"} <= set(found)


def test_memory_and_plain_work_are_no_system_calls():
    def work():
        io.StringIO().write("x")
        io.BytesIO(b"x").read()
        os.fspath(Path("x"))
        time.monotonic()
        squares(10)

    assert system_calls_of(work) == []


def test_memory_that_stays_is_counted_and_what_is_replaced_is_not():
    kept, slots = [], {}

    def fill(count, text):
        for at in range(count):
            slots[at % 10] = f"{text}{at}" * 50

    assert (
        bytes_kept_by(lambda: None, lambda: kept.extend(str(at) * 50 for at in range(100))) > 5_000
    )
    assert bytes_kept_by(lambda: fill(1_000, "a"), lambda: fill(1_000, "b")) < 2_000
