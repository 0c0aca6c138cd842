"""The scheduler: plans steps and books their results. Owns queue and lanes; never looks at cache contents."""

from collections.abc import Callable

import structlog

from ninfer.api import Clock, PlacementPolicy, PrefillObserved, Verdict
from ninfer.cache.manager import CacheManager
from ninfer.core.errors import QueueFull
from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestEvent,
    RequestStats,
    StartedEvent,
    TokensEvent,
)
from ninfer.core.step import ChunkOutput, LaneChunk, StepOutput, StepPlan, StepRunner
from ninfer.sched.acceptance import take_tokens
from ninfer.sched.admission import Admission
from ninfer.sched.chunks import (
    choose_prefills,
    decode_chunk,
    plan_captures,
    prefill_chunk,
)
from ninfer.sched.draft_counts import DraftCounts
from ninfer.sched.drafting import Drafting
from ninfer.sched.forks import Forks
from ninfer.sched.lane import Lane
from ninfer.sched.limits import SchedulerLimits
from ninfer.sched.stats import finished_stats, waiting_stats
from ninfer.sched.waiting import Waiting

_log = structlog.get_logger(__name__)
EventSink = Callable[[RequestEvent], None]


class Scheduler:
    """Queue and lanes of one engine. Used on the engine thread only.

    Args:
        manager: contexts.
        runner: told when lanes open and close.
        drafting: guesses.
        policy: learns prefill speed.
        clock: source of time.
        limits: bounds.
    """

    def __init__(
        self,
        manager: CacheManager,
        runner: StepRunner,
        *,
        drafting: Drafting,
        policy: PlacementPolicy,
        clock: Clock,
        limits: SchedulerLimits,
    ) -> None:
        """Start with nothing to do."""
        self.lanes: dict[int, Lane] = {}
        self.admission = Admission(
            manager,
            num_lanes=runner.layout.num_lanes,
            max_head_passes=limits.max_head_passes,
            is_held_back=lambda waiting: self._forks.is_held_back(waiting.request),
        )
        self._manager = manager
        self._runner = runner
        self._drafting = drafting
        self._policy = policy
        self._clock = clock
        self._limits = limits
        self._sinks: dict[str, EventSink] = {}
        self._forks = Forks()
        self._starting: list[Lane] = []
        self._capture_slots: list[tuple[Lane, int]] = []
        self._step_index = 0
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.num_rebuilt = 0
        self.drafts = DraftCounts()

    # ---- requests ----------------------------------------------------------------------------------

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request.

        Raises:
            QueueFull: too many wait.
            RequestInfeasible: it can never fit.
        """
        if len(self.admission.queue) >= self._limits.max_queue:
            msg = f"{self._limits.max_queue} requests wait already; try again later"
            raise QueueFull(msg)
        self._manager.check_feasible(request)
        now_s = self._clock.monotonic_s()
        timeout_s = request.queue_timeout_s
        if timeout_s is None:
            timeout_s = self._limits.queue_timeout_s
        self._sinks[request.request_id] = sink
        if request.fork_of is not None and request.fork_of in self._sinks:
            has_prompt_left = self._has_prompt_left(request.fork_of)
            self._forks.add(request.fork_of, has_prompt_left=has_prompt_left)
        waiting = Waiting(request=request, submitted_s=now_s, deadline_s=now_s + timeout_s)
        self.admission.queue.append(waiting)

    def _has_prompt_left(self, request_id: str) -> bool:
        lane = self._lane_of(request_id)
        return lane is None or lane.is_prefilling

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request wherever it is; what was computed stays usable. Unknown ids are ignored."""
        lane = self._lane_of(request_id)
        if lane is not None:
            self._finish(lane, reason)
            return
        for waiting in self.admission.parked:
            if waiting.request.request_id == request_id:
                self._drop_parked(waiting, reason)
                return
        queued = self.admission.queue.find(request_id)
        if queued is not None:
            self.admission.queue.remove(queued)
            self._end_waiting(queued, reason)

    def _lane_of(self, request_id: str) -> Lane | None:
        lanes = self.lanes.values()
        return next((lane for lane in lanes if lane.request.request_id == request_id), None)

    def _drop_parked(self, waiting: Waiting, reason: FinishReason) -> None:
        if waiting.context is not None:
            self._manager.cancel(waiting.context)
        self.admission.parked.remove(waiting)
        self.admission.give_lane_back(waiting.lane, waiting.request.request_id)
        self._end_waiting(waiting, reason)

    def _end_waiting(self, waiting: Waiting, reason: FinishReason, message: str = "") -> None:
        stats = waiting_stats(waiting, self._clock.monotonic_s())
        self._end(waiting.request.request_id, reason, stats, message)

    def expire(self) -> None:
        """End requests that waited too long for their lane."""
        now_s = self._clock.monotonic_s()
        for waiting in self.admission.queue.expired(now_s):
            self.admission.queue.remove(waiting)
            waited_s = now_s - waiting.submitted_s
            message = f"the request waited {waited_s:.1f} s for a free lane and gave up"
            self._end_waiting(waiting, FinishReason.TIMEOUT, message)
        for waiting in [w for w in self.admission.parked if w.deadline_s <= now_s]:
            self._drop_parked(waiting, FinishReason.TIMEOUT)

    @property
    def has_work(self) -> bool:
        """True if a request is live."""
        return bool(self._sinks)

    def live_ids(self) -> list[str]:
        """Return ids of requests that have not ended."""
        return list(self._sinks)

    def next_deadline_s(self) -> float | None:
        """Return when `expire` has something to do next."""
        deadlines = [waiting.deadline_s for waiting in self.admission.parked]
        queued = self.admission.queue.next_deadline_s()
        return min([*deadlines, *([queued] if queued is not None else [])], default=None)

    # ---- plan --------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """Start what can start and return the next step, None if there is nothing to compute now."""
        for waiting in self.admission.step():
            self._open_lane(waiting)
        self._step_index += 1
        decoding = [lane for lane in self.lanes.values() if not lane.is_prefilling]
        prefilling = [lane for lane in self.lanes.values() if lane.is_prefilling]
        drafts = self._drafting.draft(decoding)
        chunks = [decode_chunk(lane, drafts.get(lane.number, ())) for lane in decoding]
        chosen = choose_prefills(
            prefilling,
            self._limits.chunk_sizes,
            is_decoding=bool(decoding),
            step_index=self._step_index,
        )
        chunks += [prefill_chunk(lane, end, self._capture_slot(lane, end)) for lane, end in chosen]
        chosen_lanes = {chunk.lane for chunk in chunks}
        self._starting = [
            lane
            for lane in self.lanes.values()
            if not lane.context.is_started and lane.number in chosen_lanes
        ]
        copies = self._manager.take_copies([lane.context for lane in self._starting])
        if not chunks and not copies.page_copies:
            return None
        return StepPlan(
            page_copies=copies.page_copies,
            state_copies=copies.state_copies,
            chunks=tuple(chunks),
        )

    def _open_lane(self, waiting: Waiting) -> None:
        context = waiting.context
        if context is None:
            return
        request = waiting.request
        lane = Lane(
            number=waiting.lane,
            request=request,
            context=context,
            token_ids=list(request.prompt_token_ids),
            num_computed=context.resume_tokens,
            submitted_s=waiting.submitted_s,
            started_s=self._clock.monotonic_s(),
        )
        if self._manager.store.has_state:
            plan_captures(lane, self._limits.first_rung_tokens)
        self.lanes[lane.number] = lane
        self.num_prompt_tokens += lane.num_prompt_tokens
        self.num_cached_tokens += context.resume_tokens
        num_captures = lane.num_marks_left
        self._manager.open(context, request.prompt_token_ids, num_captures=num_captures)
        self._runner.open_lane(lane.number, request.sampling, request.prompt_token_ids)
        self._drafting.open_lane(lane.number)
        self._sinks[request.request_id](
            StartedEvent(request_id=request.request_id, num_cached_tokens=context.resume_tokens)
        )

    def _capture_slot(self, lane: Lane, end: int) -> int | None:
        if not lane.captures or lane.captures[0] != end:
            return None
        capture_slot = self._manager.capture_slot(
            lane.context, end, is_rung=end in lane.rungs, num_left=lane.num_marks_left
        )
        if capture_slot is not None:
            self._capture_slots.append((lane, capture_slot))
        return capture_slot

    # ---- commit ------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, output: StepOutput) -> None:
        """Book a step: publish pages, report tokens, end requests."""
        self._manager.copies_done([lane.context for lane in self._starting])
        self._starting = []
        self._capture_slots = []
        self._forks.copies_made()
        verdicts = []
        num_prefilled = 0
        for chunk, result in zip(plan.chunks, output.chunks, strict=True):
            lane = self.lanes[chunk.lane]
            if lane.is_prefilling:
                num_prefilled += len(chunk.token_ids)
            self._commit_chunk(lane, chunk, result)
            if chunk.num_draft and not result.error:
                verdicts.append(
                    Verdict(
                        lane=chunk.lane,
                        num_drafted=chunk.num_draft,
                        num_accepted=result.num_accepted,
                    )
                )
        self._drafting.verified(verdicts)
        if num_prefilled and len(plan.chunks) == 1:
            self._policy.observe_prefill(
                PrefillObserved(
                    start_tokens=plan.chunks[0].start_tokens,
                    num_tokens=num_prefilled,
                    seconds=output.forward_s,
                )
            )

    def _commit_chunk(self, lane: Lane, chunk: LaneChunk, result: ChunkOutput) -> None:
        if result.error:
            lane.is_state_current = False
            if chunk.capture_slot is not None:
                self._manager.capture(lane.context, lane.token_ids, 0, chunk.capture_slot)
            self._finish(lane, FinishReason.ERROR, result.error)
            return
        was_prefilling = lane.is_prefilling
        computed = chunk.start_tokens + len(chunk.token_ids) - chunk.num_draft
        if chunk.num_draft:
            lane.drafts.add(chunk.num_draft, result.num_accepted)
            self.drafts.add(chunk.num_draft, result.num_accepted)
        if not chunk.samples:
            lane.num_computed = computed
            self._manager.advance(lane.context, lane.token_ids, lane.num_computed)
            self._after_prompt_chunk(lane, chunk)
            return
        reason = self._accept(lane, result)
        lane.num_computed = min(computed + result.num_accepted, len(lane.token_ids))
        if chunk.state_slots_after:
            last_row = lane.num_computed - chunk.start_tokens - 1
            self._manager.keep_state(lane.context, chunk.state_slots_after[last_row])
        self._manager.advance(lane.context, lane.token_ids, lane.num_computed)
        if was_prefilling:
            self._after_prompt_chunk(lane, chunk)
        if reason is not None:
            self._finish(lane, reason)

    def _accept(self, lane: Lane, result: ChunkOutput) -> FinishReason | None:
        if lane.first_token_s is None:
            lane.first_token_s = self._clock.monotonic_s()
        kept, reason = take_tokens(lane, result.token_ids)
        self._sinks[lane.request.request_id](
            TokensEvent(
                request_id=lane.request.request_id,
                token_ids=result.token_ids[:kept],
                logprobs=result.logprobs[:kept],
            )
        )
        return reason

    def _after_prompt_chunk(self, lane: Lane, chunk: LaneChunk) -> None:
        context, position = lane.context, lane.num_computed
        if lane.captures and lane.captures[0] == chunk.start_tokens + len(chunk.token_ids):
            lane.captures.popleft()
            if chunk.capture_slot is not None:
                self._manager.capture(
                    context,
                    lane.token_ids,
                    position,
                    chunk.capture_slot,
                    is_rung=position in lane.rungs,
                )
        request_id = lane.request.request_id
        if not lane.is_prefilling and self._forks.is_leader(request_id):
            if not self._manager.store.has_state:
                self._manager.capture(context, lane.token_ids, lane.num_prompt_tokens, None)
            self._forks.prompt_computed(request_id)
        if not lane.is_prefilling and lane.request.max_tokens == 0:
            self._finish(lane, FinishReason.LENGTH)

    def _finish(self, lane: Lane, reason: FinishReason, message: str = "") -> None:
        del self.lanes[lane.number]
        if lane in self._starting:
            self._starting.remove(lane)
        self._runner.close_lane(lane.number)
        self._drafting.close_lane(lane.number)
        self._manager.finish(
            lane.context,
            lane.token_ids,
            lane.num_computed,
            is_state_current=lane.is_state_current,
        )
        self.admission.give_lane_back(lane.number, lane.request.request_id)
        stats = finished_stats(lane, self._manager.store.spaces, self._clock.monotonic_s())
        self._end(lane.request.request_id, reason, stats, message)

    def _end(
        self, request_id: str, reason: FinishReason, stats: RequestStats, message: str
    ) -> None:
        self._forks.forget(request_id)
        sink = self._sinks.pop(request_id)
        sink(FinishedEvent(request_id=request_id, reason=reason, stats=stats, message=message))

    def fail_step(self, message: str) -> None:
        """The step just planned failed as a whole: its requests end, what was published before stays."""
        self._starting = []
        self._manager.copies_failed()
        slots, self._capture_slots = self._capture_slots, []
        for lane, slot in slots:
            self._manager.capture(lane.context, lane.token_ids, 0, slot)
        for lane in [*self.lanes.values()]:
            lane.is_state_current = False
            self._finish(lane, FinishReason.ERROR, message)

    def end_all(self, reason: FinishReason, message: str) -> None:
        """Tell every live request that it ended, without touching anything else."""
        now_s = self._clock.monotonic_s()
        for lane in self.lanes.values():
            stats = finished_stats(lane, self._manager.store.spaces, now_s)
            self._end(lane.request.request_id, reason, stats, message)
        for waiting in (*self.admission.parked, *self.admission.queue):
            self._end_waiting(waiting, reason, message)
        self.lanes.clear()

    def fail_unplaceable(self) -> bool:
        """Look for what is wrong if nothing runs, nothing moves and the head still cannot start.

        A head is tried once more with the victim orders made anew, and then ended. Neither should ever happen.

        Returns:
            True if anything was done.
        """
        head = next(iter(self.admission.queue), None)
        is_stuck = not self.lanes and not self.admission.parked and head is not None
        if not is_stuck or head is None or self._manager.transfers.num_waiting():
            return False
        if not head.was_retried:
            _log.error("victims_incomplete", request_id=head.request.request_id)
            self.num_rebuilt += 1
            self._manager.rebuild_victims()
            head.was_retried = True
            return True
        self.admission.queue.remove(head)
        message = "the request could not be placed although nothing else runs"
        self._end_waiting(head, FinishReason.ERROR, message)
        return True
