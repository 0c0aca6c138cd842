"""One running request. A record; the scheduler changes it."""

from collections import deque
from dataclasses import dataclass, field

from ninfer.cache.lane_context import LaneContext
from ninfer.core.request import GenerationRequest
from ninfer.sched.draft_counts import DraftCounts


@dataclass(slots=True, eq=False, kw_only=True)
class Lane:
    """A request that holds a lane.

    Attributes:
        number: lane number, constant.
        request: what was asked.
        context: what it holds of the cache.
        token_ids: prompt and completion so far.
        num_computed: tokens whose KV is there and final.
        captures: prompt positions still to be captured, ascending.
        rungs: those among them that nothing but the ladder wants.
        submitted_s: when it was queued.
        started_s: when it got the lane, all transfers done.
        first_token_s: when its first token was sampled, None before.
        drafts: guesses verified and accepted.
        is_state_current: the running state is that of `num_computed`.
    """

    number: int
    request: GenerationRequest
    context: LaneContext
    token_ids: list[int]
    num_computed: int
    captures: deque[int] = field(default_factory=deque)
    rungs: frozenset[int] = frozenset()
    submitted_s: float = 0.0
    started_s: float = 0.0
    first_token_s: float | None = None
    drafts: DraftCounts = field(default_factory=DraftCounts)
    is_state_current: bool = True

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt length."""
        return len(self.request.prompt_token_ids)

    @property
    def num_marks_left(self) -> int:
        """Captures still to come that are not rungs."""
        return len(self.captures) - sum(position in self.rungs for position in self.captures)

    @property
    def num_completion_tokens(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_prefilling(self) -> bool:
        """True until the whole prompt is computed."""
        return self.num_computed < self.num_prompt_tokens

    @property
    def num_left(self) -> int:
        """Prompt tokens still to compute."""
        return max(0, self.num_prompt_tokens - self.num_computed)
