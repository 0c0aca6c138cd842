"""Moves bytes between tiers on worker threads. Decides nothing and knows no tree: it copies what it is told to.

Each lower tier has one thread that reads from it and one that changes it, each with a queue. The thread that changes
a tier sees writes and deletions in the order the engine asked for them. Results come back through a queue that the
engine drains; a worker that makes no progress for the deadline has its work taken away, and what it still does later
is undone or ignored.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

import structlog

from ninfer.api import Clock, ImageKey
from ninfer.cache.device_guard import StepResult
from ninfer.cache.move import BATCH_BYTES, Batch, Move, MoveStatus, batches_of
from ninfer.cache.move_steps import MoveSteps
from ninfer.cache.pace import Pace
from ninfer.cache.tier_handle import TierHandle
from ninfer.core.step import DeviceCopier

_log = structlog.get_logger(__name__)

JOINED_BYTES: Final = 24 << 20
"""Batches that wait for the same tier are written together up to this: each write of a tier that flushes costs a flush.
While steps run it is `BATCH_BYTES`: writes are then a piece at a time."""
RESTORED_BYTES: Final = 128 << 20
"""Batches that wait to be read from the same tier are read beside each other up to this, while no steps run."""


def _go_together(first: Move, other: Move) -> bool:
    """Tell whether batches that begin with these can be copied together: what is read is copied alike if it is as long."""
    is_same_way = (first.source, first.target) == (other.source, other.target)
    return is_same_way and (first.target != 0 or first.num_bytes == other.num_bytes)


Task = Batch | Callable[[], None]


class _Worker:
    """One thread with a queue. `waiting`, `held` and `since_s` belong to the engine thread, `taken` to its own.

    Args:
        name: of the thread.
        work: does batches that go the same way, together.
        pace: of the thread.
    """

    def __init__(
        self, name: str, work: "Callable[[_Worker, list[Batch]], None]", pace: Pace
    ) -> None:
        self.name = name
        self.pace = pace
        self.queue: queue.SimpleQueue[list[Task] | None] = queue.SimpleQueue()
        self.taken: deque[Task | None] = deque()
        self.work = work
        self.held: list[Task] = []
        self.waiting: list[Batch] = []
        self.since_s = 0.0
        self.is_stalled = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            if not self.taken:
                self._take(self.queue.get())
            task = self.taken.popleft()
            if task is None:
                return
            if isinstance(task, Batch):
                self.work(self, [task, *self._joining(task)])
            else:
                task()

    def _take(self, tasks: list[Task] | None) -> None:
        self.taken.extend([None] if tasks is None else tasks)

    def _joining(self, first: Batch) -> Iterator[Batch]:
        """Take what waits right behind a batch and goes the same way."""
        num_bytes = first.num_bytes
        while True:
            with suppress(queue.Empty):
                while not self.taken:
                    self._take(self.queue.get_nowait())
            batch = self.taken[0] if self.taken else None
            if not isinstance(batch, Batch) or not _go_together(first.moves[0], batch.moves[0]):
                return
            num_bytes += batch.num_bytes
            most_bytes = JOINED_BYTES if first.moves[0].target else RESTORED_BYTES
            if not self.pace.is_alone:
                most_bytes = BATCH_BYTES
            if num_bytes > most_bytes:
                return
            self.taken.popleft()
            yield batch

    def send_held(self) -> None:
        """Wake the thread once for all that was asked of it."""
        if self.held:
            tasks, self.held = self.held, []
            self.queue.put(tasks)


class Transfers:
    """Worker threads of all lower tiers.

    Args:
        handles: lower tiers, fastest first; tier index 1 is `handles[0]`.
        copier: access to device memory.
        clock: source of time.
        deadline_s: longest time a worker may make no progress.
        wake: called from worker threads when results are ready.
        pace: of the worker threads; None for full speed.
    """

    def __init__(
        self,
        handles: Sequence[TierHandle],
        copier: DeviceCopier,
        clock: Clock,
        *,
        deadline_s: float,
        wake: Callable[[], None],
        pace: Pace | None = None,
    ) -> None:
        """Start the threads."""
        self.handles = list(handles)
        self.pace = pace or Pace()
        self._steps = MoveSteps(self.handles, copier, self.pace)
        self._clock = clock
        self._deadline_s = deadline_s
        self._wake = wake
        self._done: queue.SimpleQueue[tuple[_Worker, Batch | None]] = queue.SimpleQueue()
        self._readers = [self._worker(f"ninfer-read-{handle.name}") for handle in handles]
        self._writers = [self._worker(f"ninfer-write-{handle.name}") for handle in handles]
        self._workers = [*self._readers, *self._writers]
        self._num_holding = 0

    def _worker(self, name: str) -> _Worker:
        return _Worker(name, self._work, self.pace)

    def start(self, moves: Sequence[Move]) -> list[Batch]:
        """Queue moves that share source and target; returns their batches (for `cancel`)."""
        batches = batches_of(moves)
        for batch in batches:
            worker = self._worker_of(batch.moves[0])
            if not worker.waiting:
                worker.since_s = self._clock.monotonic_s()
            worker.waiting.append(batch)
            worker.held.append(batch)
        self._send()
        return batches

    @contextmanager
    def together(self) -> Iterator[None]:
        """Ask for everything inside at once at its end, in order: waking a thread for each takes longer than it."""
        self._num_holding += 1
        try:
            yield
        finally:
            self._num_holding -= 1
            self._send()

    def _send(self) -> None:
        if not self._num_holding:
            for worker in self._workers:
                worker.send_held()

    def _worker_of(self, move: Move) -> _Worker:
        return self._writers[move.target - 1] if move.target else self._readers[move.source - 1]

    def delete(self, tier: int, key: ImageKey) -> None:
        """Queue the removal of an image, behind what was asked of that tier before."""
        handle = self.handles[tier - 1]
        self._writers[tier - 1].held.append(partial(handle.delete, [key]))
        self._send()

    def look(self, tier: int, call: Callable[[], None]) -> None:
        """Queue a call beside the reads of a tier; it must not raise, and `wake` follows it."""

        def run() -> None:
            call()
            self._wake()

        self._readers[tier - 1].held.append(run)
        self._send()

    def cancel(self, batches: Sequence[Batch]) -> None:
        """Give batches up: on return no worker touches device memory for them any more."""
        for batch in batches:
            with ExitStack() as stack:
                for lock in batch.locks:
                    stack.enter_context(lock)
                batch.is_cancelled = True

    def is_stalled(self, tier: int) -> bool:
        """Tell whether a tier missed its deadline and has not answered since."""
        return self._readers[tier - 1].is_stalled or self._writers[tier - 1].is_stalled

    def stalled_tiers(self) -> frozenset[int]:
        """Return the tiers that do not answer."""
        return frozenset(t for t in range(1, len(self.handles) + 1) if self.is_stalled(t))

    def num_waiting(self) -> int:
        """Return batches not reported yet."""
        return sum(len(worker.waiting) for worker in self._workers)

    def queue_lengths(self, tier: int) -> tuple[int, int]:
        """Return the images of a tier that wait to be read and to be written, those under way included; any thread."""
        workers = (self._readers[tier - 1], self._writers[tier - 1])
        reads, writes = (
            sum(len(batch.moves) for batch in list(worker.waiting)) for worker in workers
        )
        return reads, writes

    def poll(self) -> list[Move]:
        """Return moves that ended since the last call, in the order they ended."""
        ended: list[Move] = []
        now_s = self._clock.monotonic_s()
        while True:
            try:
                worker, batch = self._done.get_nowait()
            except queue.Empty:
                break
            worker.since_s = now_s
            # What others of its threads still did for a batch that was given up does not tell that it works again.
            if batch is None or not batch.is_reported:
                worker.is_stalled = False
            if batch is not None:
                self._report(worker, batch, ended)
        for worker in self._workers:
            if worker.waiting and now_s - worker.since_s > self._deadline_s:
                self._give_up(worker, ended)
        return ended

    def _report(self, worker: _Worker, batch: Batch, ended: list[Move]) -> None:
        if batch.is_reported:
            return
        batch.is_reported = True
        worker.waiting.remove(batch)
        ended.extend(batch.moves)

    def _give_up(self, worker: _Worker, ended: list[Move]) -> None:
        worker.is_stalled = True
        batches = list(worker.waiting)
        self.cancel(batches)
        for batch in batches:
            move = batch.moves[0]
            handle = self.handles[(move.target or move.source) - 1]
            handle.counters.num_deadline += 1
            for member in batch.moves:
                member.status = MoveStatus.GIVEN_UP
                member.message = f"{handle.name} made no progress for {self._deadline_s:g} s"
            self._report(worker, batch, ended)

    def _work(self, worker: _Worker, batches: list[Batch]) -> None:
        started_s = last_s = self._clock.monotonic_s()
        waiting = set(map(id, batches))
        reporting = threading.Lock()

        def report(batch: Batch, results: list[StepResult]) -> None:
            nonlocal last_s
            with reporting:
                waiting.discard(id(batch))
                now_s = self._clock.monotonic_s()
                self._note(batch, results, (now_s - last_s) / len(results))
                last_s = now_s
                self._done.put((worker, batch))
            self._wake()

        try:
            self._steps.run(batches, report)
        except Exception as error:  # noqa: BLE001 - a failed copy costs a miss, never the thread
            _log.exception("transfer_failed")
            lost = StepResult(outcome="source_lost", message=f"{type(error).__name__}: {error}")
            for batch in [batch for batch in batches if id(batch) in waiting]:
                self._steps.remove(batch.moves)
                report(batch, [lost] * len(batch.moves))
        self._count_seconds(batches[0].moves[0], self._clock.monotonic_s() - started_s)
        if any(batch.is_cancelled for batch in batches):
            self._done.put((worker, None))
            self._wake()

    def _note(self, batch: Batch, results: list[StepResult], seconds: float) -> None:
        """Write down how each move of a batch ended, or undo what was done for nobody."""
        with batch.locks[0]:
            if batch.is_cancelled:
                self._steps.undo(batch.moves, results)
                return
            for move, result in zip(batch.moves, results, strict=True):
                move.status, move.message = MoveStatus(result.outcome), result.message
                move.is_full = result.is_full
                move.seconds = seconds

    def _count_seconds(self, move: Move, seconds: float) -> None:
        """Count the time of a batch for the tier whose thread it took; each counter belongs to one thread."""
        if move.target:
            self.handles[move.target - 1].counters.write_s += seconds
        else:
            self.handles[move.source - 1].counters.read_s += seconds

    def close(self, timeout_s: float) -> None:
        """Finish what is queued, at most for `timeout_s`, and end the threads."""
        for worker in self._workers:
            worker.queue.put(None)
        until_s = self._clock.monotonic_s() + timeout_s
        for worker in self._workers:
            worker.thread.join(max(0.0, until_s - self._clock.monotonic_s()))
