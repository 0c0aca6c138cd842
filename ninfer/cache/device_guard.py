"""Device memory as copies touch it: only while their batch is wanted. Runs on worker threads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer.api import ImageKind
from ninfer.core.step import DeviceCopier

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from ninfer.cache.move import Batch, Move


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How one move ended: a value of `MoveStatus`, and why."""

    outcome: str
    message: str = ""
    is_full: bool = False


DONE = StepResult(outcome="done")
GIVEN_UP = StepResult(outcome="given_up")


class DeviceGuard:
    """Touches device memory only under the lock and only while the batch is wanted."""

    def __init__(self, copier: DeviceCopier, batch: "Batch", lane: int = 0) -> None:
        self.copier = copier
        self.lock = batch.locks[lane]
        self._batch = batch

    @property
    def is_cancelled(self) -> bool:
        """True if nobody waits for the batch any more."""
        return self._batch.is_cancelled

    def copy_in(self, moves: "Sequence[Move]", buffer: memoryview) -> StepResult:
        """Copy a state, or pages that lie one behind the other in `buffer`."""
        with self.lock:
            if self._batch.is_cancelled:
                return GIVEN_UP
            if moves[0].kind is ImageKind.STATE:
                self.copier.copy_state_in(moves[0].location, buffer)
            else:
                self.copier.copy_pages_in([move.location for move in moves], buffer)
        return DONE

    def copy_out(self, move: "Move", buffer: memoryview) -> StepResult:
        """Copy one state or page to `buffer`."""
        with self.lock:
            if self._batch.is_cancelled:
                return GIVEN_UP
            if move.kind is ImageKind.STATE:
                self.copier.copy_state_out(move.location, buffer)
            else:
                self.copier.copy_page_out(move.location, buffer)
        return DONE


def copy_out(
    moves: "Sequence[Move]", guards: "Sequence[DeviceGuard]", buffer: memoryview
) -> list[StepResult]:
    """Copy a state, or pages to be one behind the other in `buffer`: in one go if all are still wanted."""
    held: list[threading.Lock] = []
    try:
        for guard in dict.fromkeys(guards):
            guard.lock.acquire()
            held.append(guard.lock)
        if len(moves) > 1 and not any(guard.is_cancelled for guard in guards):
            guards[0].copier.copy_pages_out([move.location for move in moves], buffer)
            return [DONE] * len(moves)
    finally:
        for lock in held:
            lock.release()
    num_bytes = moves[0].num_bytes
    return [
        guard.copy_out(move, buffer[at * num_bytes : (at + 1) * num_bytes])
        for at, (move, guard) in enumerate(zip(moves, guards, strict=True))
    ]
