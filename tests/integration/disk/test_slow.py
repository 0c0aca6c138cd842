"""A disk that becomes slow or hangs: requests succeed, other lanes go on, the tier says so and comes back."""

import threading
import time

import pytest
from ninfer_storage_disk.files import Files

from tests.integration.disk.rigs import FakeRig, Leap, Running, tokens

DEADLINE_S = 5.0
"""By a clock that jumps, so that a busy machine decides nothing."""


STEP_S = 1.5
"""A step of the fake model takes milliseconds; whoever waits for a disk that hangs waits for a minute."""


class HangingFiles(Files):
    """Reads, writes or flushes wait for `gate`; `hanging` is set as soon as one does."""

    def __init__(self, *hang):
        super().__init__()
        self.hang = set(hang)
        self.gate = threading.Event()
        self.gate.set()
        self.hanging = threading.Event()
        self.num_waits = 0

    def _wait(self, what):
        if what in self.hang and not self.gate.is_set():
            self.num_waits += 1
            self.hanging.set()
            self.gate.wait(60)

    def read_at(self, handle, buffer, offset):
        self._wait("read")
        return super().read_at(handle, buffer, offset)

    def write_at(self, handle, buffer, offset):
        self._wait("write")
        super().write_at(handle, buffer, offset)

    def sync(self, handle):
        self._wait("sync")


@pytest.fixture(params=[False, True], ids=["dense", "state"])
def rig(request):
    rig = FakeRig(has_state=request.param)
    rig.capacity, rig.num_pages = 4 << 20, 24
    return rig


def begin(rig, root, files):
    """An engine with a context on disk only, and a lane that decodes."""
    running = Running(
        rig, root, files=files, deadline_s=DEADLINE_S, clock=Leap(), queue_timeout_s=1e6
    )
    context = tokens("context", 600)
    running.ask(context)
    running.harness.settle()
    running.ask(tokens("push", 1400))
    running.harness.settle()
    lane = running.harness.submit(tokens("lane", 60), 250)
    while lane.cached is None:
        running.harness.step()
    return running, context, lane


def require_a_token_each_step(harness, lane, num_steps):
    """Steps go on, and each gives the lane a token, whatever the disk does."""
    for _ in range(num_steps):
        before, started_s = len(lane.tokens), time.monotonic()
        harness.step()
        assert len(lane.tokens) > before
        assert time.monotonic() - started_s < STEP_S, "a step waited for the disk"


def require_recovery(running, context):
    """The tier answers again: what it stores is served, it takes new contexts, and nobody complains."""
    running.harness.settle()
    running.ask([*context, *tokens("again", 5)])
    running.harness.settle()
    running.ask(tokens("push once more", 1400))
    running.harness.settle()
    answer = running.ask([*context, *tokens("later", 5)])
    assert answer.finished.stats.restored_bytes.get("t1"), "served from disk"
    assert not running.harness.transfers.stalled_tiers()
    assert running.handle.problems() == []
    running.stop()


def test_a_hung_read_is_a_miss_and_the_other_lane_does_not_wait(rig, tmp_path):
    files = HangingFiles("read")
    running, context, lane = begin(rig, tmp_path, files)
    files.gate.clear()
    harness = running.harness
    parked = harness.submit([*context, *tokens("more", 5)], 4)
    require_a_token_each_step(harness, lane, 50)
    assert parked.cached is None, "it waits for its context"
    assert files.hanging.wait(60)
    harness.clock.ahead_s = 2 * DEADLINE_S
    require_a_token_each_step(harness, lane, 1)
    assert harness.transfers.stalled_tiers() == {1}
    assert running.handle.counters.num_deadline > 0
    harness.run(parked)
    assert parked.tokens == harness.cold(parked)
    assert files.num_waits == 1, "nothing else is asked of a disk that hangs"
    harness.run(lane)
    assert lane.tokens == harness.cold(lane)
    files.gate.set()
    require_recovery(running, context)


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_hung_write_gives_its_pages_back_and_the_other_lane_does_not_wait(rig, tmp_path, what):
    files = HangingFiles(what)
    running, context, lane = begin(rig, tmp_path, files)
    files.gate.clear()
    harness = running.harness
    large = [harness.submit(tokens(f"large{n}", 600), 4) for n in range(3)]
    require_a_token_each_step(harness, lane, 50)
    assert files.hanging.wait(60)
    harness.clock.ahead_s = 2 * DEADLINE_S
    require_a_token_each_step(harness, lane, 1)
    assert harness.transfers.stalled_tiers() == {1}
    harness.run(*large, lane)
    for answer in (*large, lane):
        assert answer.tokens == harness.cold(answer)
    assert running.handle.counters.num_deadline > 0
    files.gate.set()
    require_recovery(running, context)


def test_a_slow_disk_keeps_nobody_from_decoding(rig, tmp_path):
    """Each read takes as long as 150 tokens: the context arrives late, the other lane is on time."""
    files = HangingFiles("read")
    running, context, lane = begin(rig, tmp_path, files)
    files.gate.clear()
    harness = running.harness
    parked = harness.submit([*context, *tokens("more", 5)], 4)
    require_a_token_each_step(harness, lane, 150)
    assert parked.cached is None, "it waits for its context"
    files.gate.set()
    harness.run(parked, lane)
    assert parked.tokens == harness.cold(parked)
    assert parked.cached >= 590
    assert running.handle.counters.num_deadline == 0
    require_recovery(running, context)
