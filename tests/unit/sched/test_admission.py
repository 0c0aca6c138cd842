"""Admission against a model of space: first in first out, and passing that is proven not to hold the head up."""

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ninfer.cache.lane_context import ContextStatus
from ninfer.cache.manager import Blocked
from ninfer.sched.admission import Admission
from ninfer.sched.waiting import Waiting

NUM_PAGES, NUM_LANES, MAX_PASSES = 12, 4, 2


class Space:
    """A manager whose contexts are numbers of pages."""

    def __init__(self, num_slots):
        self.store = SimpleNamespace(
            revision=0,
            has_state=num_slots is not None,
            layout=SimpleNamespace(num_pages=NUM_PAGES, num_state_slots=num_slots or 0),
        )
        self.num_slots = num_slots
        self.running = {}

    def need_of(self, request):
        return SimpleNamespace(
            num_pages=request.num_pages, num_slots=int(self.num_slots is not None)
        )

    def admit(self, request, *, may_wait=True):
        has_slot = self.num_slots is None or len(self.running) < self.num_slots
        if sum(self.running.values()) + request.num_pages > NUM_PAGES or not has_slot:
            return Blocked.SPACE
        self.running[request.request_id] = request.num_pages
        self.store.revision += 1
        return SimpleNamespace(status=ContextStatus.READY)

    def end(self, request_id):
        del self.running[request_id]
        self.store.revision += 1


class AdmissionMachine(RuleBasedStateMachine):
    num_slots = None

    def __init__(self):
        super().__init__()
        self.space = Space(self.num_slots)
        self.admission = Admission(
            self.space,
            num_lanes=NUM_LANES,
            max_head_passes=MAX_PASSES,
            is_held_back=lambda w: False,
        )
        self.number = 0
        self.lanes = {}
        self.passed_by = {}
        """for each waiting head: running requests that passed it"""

    @rule(num_pages=st.integers(1, NUM_PAGES))
    def submit(self, num_pages):
        self.number += 1
        request = SimpleNamespace(request_id=f"r{self.number}", num_pages=num_pages)
        self.admission.queue.append(Waiting(request=request, submitted_s=0.0, deadline_s=1.0))

    @rule()
    def step(self):
        before = list(self.admission.queue)
        for waiting in self.admission.step():
            name = waiting.request.request_id
            assert waiting.lane not in self.lanes.values(), "a lane has one request"
            self.lanes[name] = waiting.lane
            ahead = [w for w in before[: before.index(waiting)] if w in self.admission.queue]
            for head in ahead[:1]:
                self.passed_by.setdefault(head.request.request_id, []).append(waiting.request)
        head = next(iter(self.admission.queue), None)
        if head is not None and self.admission.num_free_lanes:
            has_slot = self.num_slots is None or len(self.space.running) < self.num_slots
            free = NUM_PAGES - sum(self.space.running.values())
            assert head.request.num_pages > free or not has_slot, "what fits starts"

    @rule(data=st.data())
    def end(self, data):
        if self.lanes:
            name = data.draw(st.sampled_from(sorted(self.lanes)))
            self.space.end(name)
            self.admission.give_lane_back(self.lanes.pop(name), name)

    @invariant()
    def a_passed_head_still_fits_beside_all_who_passed_it(self):
        for waiting in self.admission.queue:
            passers = self.passed_by.get(waiting.request.request_id, [])
            assert len(passers) <= MAX_PASSES
            running = [p for p in passers if p.request_id in self.space.running]
            assert waiting.request.num_pages + sum(p.num_pages for p in running) <= NUM_PAGES
            assert len(running) < NUM_LANES
            if self.num_slots is not None:
                assert len(running) < self.num_slots or not running

    def teardown(self):
        """Everybody gets a turn, in bounded time."""
        for _ in range(3 * self.number + 3):
            self.step()
            for name in sorted(self.lanes):
                self.space.end(name)
                self.admission.give_lane_back(self.lanes.pop(name), name)
        assert not len(self.admission.queue)


class AdmissionWithStateMachine(AdmissionMachine):
    num_slots = 2


def waiting(name, num_pages):
    request = SimpleNamespace(request_id=name, num_pages=num_pages)
    return Waiting(request=request, submitted_s=0.0, deadline_s=1.0)


def test_a_head_is_passed_so_often_and_no_more():
    """Small requests come and go beside a large one that runs; the head waits for that one only."""
    space = Space(None)
    admission = Admission(
        space, num_lanes=NUM_LANES, max_head_passes=MAX_PASSES, is_held_back=lambda w: False
    )
    admission.queue.append(waiting("runs", 6))
    admission.step()
    admission.queue.append(waiting("head", 8))
    passed = []
    for number in range(5):
        admission.queue.append(waiting(f"small {number}", 1))
        for started in admission.step():
            passed.append(started.request.request_id)
            space.end(started.request.request_id)
            admission.give_lane_back(started.lane, started.request.request_id)
    assert passed == ["small 0", "small 1"]
    space.end("runs")
    assert [started.request.request_id for started in admission.step()][0] == "head"


TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestAdmissionWithState = AdmissionWithStateMachine.TestCase
TestAdmissionWithState.settings = TestAdmission.settings
