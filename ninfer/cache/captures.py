"""Resume points taken while a request runs on: copies of a partial page and of the state. Optional work.

A capture becomes visible only after the step that makes its page copy; if the request ends first, it is dropped, for
the end is a resume point itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer.api import ImageKind
from ninfer.cache.identity import encode_tokens
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.node import DEVICE, PageNode
from ninfer.cache.publishing import Publisher
from ninfer.cache.store import ContextStore
from ninfer.core.step import PAGE_SIZE_TOKENS, PageCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    context: LaneContext
    parent: PageNode
    tokens: bytes
    copy: PageCopy
    slot: int | None


class Captures:
    """Captures of running requests.

    Args:
        store: the context store.
        publisher: makes them visible.
    """

    def __init__(self, store: ContextStore, publisher: Publisher) -> None:
        """Start with none."""
        self._store = store
        self._publisher = publisher
        self._pending: list[_Pending] = []

    def take_slot(self) -> int | None:
        """Return a state slot for a capture; gives up the least valuable image if it has a copy below."""
        if not self._store.has_state:
            return None
        slot = self._store.take_slot()
        if slot is not None:
            return slot
        order = self._store.values.order_of(ImageKind.STATE, DEVICE)
        entry = order.pop()
        if entry is None:
            return None
        if not entry[2].has_valid_below(DEVICE):
            order.put_back(entry)
            return None
        self._store.drop_replica(entry[2], DEVICE)
        return self._store.take_slot()

    def add(
        self,
        context: LaneContext,
        token_ids: Sequence[int],
        position_tokens: int,
        slot: int | None,
    ) -> None:
        """Capture a position whose full pages are published."""
        num_pages = position_tokens // PAGE_SIZE_TOKENS
        if len(context.path) < num_pages or context.tip.is_gone:
            self._give(slot)
            return
        parent = context.path[num_pages - 1] if num_pages else context.root
        rest = token_ids[num_pages * PAGE_SIZE_TOKENS : position_tokens]
        if not rest:
            self._publish_image(parent, slot)
            return
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
            _Pending(context=context, parent=parent, tokens=tokens, copy=copy, slot=slot)
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
                self._publish_image(node, pending.slot)

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

    def _publish_image(self, node: PageNode, slot: int | None) -> None:
        if slot is None:
            return
        if node.is_root or node.is_gone or self._store.publish_image(node, slot) is None:
            self._give(slot)

    def _give(self, slot: int | None) -> None:
        if slot is not None:
            self._store.give_slot(slot)
