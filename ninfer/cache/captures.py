"""Resume points taken while a request runs on: copies of a partial page and of the state. Optional work.

A capture becomes visible only after the step that makes its page copy; if the request ends first, it is dropped, for
the end is a resume point itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ninfer.cache.copies_down import CopiesDown
from ninfer.cache.eviction import Evictor
from ninfer.cache.identity import encode_tokens
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.node import DEVICE, PageNode, StateImage, StoredObject
from ninfer.cache.publishing import Publisher
from ninfer.cache.store import ContextStore
from ninfer.core.step import PAGE_SIZE_TOKENS, PageCopy

MAX_PREPARED: Final = 4
"""Captures of one request that room is prepared for; more are rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    context: LaneContext
    parent: PageNode
    tokens: bytes
    copy: PageCopy
    slot: int | None
    is_rung: bool


class Captures:
    """Captures of running requests.

    Args:
        store: the context store.
        publisher: makes them visible.
        evictor: finds a slot when none is free.
        copies_down: moves the image in the slot down first, if there is room for it.
    """

    def __init__(
        self,
        store: ContextStore,
        publisher: Publisher,
        evictor: Evictor,
        copies_down: CopiesDown,
    ) -> None:
        """Start with none."""
        self._store = store
        self._publisher = publisher
        self._evictor = evictor
        self._copies_down = copies_down
        self._pending: list[_Pending] = []

    def take_slot(
        self, context: LaneContext, position_tokens: int, *, is_rung: bool, num_left: int
    ) -> int | None:
        """Return a state slot for a capture, None if there is no room worth taking.

        Gives up the least valuable image if it is copied below, or if it is worth less and no tier has room for it.
        One that a slower tier has room for is copied first (rungs and superseded ones are not): the next capture finds its place.

        Args:
            context: whose state.
            position_tokens: where it will be.
            is_rung: nothing marks the position.
            num_left: marked positions of the request still to come; a rung leaves free slots for them.
        """
        if not self._store.has_state:
            return None
        num_kept = num_left if is_rung else 0
        if len(self._store.free_slots) <= num_kept:
            self._make_room(context, position_tokens, num_slots=1, is_rung=is_rung)
        return self._store.take_slot() if len(self._store.free_slots) > num_kept else None

    def prepare(self, num_captures: int) -> None:
        """Copy down what the captures of a request that starts will displace.

        A capture cannot wait for a copy; by the time the prompt is computed up to it, the copy is made.
        """
        if not self._store.has_state:
            return
        num_wanted = min(num_captures, MAX_PREPARED)
        plan = self._evictor.plan_device(
            num_pages=num_wanted - self._store.pages.num_free,
            num_slots=num_wanted - len(self._store.free_slots),
        )
        for victim in plan.victims:
            if victim.target is not None:
                self._copies_down.copy(victim.stored, DEVICE, victim.target)

    def _make_room(
        self,
        context: LaneContext,
        position_tokens: int,
        *,
        num_pages: int = 0,
        num_slots: int = 0,
        is_rung: bool = False,
    ) -> None:
        plan = self._evictor.plan_device(num_pages=num_pages, num_slots=num_slots)
        if not plan.is_enough:
            return
        victim = plan.victims[0]
        is_redundant = victim.stored.has_valid_below(DEVICE)
        is_spare = is_redundant or _is_spare(victim.stored)
        if victim.target is not None and not is_spare:
            if not is_rung:
                self._copies_down.copy(victim.stored, DEVICE, victim.target)
            return
        value = self._store.values.value_of_new_image(
            position_tokens,
            max(position_tokens - context.num_imaged_tokens, 1),
            is_rung=is_rung,
            now_s=self._store.clock.monotonic_s(),
            use_index=self._store.use_index,
        )
        if is_redundant or victim.value < value:
            self._evictor.apply_drops(plan)

    def add(
        self,
        context: LaneContext,
        token_ids: Sequence[int],
        position_tokens: int,
        slot: int | None,
        *,
        is_rung: bool = False,
    ) -> None:
        """Capture a position whose full pages are published."""
        num_pages = position_tokens // PAGE_SIZE_TOKENS
        if len(context.path) < num_pages or context.tip.is_gone:
            self._give(slot)
            return
        parent = context.path[num_pages - 1] if num_pages else context.root
        rest = token_ids[num_pages * PAGE_SIZE_TOKENS : position_tokens]
        if not rest:
            self._publish_image(context, parent, slot, is_rung=is_rung)
            return
        if self._store.pages.num_free == 0:
            self._make_room(context, position_tokens, num_pages=1, is_rung=is_rung)
        if self._store.pages.num_free == 0:
            self._give(slot)
            return
        copy = PageCopy(
            source=context.pages[num_pages],
            target=self._store.take_pages(1)[0],
            num_tokens=len(rest),
        )
        tokens = encode_tokens(rest)
        self._pending.append(
            _Pending(
                context=context,
                parent=parent,
                tokens=tokens,
                copy=copy,
                slot=slot,
                is_rung=is_rung,
            )
        )

    def page_copies(self) -> list[PageCopy]:
        """Return the copies the next step has to make."""
        return [pending.copy for pending in self._pending]

    def commit(self) -> None:
        """The copies were made: publish."""
        taken, self._pending = self._pending, []
        for pending in taken:
            page = pending.copy.target
            node = self._publisher.publish_partial(pending.parent, pending.tokens, page)
            if page in self._store.private_pages:
                self._store.give_pages([page])
            if node is None:
                self._give(pending.slot)
            else:
                pending.context.captured.append(node)
                self._publish_image(pending.context, node, pending.slot, is_rung=pending.is_rung)

    def cancel(self, context: LaneContext) -> None:
        """Drop captures of a request that ends before they were made."""
        dropped = [pending for pending in self._pending if pending.context is context]
        self._pending = [pending for pending in self._pending if pending.context is not context]
        self._drop(dropped)

    def cancel_all(self) -> None:
        """Drop all captures that were not made yet."""
        dropped, self._pending = self._pending, []
        self._drop(dropped)

    def _drop(self, dropped: Sequence[_Pending]) -> None:
        for pending in dropped:
            self._store.give_pages([pending.copy.target])
            self._give(pending.slot)

    def _publish_image(
        self, context: LaneContext, node: PageNode, slot: int | None, *, is_rung: bool
    ) -> None:
        if slot is None:
            return
        image = None
        if not node.is_root and not node.is_gone:
            image = self._store.publish_image(node, slot, is_rung=is_rung)
        if image is None:
            self._give(slot)
        else:
            context.captured.append(image)
            context.num_imaged_tokens = node.end_tokens

    def _give(self, slot: int | None) -> None:
        if slot is not None:
            self._store.give_slot(slot)


def _is_spare(stored: StoredObject) -> bool:
    """Tell whether an image may be dropped for a newer one at once: of the ladder, or one its lineage has left behind."""
    return isinstance(stored, StateImage) and (stored.is_rung or stored.is_superseded)
