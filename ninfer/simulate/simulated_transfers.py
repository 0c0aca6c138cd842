"""Transfers that take no time and move no bytes, but count both. Knows costs; decides nothing.

Stands where `ninfer.cache.transfers.Transfers` stands: what is started ends at the next poll.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer.api import ImageKey
from ninfer.cache.move import Batch, Move, MoveStatus, batches_of
from ninfer.simulate.costs import Link

if TYPE_CHECKING:
    from ninfer.cache.tier_handle import TierHandle


@dataclass(slots=True, kw_only=True)
class Moved:
    """What went from one tier to another."""

    num_images: int = 0
    num_bytes: int = 0
    seconds: float = 0.0


class SimulatedTransfers:
    """Ends moves at once and books their costs.

    Args:
        links: cost of each way, by (source, target) index.
    """

    def __init__(self, links: Mapping[tuple[int, int], Link]) -> None:
        """Start with nothing moved."""
        self.handles: list[TierHandle] = []
        self.moved: dict[tuple[int, int], Moved] = {}
        self._links = links
        self._started: list[Batch] = []

    def start(self, moves: Sequence[Move]) -> list[Batch]:
        """Book moves that share source and target."""
        batches = batches_of(moves)
        self._started.extend(batches)
        return batches

    @contextmanager
    def together(self) -> Iterator[None]:
        """There are no threads to wake."""
        yield

    def poll(self) -> list[Move]:
        """Return what was started since the last call, all of it done unless it was cancelled."""
        started, self._started = self._started, []
        ended: list[Move] = []
        for batch in started:
            batch.is_reported = True
            if not batch.is_cancelled:
                self._book(batch)
            ended.extend(batch.moves)
        return ended

    def _book(self, batch: Batch) -> None:
        way = (batch.moves[0].source, batch.moves[0].target)
        num_bytes = sum(move.num_bytes for move in batch.moves)
        seconds = self._links[way].seconds(num_bytes)
        total = self.moved.setdefault(way, Moved())
        total.num_images += len(batch.moves)
        total.num_bytes += num_bytes
        total.seconds += seconds
        for move in batch.moves:
            move.status = MoveStatus.DONE
            move.seconds = seconds / len(batch.moves)

    def cancel(self, batches: Sequence[Batch]) -> None:
        """Give batches up."""
        for batch in batches:
            batch.is_cancelled = True

    def delete(self, tier: int, key: ImageKey) -> None:
        """Nothing is stored, so nothing is deleted."""

    def look(self, tier: int, call: Callable[[], None]) -> None:
        """No tier is shared with other machines, so there is nothing to look at."""

    def is_stalled(self, tier: int) -> bool:
        """Tell whether a tier does not answer: never."""
        del tier
        return False

    def stalled_tiers(self) -> frozenset[int]:
        """Return the tiers that do not answer: none."""
        return frozenset()

    def num_waiting(self) -> int:
        """Return batches not reported yet."""
        return len(self._started)

    def close(self, timeout_s: float) -> None:
        """There are no threads to end."""
