"""One lane's rows in a step and where its KV lives. Knows nothing about requests."""

from collections.abc import Iterator
from dataclasses import dataclass

from ninfer.core.step import PAGE_SIZE_TOKENS, PageRun


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of a batch that belong to one lane.

    Rows [row_start, row_start + num_rows) are tokens [position_start, position_start + num_rows) of the lane.

    Attributes:
        row_start: first row in the batch.
        num_rows: rows; 1 for a decode step.
        position_start: position of the first row's token; KV of [0, position_start) is already in the pool.
        runs: (first page, number of pages), in token order, covering at least [0, position_start + num_rows).
        state_slot: slot of the lane's recurrent state, None for models without state. Read before the first row,
            written with the state after the last one.
        state_slots_after: slots that also receive the state after each row, one per row, all different; the last may
            be `state_slot`. For guesses: whoever verifies them keeps the slot of the last accepted row. Empty for none.
        context_start: first position whose KV rows look at; no row is before it.
    """

    row_start: int
    num_rows: int
    position_start: int
    runs: tuple[PageRun, ...]
    state_slot: int | None = None
    state_slots_after: tuple[int, ...] = ()
    context_start: int = 0

    @property
    def position_end(self) -> int:
        """Position after the last row."""
        return self.position_start + self.num_rows

    def slot_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (first slot, number of slots) ranges that hold tokens [start, end), in order; adjacent ones joined.

        Raises:
            ValueError: the runs do not reach `end`.
        """
        slot, length = -1, 0
        run_start = 0
        for first_page, num_pages in self.runs:
            run_end = run_start + num_pages * PAGE_SIZE_TOKENS
            low, high = max(start, run_start), min(end, run_end)
            if low < high:
                first_slot = first_page * PAGE_SIZE_TOKENS + low - run_start
                if slot + length == first_slot and length:
                    length += high - low
                else:
                    if length:
                        yield slot, length
                    slot, length = first_slot, high - low
            if run_end >= end:
                break
            run_start = run_end
        else:
            raise ValueError(f"page runs hold {run_start} tokens, {end} are needed")
        if length:
            yield slot, length
