"""Which objects are worth writing to a lower tier, and whether it may be written to now. Plans and moves nothing.

Most contexts are never used again: 76% of the pages of a public one-hour trace. To write them down wears a disk for
nothing, and on a small disk they drive each other out before anybody can come back. So a tier can filter: an object that
nobody came back to takes free room, and displaces others only as if it had been idle for a while already (or not at
all); once the write budget is short, it is not written. What is used, computed again after it was given up
(`ghosts.py`), or retained takes the place of anything that is worth less.
"""

from enum import StrEnum
from typing import Final

from ninfer.api import Clock
from ninfer.cache.node import StoredObject, page_of
from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.cache.write_budget import WriteBudget

IDLE_S: Final = 300.0
"""Idle time that an object which nobody came back to counts with. See docs/decisions/0008."""


class Admission(StrEnum):
    """What a tier lets an object do."""

    ORDINARY = "ordinary"
    """Be written, in place of what is worth less if there is no room."""
    IF_IDLE = "if_idle"
    """Be written, in place of what would be worth less had it been idle for a while: nobody came back to it yet."""
    IF_FREE = "if_free"
    """Be written if there is room: nobody came back to it yet."""
    ONE_TIME = "one_time"
    """Nothing: nobody came back to it yet, and the write budget is short."""
    OVER_BUDGET = "over_budget"
    """Nothing: the write budget is used up."""

    @property
    def is_refusal(self) -> bool:
        """True if the object may not be written at all now."""
        return self in {Admission.ONE_TIME, Admission.OVER_BUDGET}


class TierWrites:
    """Decides about writes to one lower tier, and counts what it keeps away.

    Args:
        rules: of the configuration.
        clock: source of time.
        largest_bytes: what the largest image takes of the tier.

    Attributes:
        num_over_budget: objects that were not written because the write budget was used up.
        over_budget_bytes: what they would have taken.
        num_one_time: objects that were not written because nobody came back to them.
        one_time_bytes: what they would have taken.
    """

    def __init__(self, rules: WriteRules, clock: Clock, *, largest_bytes: int) -> None:
        """Start with a full budget."""
        self._filter = rules.filter
        self.budget = WriteBudget(
            clock,
            bytes_per_s=rules.max_bytes_per_s,
            bytes_per_day=rules.max_bytes_per_day,
            largest_bytes=largest_bytes,
        )
        self.num_over_budget = 0
        self.over_budget_bytes = 0
        self.num_one_time = 0
        self.one_time_bytes = 0

    def admission(self, stored: StoredObject, num_bytes: int) -> Admission:
        """Tell what an object may do.

        Args:
            stored: with its last replica elsewhere.
            num_bytes: to be written, those that a plan intends to write before it included.
        """
        if not self.budget.allows(num_bytes):
            return Admission.OVER_BUDGET
        if self._filter is WriteFilter.ALL or is_proven(stored):
            return Admission.ORDINARY
        if self.budget.is_short:
            return Admission.ONE_TIME
        return Admission.IF_IDLE if self._filter is WriteFilter.IDLE else Admission.IF_FREE

    def count_refused(self, admission: Admission, num_bytes: int) -> None:
        """Count an object that was not written for one of the reasons above."""
        if admission is Admission.OVER_BUDGET:
            self.num_over_budget += 1
            self.over_budget_bytes += num_bytes
        else:
            self.num_one_time += 1
            self.one_time_bytes += num_bytes


def is_proven(stored: StoredObject) -> bool:
    """Tell whether somebody came back to an object, or asked that it be kept.

    An image counts as used if its page was: a state is captured anew wherever a prompt passes, a page is computed anew.
    """
    return stored.num_uses > 1 or stored.retain_s > 0 or page_of(stored).num_uses > 1
