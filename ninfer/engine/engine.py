"""The step loop. One thread owns everything; other threads leave commands. Knows nothing about HTTP or tensors."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from ninfer.api import Clock
from ninfer.api.errors import InvariantBroken, NinferError
from ninfer.cache.checks import require
from ninfer.cache.manager import CacheManager
from ninfer.core.errors import EngineStopped
from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestEvent,
    RequestStats,
)
from ninfer.core.step import StepRunner
from ninfer.engine.counters import EngineCounters
from ninfer.engine.garbage import GarbagePauses
from ninfer.engine.plugin_watch import PluginWatch
from ninfer.sched.scheduler import Scheduler

_log = structlog.get_logger(__name__)
EventSink = Callable[[RequestEvent], None]

MAX_FAILED_STEPS: Final = 3
"""Steps in a row that may fail as a whole before the engine gives up."""

_IDLE_WAIT_S: Final = 1.0
_TRANSFER_WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What an engine is made of.

    Attributes:
        scheduler: plans and books steps.
        manager: contexts.
        runner: executes steps.
        clock: source of time.
        wake: set by transfer threads when something ended.
        watch: knows which plugins fail.
        checks_every_step: verify the store after each step (tests).
        on_close: called on the engine thread at the end with True if the store is sound: flushes contexts if so, and
            closes tiers, policy and decoder.
    """

    scheduler: Scheduler
    manager: CacheManager
    runner: StepRunner
    clock: Clock
    wake: threading.Event
    watch: PluginWatch = field(default_factory=PluginWatch)
    checks_every_step: bool = False
    on_close: Callable[[bool], None] = lambda _is_sound: None


class EngineLoop:
    """Runs steps until it is told to stop.

    Args:
        parts: what it runs.
    """

    def __init__(self, parts: EngineParts) -> None:
        """Wire the parts; nothing runs yet."""
        self.parts = parts
        self.counters = EngineCounters()
        self.failure = ""
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_stopping = False
        self._num_failed_steps = 0
        self._garbage = GarbagePauses(parts.clock)

    # ---- from any thread ---------------------------------------------------------------------------

    def command(self, run: Callable[[], None]) -> None:
        """Run something on the engine thread, soon."""
        self._commands.put(run)
        self.parts.wake.set()

    def stop(self) -> None:
        """End the loop after the present step; live requests are aborted."""

        def stop() -> None:
            self._is_stopping = True

        self.command(stop)

    # ---- on the engine thread ----------------------------------------------------------------------

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request.

        Raises:
            EngineStopped: the engine has failed.
            NinferError: it is refused.
        """
        if self.failure:
            raise EngineStopped(self.failure)
        self.parts.scheduler.submit(request, sink)
        self.counters.num_submitted += 1

    def submit_or_end(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request that was promised a place; a refusal becomes its last event."""
        try:
            self.submit(request, sink)
        except NinferError as error:
            stats = RequestStats(num_prompt_tokens=len(request.prompt_token_ids))
            sink(
                FinishedEvent(
                    request_id=request.request_id,
                    reason=FinishReason.ERROR,
                    stats=stats,
                    message=str(error),
                )
            )

    def problems(self) -> list[tuple[str, str]]:
        """Return what is missing while the engine serves on, as (name of the plugin, sentence)."""
        transfers = self.parts.manager.transfers
        stalled = [
            (
                handle.identity.plugin,
                f"{handle.identity.text} does not answer; contexts there count as missing",
            )
            for tier, handle in enumerate(transfers.handles, start=1)
            if transfers.is_stalled(tier)
        ]
        return [*stalled, *self.parts.watch.problems()]

    def run(self) -> None:
        """Run until stopped. Never raises: a failure is kept in `failure`."""
        while not self._is_stopping:
            self.drain_commands()
            try:
                is_busy = self.step()
            except Exception as error:  # noqa: BLE001 - a broken invariant stops the engine, loudly
                self._fail(error)
                is_busy = False
            if not is_busy:
                self._wait()
        self.drain_commands()  # requests behind the one that stopped the loop end like all others
        self.parts.manager.transfers.pace.end()
        for request_id in self.parts.scheduler.live_ids():
            self.parts.scheduler.abort(request_id)
        try:
            self.parts.on_close(not self.failure)
        except Exception:  # noqa: BLE001 - the process ends; what could not be closed is told
            _log.exception("close_failed")

    def drain_commands(self) -> None:
        """Run what other threads left until now; what they leave meanwhile waits until after the next step."""
        for _ in range(self._commands.qsize()):
            self._commands.get_nowait()()

    def step(self) -> bool:
        """Do one step; tell whether there was anything to do.

        Raises:
            InvariantBroken: an equation of the store does not hold.
        """
        if self.failure:
            return False
        parts = self.parts
        has_moved = parts.manager.poll()
        parts.scheduler.expire()
        started_s = parts.clock.monotonic_s()
        plan = parts.scheduler.plan()
        if plan is None:
            return parts.scheduler.fail_unplaceable() or has_moved
        parts.manager.transfers.pace.begin()
        try:
            output = parts.runner.execute(plan)
        except InvariantBroken:
            raise
        except Exception as error:  # noqa: BLE001 - the requests of this step fail, the next are served
            self._fail_step(error)
            return True
        self._num_failed_steps = 0
        self._garbage.note_work()
        parts.scheduler.commit(plan, output)
        self.counters.count_step(plan, output, seconds=parts.clock.monotonic_s() - started_s)
        if parts.checks_every_step:
            require(parts.manager.store)
        return True

    def _fail_step(self, error: Exception) -> None:
        self._num_failed_steps += 1
        self.counters.num_failed_steps += 1
        _log.exception("step_failed", problem=f"{type(error).__name__}: {error}")
        self.parts.scheduler.fail_step(f"the step failed: {type(error).__name__}: {error}")
        if self._num_failed_steps >= MAX_FAILED_STEPS:
            msg = f"{self._num_failed_steps} steps in a row failed, last with {error}"
            raise InvariantBroken(msg)

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        _log.critical("engine_failed", problem=self.failure, exc_info=error)
        self.parts.scheduler.end_all(FinishReason.ERROR, f"the engine has stopped: {self.failure}")

    def _wait(self) -> None:
        self.parts.manager.transfers.pace.end()
        if not self.parts.scheduler.has_work:
            self._garbage.collect_if_due()
        timeout_s = _IDLE_WAIT_S
        if self.parts.manager.transfers.num_waiting():
            timeout_s = _TRANSFER_WAIT_S
        deadline_s = self.parts.scheduler.next_deadline_s()
        if deadline_s is not None:
            timeout_s = min(timeout_s, max(0.0, deadline_s - self.parts.clock.monotonic_s()))
        self.parts.wake.wait(timeout_s)
        self.parts.wake.clear()
