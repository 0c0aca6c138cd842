"""Retentions that a replay was granted, and whether they were kept. Knows blocks and times; decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Kept:
    """What became of granted retentions.

    Attributes:
        num_granted: requests whose context was to stay.
        num_refused: requests whose context could not be promised.
        num_returns: later requests that began with promised blocks.
        num_blocks: promised blocks that those asked for.
        num_lost_blocks: of them, not served.
    """

    num_granted: int = 0
    num_refused: int = 0
    num_returns: int = 0
    num_blocks: int = 0
    num_lost_blocks: int = 0


class Promises:
    """Remembers until when each block was promised.

    Args:
        seconds: how long a context stays, counted from its last use.
    """

    def __init__(self, seconds: float) -> None:
        """Start with nothing promised."""
        self.kept = Kept()
        self._seconds = seconds
        self._until_s: dict[int, float] = {}

    def returned(self, blocks: Sequence[int], num_hits: int, now_s: float) -> None:
        """Compare what a request was served with what was promised, and go on with what it used.

        Args:
            blocks: its prompt.
            num_hits: blocks of it that were served, from its start.
            now_s: time of the request.
        """
        num_promised = 0
        for block in blocks:
            if self._until_s.get(block, 0.0) <= now_s:
                break
            num_promised += 1
        if num_promised:
            self.kept.num_returns += 1
            self.kept.num_blocks += num_promised
            self.kept.num_lost_blocks += max(0, num_promised - num_hits)
        for block in blocks[: min(num_hits, num_promised)]:
            self._until_s[block] = now_s + self._seconds

    def left(self, blocks: Sequence[int], now_s: float, *, is_granted: bool) -> None:
        """Note what was answered to a request that ended."""
        if not is_granted:
            self.kept.num_refused += 1
            return
        self.kept.num_granted += 1
        for block in blocks:
            self._until_s[block] = now_s + self._seconds
