"""One image to copy, and those that are copied together. Knows nothing about how."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ninfer.api import ImageKey, ImageKind
from ninfer.cache.identity import ImageHeader

BATCH_IMAGES: Final = 16
"""Images of one batch: large enough for sequential I/O, small enough that other requests get their turn."""
BATCH_BYTES: Final = 4 << 20
"""A batch of smaller images has more of them, up to this."""
NUM_LANES: Final = 2
"""Threads that restore."""


class MoveStatus(StrEnum):
    """How one move ended."""

    DONE = "done"
    SOURCE_LOST = "source_lost"
    """The source was missing, damaged or unreadable."""
    TARGET_REFUSED = "target_refused"
    """The target had no room or failed."""
    GIVEN_UP = "given_up"
    """Cancelled or past the deadline."""


@dataclass(slots=True, kw_only=True, eq=False)
class Move:
    """One image to copy.

    Attributes:
        key: its name.
        header: what must stand beside it.
        num_bytes: payload bytes.
        source: tier index.
        target: tier index.
        location: page id or slot on the device end, -1 if neither end is the device.
        tag: whatever the caller wants back; if it can be called, it is told when the move ended.
        subject: what the image belongs to, for whoever `tag` is.
        status: set by the worker.
        seconds: time that passed until its batch was done, since that before it was; shared by the batch's moves.
        message: what went wrong.
        is_full: the target had no room.
    """

    key: ImageKey
    header: ImageHeader
    num_bytes: int
    source: int
    target: int
    location: int
    tag: object = None
    subject: object = None
    status: MoveStatus = MoveStatus.GIVEN_UP
    seconds: float = 0.0
    message: str = ""
    is_full: bool = False

    @property
    def kind(self) -> ImageKind:
        """Page or state."""
        return self.key.kind


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """Moves with the same source and target, done together.

    Attributes:
        moves: in order.
        locks: one per thread that copies for it, held while that thread touches device memory; all of them while the batch
            is cancelled.
        is_cancelled: set by the engine; no device memory is touched afterwards.
        is_reported: its moves were handed back to the engine.
    """

    moves: Sequence[Move]
    locks: Sequence[threading.Lock] = field(
        default_factory=lambda: [threading.Lock() for _ in range(NUM_LANES)]
    )
    is_cancelled: bool = False
    is_reported: bool = False

    @property
    def num_bytes(self) -> int:
        """Payload bytes."""
        return sum(move.num_bytes for move in self.moves)


def batches_of(moves: Sequence[Move]) -> list[Batch]:
    """Cut moves that share source and target into batches."""
    batches = []
    first, num_bytes = 0, 0
    for at, move in enumerate(moves):
        if at - first >= BATCH_IMAGES and num_bytes + move.num_bytes > BATCH_BYTES:
            batches.append(Batch(moves=moves[first:at]))
            first, num_bytes = at, 0
        num_bytes += move.num_bytes
    if first < len(moves):
        batches.append(Batch(moves=moves[first:]))
    return batches


def pieces_of(moves: Sequence[Move], most_bytes: int) -> Iterator[Sequence[Move]]:
    """Cut a batch into parts of at most so many bytes, or of one move."""
    first, num_bytes = 0, 0
    for at, move in enumerate(moves):
        if at > first and num_bytes + move.num_bytes > most_bytes:
            yield moves[first:at]
            first, num_bytes = at, 0
        num_bytes += move.num_bytes
    yield moves[first:]


def bytes_of(moves: Sequence[Move]) -> int:
    """Return the payload bytes of moves."""
    return sum(move.num_bytes for move in moves)
