"""One HTTP request at the engine: all its choices, from submission to the last event. Knows nothing about formats."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from ninfer.api.errors import NinferError
from ninfer.core.errors import EngineStopped
from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestEvent,
    StartedEvent,
)
from ninfer.server.context import Client, ServerContext
from ninfer.server.disconnect import DisconnectWatch
from ninfer.server.errors import ClientGone, GenerationFailed, QueueTimeout
from ninfer.server.generation.lane import Lane, LaneDelta
from ninfer.server.generation.mailbox import Mailbox
from ninfer.server.generation.record import RequestFacts, done_record
from ninfer.text.stop_strings import StopMatcher

if TYPE_CHECKING:
    from concurrent.futures import Future

LaneStep = tuple[Lane, LaneDelta]
"""A choice, and what was added to it."""

_MAX_ABORT_S: Final = 60.0
"""The engine ends an aborted request within a step; a step of prefill on a slow CPU takes some seconds."""
_MAX_LOG_S: Final = 0.25
"""Whoever reads the request log right after an answer finds its record, unless the disk takes longer than this."""


class GenerationSession:
    """Submits requests, turns their events to text, and ends them whatever happens.

    The client's leaving aborts all choices at once; the engine's last events are still awaited, so that the request
    log tells what they cost.

    Attributes:
        lanes: the choices, in order of the response.

    Args:
        context: of the server.
        client: who waits.
        facts: for the request log.
        requests: of the engine, at least one.
        stops: stop strings of all choices.
    """

    def __init__(
        self,
        context: ServerContext,
        client: Client,
        facts: RequestFacts,
        requests: Sequence[GenerationRequest],
        stops: Sequence[str],
    ) -> None:
        """Prepare; nothing is submitted yet."""
        self.lanes = [
            Lane(index, request, context.text.new_detokenizer(), StopMatcher(stops))
            for index, request in enumerate(requests)
        ]
        self._context = context
        self._facts = facts
        self._by_id = {lane.request.request_id: lane for lane in self.lanes}
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._watch = DisconnectWatch(client.receive, self._client_gone)
        self._began_s = context.clock.monotonic_s()
        self._first_token_s: float | None = None
        self._failure: NinferError | None = None
        self._ready: list[LaneStep] = []
        self._is_settled = False
        self._logged: Future[None] | None = None

    @property
    def is_finished(self) -> bool:
        """True once the engine is done with all choices."""
        return all(lane.finished is not None for lane in self.lanes)

    async def start(self) -> None:
        """Submit all choices.

        Raises:
            RequestError: the request is wrong or can never fit.
            QueueFull: too many wait already.
            EngineStopped: the engine drains, has failed or is closed.
        """
        submitted = []
        try:
            for lane in self.lanes:
                self._context.engine.submit(lane.request, self._mailbox.put)
                submitted.append(lane.request.request_id)
        except NinferError:
            for request_id in submitted:
                self._context.engine.abort(request_id)
            raise
        await self._watch.__aenter__()

    async def wait_begun(self) -> None:
        """Wait until a choice has left the queue, or for as long as a client should wait without a sign of life.

        Raises:
            QueueTimeout: it waited too long in the queue.
            GenerationFailed: the engine gave it up.
            EngineStopped: the engine ended it to stop.
            ClientGone: nobody waits for the answer.
        """
        self._apply(await self._mailbox.take(self._context.keep_alive_s))
        if self._failure is not None:
            async for _ in self.steps():
                pass

    async def steps(self) -> AsyncGenerator[list[LaneStep], None]:
        """Yield what was added to choices, together what came together; an empty list if nothing came for long.

        Raises:
            QueueTimeout: it waited too long in the queue.
            GenerationFailed: the engine gave it up.
            EngineStopped: the engine ended it to stop.
            ClientGone: nobody waits for the answer.
        """
        while True:
            if self._failure is not None:
                await self._await_end()
                if not isinstance(self._failure, ClientGone):
                    await self._wait_logged()
                raise self._failure
            if self.is_finished:
                self._settle(_overall_reason(self.lanes))
            if self._ready:
                steps, self._ready = self._ready, []
                yield steps
            if self.is_finished:
                await self._wait_logged()
                return
            events = await self._mailbox.take(self._context.keep_alive_s)
            self._apply(events)
            if not events:
                self._check_engine()
                yield []

    def stop_lane(self, lane: Lane) -> None:
        """End a choice whose answer is complete."""
        if not lane.is_stopped:
            lane.stop()
        if lane.finished is None:
            self._context.engine.abort(lane.request.request_id)

    async def aclose(self) -> None:
        """End what is not finished and write the request log. May be called at any time, and twice."""
        self._abort_all()
        await self._watch.__aexit__(None, None, None)
        self._settle(FinishReason.ABORTED)

    def _client_gone(self) -> None:
        if not self.is_finished and self._failure is None:
            self._fail(ClientGone("The client closed the connection."))

    def _fail(self, failure: NinferError) -> None:
        if self._failure is None:
            self._failure = failure
        self._abort_all()

    def _abort_all(self) -> None:
        for lane in self.lanes:
            if lane.finished is None:
                self._context.engine.abort(lane.request.request_id)

    async def _await_end(self) -> None:
        """Take the engine's last events of aborted choices, then write the request log."""
        deadline_s = self._context.clock.monotonic_s() + _MAX_ABORT_S
        while not self.is_finished and self._context.clock.monotonic_s() < deadline_s:
            if self._context.engine.health().status == "failed":
                break
            self._apply(await self._mailbox.take(self._context.keep_alive_s))
        self._settle(_reason_of(self._failure))

    def _check_engine(self) -> None:
        report = self._context.engine.health()
        if report.status == "failed":
            self._fail(EngineStopped("; ".join(report.problems) or "The engine has failed."))

    def _apply(self, events: Sequence[RequestEvent]) -> None:
        for event in events:
            lane = self._by_id[event.request_id]
            if isinstance(event, StartedEvent):
                lane.start(event)
                self._ready.append((lane, LaneDelta()))
            elif isinstance(event, FinishedEvent):
                self._ready.append((lane, lane.finish(event)))
                self._check_finish(lane, event)
            else:
                if self._first_token_s is None:
                    self._first_token_s = self._context.clock.monotonic_s() - self._began_s
                was_stopped = lane.is_stopped
                self._ready.append((lane, lane.push(event)))
                if lane.is_stopped and not was_stopped:
                    self.stop_lane(lane)

    def _check_finish(self, lane: Lane, event: FinishedEvent) -> None:
        reason = lane.finish_reason
        if reason is FinishReason.TIMEOUT:
            self._fail(QueueTimeout(event.message or "The request waited too long in the queue."))
        elif reason is FinishReason.ERROR:
            self._fail(GenerationFailed(event.message or "The engine gave up the request."))
        elif reason is FinishReason.ABORTED:
            self._fail(EngineStopped("The server is shutting down; the request was ended."))

    def _settle(self, reason: FinishReason) -> None:
        """Write the one record of this request."""
        if self._is_settled:
            return
        self._is_settled = True
        total_s = self._context.clock.monotonic_s() - self._began_s
        self._context.metrics.observe_request(
            reason, duration_s=total_s, first_token_s=self._first_token_s
        )
        record = done_record(
            self._facts,
            self.lanes,
            finish_reason=reason,
            timestamp_unix_s=self._context.clock.unix_s(),
            total_s=total_s,
            first_token_s=self._first_token_s,
        )
        if self._context.request_log is not None:
            self._logged = self._context.request_log.append(record | self._prompt_digests())
        stats = self.lanes[0].stats
        structlog.contextvars.bind_contextvars(
            request_id=self._facts.answer_id,
            finish_reason=str(reason),
            num_prompt_tokens=stats.num_prompt_tokens,
            num_cached_tokens=stats.num_cached_tokens,
            num_completion_tokens=sum(lane.num_tokens for lane in self.lanes),
            reuse_path=str(stats.reuse_path),
            queue_s=round(stats.queue_s, 4),
            prefill_s=round(stats.prefill_s, 4),
            decode_s=round(stats.decode_s, 4),
        )

    async def _wait_logged(self) -> None:
        """Wait a moment until the record is in the file; the end of the answer waits, no token does."""
        if self._logged is not None:
            await asyncio.wait([asyncio.wrap_future(self._logged)], timeout=_MAX_LOG_S)

    def _prompt_digests(self) -> dict[str, object]:
        """Return what a replay needs of the prompts, if the log shall have it."""
        digests = self._context.page_digests
        if digests is None:
            return {}
        requests = [lane.request for lane in self.lanes if lane.is_first_of_prompt]
        prompts = [
            {"prompt_tokens": len(request.prompt_token_ids), "page_digests": digests.of(request)}
            for request in requests
        ]
        return {"prompts": prompts}


def _reason_of(failure: NinferError | None) -> FinishReason:
    if isinstance(failure, QueueTimeout):
        return FinishReason.TIMEOUT
    if isinstance(failure, GenerationFailed):
        return FinishReason.ERROR
    return FinishReason.ABORTED


def _overall_reason(lanes: Sequence[Lane]) -> FinishReason:
    reasons = [lane.finish_reason or FinishReason.ABORTED for lane in lanes]
    return FinishReason.LENGTH if FinishReason.LENGTH in reasons else reasons[0]
