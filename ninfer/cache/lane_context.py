"""The context of one request while it waits for transfers and while it runs. A record; the manager changes it."""

from dataclasses import dataclass, field
from enum import StrEnum

from ninfer.cache.move import Batch
from ninfer.cache.node import PageNode, StoredObject
from ninfer.cache.planner import Outcome
from ninfer.core.request import ReusePath
from ninfer.core.retention import Retention
from ninfer.core.step import PageCopy, PageRun, StateCopy


class ContextStatus(StrEnum):
    """Where a context stands."""

    PARKED = "parked"
    """Transfers are under way; everything it needs is reserved."""
    READY = "ready"
    LOST = "lost"
    """Something it was to read is gone; the request has to be planned again."""
    ENDED = "ended"


@dataclass(slots=True, eq=False, kw_only=True)
class LaneContext:
    """What a request holds of the store.

    Attributes:
        root: start of its namespace.
        outcome: the plan it started from.
        is_cached: False for requests that neither read nor leave anything.
        pages: block table: device page ids in order, over the whole reservation.
        owned: pages of the table that belong to the lane alone.
        runs: the table as runs.
        path: published full pages from the root, each leased on the device.
        leases: other leases: what is read to start, by (object, tier).
        captured: tails and images captured on the way, to be copied down when it ends.
        anchors: prompt positions whose images outlive the request's own newer ones.
        num_imaged_tokens: position of the deepest image so far.
        branch_tokens: leading prompt tokens, in whole pages, that others have used too.
        state_slot: slot of the running state, None for models without state.
        scratch_slots: slots for the states after guesses, while it runs.
        num_missing_pages: pages still to come from victims that are being moved.
        num_waiting: transfers still to end.
        batches: those transfers, for cancelling.
        start_page_copy: copy on write to do with the first step.
        start_state_copy: state to load with the first step.
        is_started: the start copies were executed.
        restored_bytes: read from each lower tier, by tier index.
        restored_tokens: tokens of the pages read, by tier index.
        retention: what the request asks of the time its context stays reusable, None for nothing.
        end: the last page it left, None while it runs and where a stored page covers it.
        retained_s: what was granted when it ended.
        retain_until_unix_s: when that ends, None for not at all.
        reuse_path: where it resumed.
    """

    root: PageNode
    outcome: Outcome
    is_cached: bool
    status: ContextStatus = ContextStatus.PARKED
    pages: list[int] = field(default_factory=list)
    owned: set[int] = field(default_factory=set)
    runs: tuple[PageRun, ...] = ()
    path: list[PageNode] = field(default_factory=list)
    leases: list[tuple[StoredObject, int]] = field(default_factory=list)
    captured: list[StoredObject] = field(default_factory=list)
    anchors: frozenset[int] = frozenset()
    num_imaged_tokens: int = 0
    branch_tokens: int = 0
    state_slot: int | None = None
    scratch_slots: list[int] = field(default_factory=list)
    num_missing_pages: int = 0
    num_waiting: int = 0
    batches: list[Batch] = field(default_factory=list)
    start_page_copy: PageCopy | None = None
    start_state_copy: StateCopy | None = None
    is_started: bool = False
    restored_bytes: dict[int, int] = field(default_factory=dict)
    restored_tokens: dict[int, int] = field(default_factory=dict)
    retention: Retention | None = None
    end: PageNode | None = None
    retained_s: float = 0.0
    retain_until_unix_s: float | None = None
    reuse_path: ReusePath = ReusePath.ROOT

    @property
    def resume_tokens(self) -> int:
        """Tokens that need not be computed."""
        return self.outcome.point.position_tokens

    @property
    def tip(self) -> PageNode:
        """Deepest published full page, or the root."""
        return self.path[-1] if self.path else self.root
