"""Makes what lanes computed part of the tree, and takes back what they leave. Copies no bytes."""

from collections.abc import Sequence

from ninfer.cache.copies_down import CopiesDown
from ninfer.cache.identity import TOKEN_BYTES, encode_tokens
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.lineage import Lineage
from ninfer.cache.node import DEVICE, PageNode, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.core.step import PAGE_SIZE_TOKENS


class Publisher:
    """Publishes pages, tails and images of lanes.

    Args:
        store: the context store.
        copies_down: offered whatever a lane leaves behind.
    """

    def __init__(self, store: ContextStore, copies_down: CopiesDown) -> None:
        """Keep the store."""
        self._store = store
        self._copies_down = copies_down
        self._lineage = Lineage(store)

    def publish_full_pages(
        self, context: LaneContext, token_ids: Sequence[int], num_computed: int
    ) -> None:
        """Publish every page of a lane that is full and not published yet."""
        first = len(context.path)
        last = num_computed // PAGE_SIZE_TOKENS
        if first >= last or context.tip.is_gone:
            return
        start, end = first * PAGE_SIZE_TOKENS, last * PAGE_SIZE_TOKENS
        encoded = encode_tokens(token_ids[start:end])
        width = len(encoded) // (last - first)
        for at in range(last - first):
            tokens = encoded[at * width : (at + 1) * width]
            node = self._publish(context, tokens, context.pages[first + at])
            self._store.lease(node, DEVICE)
            context.path.append(node)

    def _publish(self, context: LaneContext, tokens: bytes, page: int) -> PageNode:
        parent = context.tip
        node, is_taken = self._store.publish_page(parent, tokens, page)
        if is_taken:
            context.owned.discard(page)
        if not self._store.has_state:
            self._replace_tails(node)
        return node

    def _replace_tails(self, node: PageNode) -> None:
        """Without state every position of a page is a resume point: shorter pages add nothing."""
        if node.parent is None:
            return
        for tail in self._store.tree.dominated_tails(node.parent, node.tokens):
            if not any(replica is not None and replica.leases for replica in tail.replicas):
                self._store.retentions.inherit(node, tail)
                self._store.forget(tail)

    def publish_end(
        self,
        context: LaneContext,
        token_ids: Sequence[int],
        num_computed: int,
        *,
        is_state_current: bool,
    ) -> None:
        """Publish what a lane computed to its very end: full pages, the partial page, the state.

        Changes: `end` of the context.
        """
        self.publish_full_pages(context, token_ids, num_computed)
        self._copies_down.offer([*context.path, *context.captured])
        if context.tip.is_gone or len(context.path) != num_computed // PAGE_SIZE_TOKENS:
            return
        has_image = context.state_slot is not None and is_state_current
        end: PageNode | None = context.tip
        rest = encode_tokens(token_ids[len(context.path) * PAGE_SIZE_TOKENS : num_computed])
        if rest and (has_image or not self._store.has_state):
            page = context.pages[len(context.path)]
            end = self.publish_partial(context.tip, rest, page)
            if end is not None and page not in self._store.private_pages:
                context.owned.discard(page)
        if end is None or end.is_root:
            return
        context.end = end
        end.is_endpoint = True
        if has_image and context.state_slot is not None:
            image = self._store.publish_image(end, context.state_slot)
            if image is not None:
                context.state_slot = None
                self._lineage.supersede(context, token_ids, image)
        left: list[StoredObject] = [end] if end is not context.tip else []
        if end.image is not None:
            left.append(end.image)
        self._copies_down.offer(left)

    def publish_partial(self, parent: PageNode, tokens: bytes, page: int) -> PageNode | None:
        """Publish a partial page; None if a stored page covers its tokens already.

        For models with state the partial page is needed where its state is, even beside a longer one.
        """
        if parent.is_root:
            parent = self._store.tree.peek_root(parent.domain)
        if not self._store.has_state:
            follower, shared = self._store.tree.longest_partial(parent, tokens)
            if follower is not None and shared == len(tokens) // TOKEN_BYTES:
                follower.is_endpoint = follower.is_endpoint or len(follower.tokens) == len(tokens)
                return None
        node, _ = self._store.publish_page(parent, tokens, page)
        if not self._store.has_state:
            self._replace_tails(node)
        return node

    def give_back(self, context: LaneContext) -> None:
        """Return leases, pages and the slot a lane still holds."""
        path, context.path = context.path, []
        for node in reversed(path):
            self._store.release(node, DEVICE)
        owned, context.owned = context.owned, set()
        self._store.give_pages(owned)
        if context.state_slot is not None:
            self._store.give_slot(context.state_slot)
            context.state_slot = None
