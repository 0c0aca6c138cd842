"""The radix tree of page nodes: finding, linking, unlinking. Knows nothing about bytes, tiers or values.

Children are kept sorted by their exact tokens and found by bisection, so equality is always on tokens, and the
longest common prefix among thousands of siblings is found at the neighbours of the insertion point.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import attrgetter

from ninfer.cache.identity import PAGE_TOKEN_BYTES, TOKEN_BYTES, common_prefix_tokens
from ninfer.cache.node import PageNode

_tokens = attrgetter("tokens")


class ContextTree:
    """All page nodes, one root per domain.

    Args:
        num_tiers: tiers including the device.
    """

    def __init__(self, num_tiers: int) -> None:
        """Start empty."""
        self._num_tiers = num_tiers
        self._roots: dict[bytes, PageNode] = {}
        self.on_link: Callable[[PageNode], None] | None = None
        """Told of each node that was linked."""
        self.on_unlink: Callable[[PageNode], None] | None = None
        """Told of each node that is about to be unlinked, with all below it."""

    def root(self, domain: bytes) -> PageNode:
        """Return the root of a domain, made if it is new."""
        return self._roots.setdefault(domain, self.peek_root(domain))

    def peek_root(self, domain: bytes) -> PageNode:
        """Return the root of a domain; a new one becomes part of the tree with its first page."""
        root = self._roots.get(domain)
        if root is None:
            root = PageNode(None, b"", num_tiers=self._num_tiers, now_s=0.0, use_index=0)
            root.domain = domain
        return root

    def walk(self, domain: bytes, encoded: bytes) -> list[PageNode]:
        """Return the full pages along `encoded`, shallow to deep, root excluded."""
        node = self._roots.get(domain)
        path: list[PageNode] = []
        start = 0
        while node is not None and len(encoded) - start >= PAGE_TOKEN_BYTES:
            node = find(node.children, encoded[start : start + PAGE_TOKEN_BYTES])
            if node is not None:
                path.append(node)
                start += PAGE_TOKEN_BYTES
        return path

    def longest_partial(self, parent: PageNode, rest: bytes) -> tuple[PageNode | None, int]:
        """Return the follower of `parent` that shares most leading tokens with `rest`, and how many."""
        best: PageNode | None = None
        best_tokens = 0
        for siblings in (parent.children, parent.tails):
            if not siblings:
                continue
            at = bisect_left(siblings, rest, key=_tokens)
            for neighbour in siblings[max(0, at - 1) : at + 1]:
                shared = common_prefix_tokens(neighbour.tokens, rest)
                if shared > best_tokens:
                    best, best_tokens = neighbour, shared
        return best, best_tokens

    def tails_within(self, parent: PageNode, rest: bytes) -> Iterator[PageNode]:
        """Yield tails of `parent` whose tokens are a prefix of `rest`, longest first."""
        if not parent.tails:
            return
        longest = min(len(rest), PAGE_TOKEN_BYTES - TOKEN_BYTES)
        for length in range(longest, 0, -TOKEN_BYTES):
            tail = find(parent.tails, rest[:length])
            if tail is not None:
                yield tail

    def dominated_tails(self, parent: PageNode, tokens: bytes) -> list[PageNode]:
        """Return tails of `parent` whose tokens are a proper prefix of `tokens`."""
        return list(self.tails_within(parent, tokens[:-TOKEN_BYTES]))

    def link(self, node: PageNode) -> None:
        """Insert a node below its parent."""
        parent = node.parent
        if parent is None:
            return
        if node.is_tail:
            siblings = parent.tails = parent.tails or []
        else:
            siblings = parent.children = parent.children or []
        siblings.insert(bisect_left(siblings, node.tokens, key=_tokens), node)
        if self.on_link is not None:
            self.on_link(node)

    def unlink(self, node: PageNode) -> None:
        """Remove a node from its parent; empty domains vanish."""
        parent = node.parent
        if parent is None:
            return
        if self.on_unlink is not None:
            self.on_unlink(node)
        siblings = (parent.tails if node.is_tail else parent.children) or []
        at = bisect_left(siblings, node.tokens, key=_tokens)
        del siblings[at]
        if not siblings:
            if node.is_tail:
                parent.tails = None
            else:
                parent.children = None
        if parent.is_root and not parent.has_followers():
            self._roots.pop(parent.domain, None)

    def nodes(self) -> Iterator[PageNode]:
        """Yield every node, parents first, roots excluded."""
        stack = [follower for root in self._roots.values() for follower in root.followers()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.followers())

    def subtree(self, node: PageNode) -> list[PageNode]:
        """Return a node and everything below it, parents first."""
        found = [node]
        for member in found:
            found.extend(member.followers())
        return found

    def find_child(self, parent: PageNode, tokens: bytes) -> PageNode | None:
        """Return the follower with exactly these tokens."""
        siblings = parent.children if len(tokens) == PAGE_TOKEN_BYTES else parent.tails
        return find(siblings, tokens)


def find(siblings: list[PageNode] | None, tokens: bytes) -> PageNode | None:
    """Return the sibling with exactly these tokens."""
    if not siblings:
        return None
    at = bisect_left(siblings, tokens, key=_tokens)
    if at < len(siblings) and siblings[at].tokens == tokens:
        return siblings[at]
    return None
