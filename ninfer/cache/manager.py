"""The cache manager: the scheduler's one door to contexts. Seals plans, follows transfers, publishes what is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from ninfer.api import CheckpointMatcher, Clock, PlacementPolicy, TransferObserved
from ninfer.cache.captures import Captures
from ninfer.cache.copies_down import CopiesDown
from ninfer.cache.eviction import Evictor
from ninfer.cache.identity import encode_tokens
from ninfer.cache.lane_context import ContextStatus, LaneContext
from ninfer.cache.lineage import Lineage
from ninfer.cache.lost_images import LostImages
from ninfer.cache.move import Move, MoveStatus
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.planner import Need, Outcome, Planner
from ninfer.cache.publishing import Publisher
from ninfer.cache.resume import Prefix
from ninfer.cache.retaining import Retaining, RetentionLimits
from ninfer.cache.reuse_path import classify
from ninfer.cache.scratch_slots import ScratchSlots
from ninfer.cache.sealing import Sealer
from ninfer.cache.shared_tiers import SharedTiers
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_hits import TierHits
from ninfer.cache.transfers import Transfers
from ninfer.core.errors import RequestInfeasible
from ninfer.core.request import GenerationRequest
from ninfer.core.step import PAGE_SIZE_TOKENS, PageCopy, StateCopy
from ninfer.core.without_collections import without_collections


class Blocked(StrEnum):
    """Why a request cannot start now."""

    SPACE = "space"
    """Running requests hold too much of the device."""
    TRANSFER = "transfer"
    """Copies that make room are under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCopies:
    """Copies that the next step does before it computes."""

    page_copies: tuple[PageCopy, ...]
    state_copies: tuple[StateCopy, ...]


class CacheManager:
    """Contexts of all requests.

    Args:
        store: the context store.
        transfers: moves bytes.
        matcher: picks resume points.
        policy: values, prices, and learns from what happened.
        clock: source of time.
        slack_tokens: positions beyond prompt and completion that speculation may touch.
        retention: bounds on how long contexts are retained; None for the defaults.
    """

    def __init__(
        self,
        store: ContextStore,
        transfers: Transfers,
        *,
        matcher: CheckpointMatcher,
        policy: PlacementPolicy,
        clock: Clock,
        slack_tokens: int,
        retention: RetentionLimits | None = None,
    ) -> None:
        """Wire the parts."""

        def is_usable(tier: int) -> bool:
            return not transfers.is_stalled(tier)

        evictor = Evictor(store, is_usable, policy.evicted)
        copies_down = CopiesDown(store, evictor, transfers, policy)
        store.on_delete = transfers.delete
        self.shared = SharedTiers(store, transfers, clock)
        self._lost = LostImages(store, transfers, clock)
        self.store = store
        self.transfers = transfers
        self.copies_down = copies_down
        self.writes = evictor.writes
        self.hits = TierHits(store.num_tiers)
        self._planner = Planner(store, evictor, matcher, policy)
        self._policy = policy
        self._clock = clock
        self._slack_tokens = slack_tokens
        self._sealer = Sealer(store, evictor, transfers, copies_down)
        self._publisher = Publisher(store, copies_down)
        self.scratch = ScratchSlots(store)
        self._lineage = Lineage(store)
        self._captures = Captures(store, self._publisher, evictor, copies_down)
        limits = retention or RetentionLimits()
        self.retaining = Retaining(store, copies_down, limits, is_usable)

    # ---- admission ---------------------------------------------------------------------------------

    def need_of(self, request: GenerationRequest) -> Need:
        """Return what a request takes of the device until it ends."""
        num_tokens = len(request.prompt_token_ids) + request.max_tokens + self._slack_tokens
        return Need(
            num_prompt_tokens=len(request.prompt_token_ids),
            num_pages=-(-num_tokens // PAGE_SIZE_TOKENS),
            num_slots=1 if self.store.has_state else 0,
            session_key=request.cache.session_key,
        )

    def check_feasible(self, request: GenerationRequest) -> None:
        """Refuse a request that could not fit even on an empty device.

        Raises:
            RequestInfeasible: with needed and available tokens.
        """
        need = self.need_of(request)
        layout = self.store.layout
        if need.num_pages > layout.num_pages or need.num_slots > layout.num_state_slots:
            msg = (
                f"the request needs device room for {need.num_pages * PAGE_SIZE_TOKENS} tokens "
                f"({need.num_prompt_tokens} of prompt, {request.max_tokens} of completion, "
                f"rounded up to pages), {layout.num_pages * PAGE_SIZE_TOKENS} are available"
            )
            raise RequestInfeasible(msg, param="max_tokens")

    def admit(self, request: GenerationRequest, *, may_wait: bool = True) -> LaneContext | Blocked:
        """Plan a request and seal the plan.

        Args:
            request: a feasible request.
            may_wait: False drops what should be copied further down first, if that is what it takes.

        Returns:
            A context, READY or PARKED, that holds everything the request needs; or why it cannot start now, in
            which case nothing is held (copies that make room may have been started).
        """
        with self.transfers.together(), without_collections():
            return self._admit(request, may_wait=may_wait)

    def _admit(self, request: GenerationRequest, *, may_wait: bool) -> LaneContext | Blocked:
        need = self.need_of(request)
        root = self.store.root_of(request.cache.salt)
        encoded = b""
        if request.cache.is_enabled:
            encoded = request.encoded_prompt or encode_tokens(request.prompt_token_ids)
        prefix = Prefix(
            self.store.tree,
            root,
            encoded,
            has_state=self.store.has_state,
            stalled=self.store.stalled,
        )
        outcome = self._planner.plan(need, prefix)
        if outcome is None:
            in_flight = prefix.is_in_flight(len(prefix.path))
            return Blocked.TRANSFER if in_flight or self.transfers.num_waiting() else Blocked.SPACE
        if outcome.eviction.dirty and may_wait:
            self.copies_down.clean(outcome.eviction.dirty)
            if self.copies_down.num_in_flight:
                return Blocked.TRANSFER
            # No copy could be started. Trying may have changed the store: plan again, and drop what has to go.
            return self._admit(request, may_wait=False)
        return self._seal(request, root, prefix, outcome)

    def _seal(
        self, request: GenerationRequest, root: PageNode, prefix: Prefix, outcome: Outcome
    ) -> LaneContext:
        context = LaneContext(root=root, outcome=outcome, is_cached=request.cache.is_enabled)
        context.reuse_path = classify(outcome.point, prefix.path)
        if request.cache.is_enabled:
            context.retention = self.retaining.wish_of(request.cache.retention)
        context.branch_tokens = len(prefix.path) * PAGE_SIZE_TOKENS
        point = outcome.point
        used: list[StoredObject] = [*prefix.path[: point.num_pages]]
        used += [extra for extra in (point.partial, point.image) if extra is not None]
        self.store.touch(used)
        self._sealer.seal(context, prefix)
        return context

    def cancel(self, context: LaneContext) -> None:
        """End a context that has not started: everything it holds is given back."""
        self._sealer.unwind(context)
        context.status = ContextStatus.ENDED

    def rebuild_victims(self) -> None:
        """Value everything stored anew. Cost: one walk over it; for an order that proved incomplete."""
        for node in self.store.tree.nodes():
            for tier in range(self.store.num_tiers):
                self.store.values.offer(node, tier)
                if node.image is not None:
                    self.store.values.offer(node.image, tier)
        self.store.revision += 1

    # ---- transfers ---------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Book transfers that ended and start copies ahead of pressure; tell whether anything ended."""
        ended = self.transfers.poll()
        stalled = self.transfers.stalled_tiers()
        if stalled != self.store.stalled:
            self.store.stalled = stalled
            self.store.revision += 1
        for (source, target), moves in groupby(ended, key=lambda move: (move.source, move.target)):
            self._observe(source, target, list(moves))
        for move in ended:
            if move.status is MoveStatus.SOURCE_LOST and move.source != DEVICE:
                self._lost.suspect(move.source)
            on_end = move.tag
            if callable(on_end):
                on_end(move)
        is_changed = self.retaining.pump()
        is_changed = self._lost.pump() or is_changed
        self.copies_down.pump()
        return self.shared.pump() or is_changed or bool(ended)

    def _observe(self, source: int, target: int, moves: Sequence[Move]) -> None:
        """Let the policy learn from what went the same way together; what did not arrive says nothing."""
        measured = [move for move in moves if move.status is MoveStatus.DONE]
        seconds = sum(move.seconds for move in measured)
        if seconds > 0.0:
            self._policy.observe_transfer(
                TransferObserved(
                    source_index=source,
                    target_index=target,
                    num_bytes=sum(move.num_bytes for move in measured),
                    seconds=seconds,
                )
            )

    # ---- running -----------------------------------------------------------------------------------

    def open(
        self, context: LaneContext, token_ids: Sequence[int], *, num_captures: int = 0
    ) -> None:
        """Make a ready context ready to run.

        Args:
            context: a ready context; its anchors are known.
            token_ids: the prompt.
            num_captures: marked positions of it that will be captured.
        """
        self.hits.add(context)
        self.scratch.lend(context)
        context.num_imaged_tokens = context.resume_tokens
        if context.is_cached and self.store.has_state:
            self._lineage.refresh(context, token_ids)
            self._captures.prepare(num_captures)

    def keep_state(self, context: LaneContext, slot: int) -> None:
        """Make the state in one of a lane's slots its running one, exactly that of the accepted tokens."""
        self.scratch.keep(context, slot)

    def take_copies(self, starting: Sequence[LaneContext]) -> StartCopies:
        """Return what the next step must copy: for contexts that start with it, and captures."""
        page_copies = [c.start_page_copy for c in starting if c.start_page_copy is not None]
        state_copies = [c.start_state_copy for c in starting if c.start_state_copy is not None]
        return StartCopies(
            page_copies=(*self._captures.page_copies(), *page_copies),
            state_copies=tuple(state_copies),
        )

    def copies_done(self, starting: Sequence[LaneContext]) -> None:
        """Book the copies of the step that just ran."""
        self._captures.commit()
        for context in starting:
            self._sealer.release_sources(context)
            context.is_started = True

    def copies_failed(self) -> None:
        """The step failed: captures that were to be copied in it are dropped."""
        self._captures.cancel_all()

    def advance(self, context: LaneContext, token_ids: Sequence[int], num_computed: int) -> None:
        """Publish pages that were filled. Constant time unless a page border was passed.

        Args:
            context: a running context.
            token_ids: prompt and completion so far.
            num_computed: tokens whose KV is there, all of them final.
        """
        if context.is_cached:
            self._publisher.publish_full_pages(context, token_ids, num_computed)

    def capture_slot(
        self, context: LaneContext, position_tokens: int, *, is_rung: bool, num_left: int
    ) -> int | None:
        """Return a slot to capture the running state into, None if there is no room worth taking.

        Args:
            context: a running context.
            position_tokens: where the state will be.
            is_rung: nothing marks this position; it takes no room from what somebody may come back to.
            num_left: marked positions of the request still to come.
        """
        if not context.is_cached:
            return None
        return self._captures.take_slot(
            context, position_tokens, is_rung=is_rung, num_left=num_left
        )

    def capture(
        self,
        context: LaneContext,
        token_ids: Sequence[int],
        position_tokens: int,
        slot: int | None,
        *,
        is_rung: bool = False,
    ) -> None:
        """Make a running request's position a resume point of its own (after `advance` to there)."""
        if context.is_cached:
            self._captures.add(context, token_ids, position_tokens, slot, is_rung=is_rung)

    def finish(
        self,
        context: LaneContext,
        token_ids: Sequence[int],
        num_computed: int,
        *,
        is_state_current: bool = True,
    ) -> None:
        """End a running context at any moment; what was computed stays usable.

        Args:
            context: a running context.
            token_ids: prompt and completion.
            num_computed: tokens whose KV is there, all of them final.
            is_state_current: the running state is that of `num_computed`.
        """
        self._captures.cancel(context)
        self._sealer.release_sources(context)
        if context.is_cached and num_computed > 0 and context.is_started:
            self._publisher.publish_end(
                context, token_ids, num_computed, is_state_current=is_state_current
            )
            self.retaining.grant(context)
        self._publisher.give_back(context)
        self.scratch.take_back(context)
        context.status = ContextStatus.ENDED

    # ---- shutdown ----------------------------------------------------------------------------------

    def flush(self, timeout_s: float, wait: Callable[[], None]) -> int:
        """Copy contexts to the slowest tier that keeps them over a restart.

        Args:
            timeout_s: bound.
            wait: waits a moment for transfers.

        Returns:
            Number of images copied.
        """
        until_s = self._clock.monotonic_s() + timeout_s

        def keep_going() -> bool:
            if not self.poll():
                wait()
            return self._clock.monotonic_s() < until_s

        return self.copies_down.flush(self.store.num_tiers - 1, keep_going=keep_going)
