"""Where a prompt can resume: proves matches on exact tokens. Changes nothing, decides nothing."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ninfer.api import Match
from ninfer.cache.identity import PAGE_TOKEN_BYTES, TOKEN_BYTES
from ninfer.cache.node import DEVICE, PageNode, StateImage, StoredObject
from ninfer.cache.tree import ContextTree
from ninfer.core.step import PAGE_SIZE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A complete resume point of one prompt.

    Attributes:
        position_tokens: F; tokens computed before it.
        num_pages: full pages of the path that cover it.
        partial: page whose first tokens complete it, None at a page border.
        partial_tokens: how many of them (0..63).
        image: the state there; None for models without state.
        slowest_tier: slowest of the fastest replicas, 0 if all is on the device.
    """

    position_tokens: int
    num_pages: int
    partial: PageNode | None = None
    partial_tokens: int = 0
    image: StateImage | None = None
    slowest_tier: int = DEVICE

    def as_match(self) -> Match:
        """Return the point as matchers see it."""
        return Match(
            position_tokens=self.position_tokens,
            copied_tokens=self.partial_tokens,
            is_device_ready=self.slowest_tier == DEVICE,
            tier_index=self.slowest_tier,
        )


ROOT = ResumePoint(position_tokens=0, num_pages=0)


class Prefix:
    """The stored part of a prompt's path. At least one token is left to compute.

    Args:
        tree: where contexts are.
        root: start of the request's namespace.
        encoded: the prompt, encoded.
        has_state: the model needs a state image at a resume point.
        stalled: tiers that do not answer; what only they hold counts as missing.
    """

    def __init__(
        self,
        tree: ContextTree,
        root: PageNode,
        encoded: bytes,
        *,
        has_state: bool,
        stalled: Collection[int] = (),
    ) -> None:
        """Walk the tree once: cost grows with the number of matching pages."""
        self._tree = tree
        self._root = root
        self._has_state = has_state
        self._stalled = stalled
        self._usable = encoded[:-TOKEN_BYTES]
        self.path = self._complete(tree.walk(root.domain, self._usable))
        self.num_device_pages = self._count_device_pages()
        self._slowest = self._slowest_tiers()
        self._points: list[ResumePoint] | None = None

    def _complete(self, path: list[PageNode]) -> list[PageNode]:
        """Cut a path where a page cannot be read."""
        for depth, node in enumerate(path):
            if node.fastest_tier(self._stalled) is None:
                return path[:depth]
        return path

    def _count_device_pages(self) -> int:
        for depth, node in enumerate(self.path):
            if node.valid_on(DEVICE) is None:
                return depth
        return len(self.path)

    def _slowest_tiers(self) -> list[int]:
        """Return for each depth the slowest tier to read; index 0 is the root."""
        slowest = [DEVICE] * (self.num_device_pages + 1)
        for node in self.path[self.num_device_pages :]:
            slowest.append(max(slowest[-1], node.fastest_tier(self._stalled) or DEVICE))
        return slowest

    def is_in_flight(self, num_pages: int) -> bool:
        """Tell whether some of the first pages are just being restored for somebody else."""
        found = (node.replicas[DEVICE] for node in self.path[self.num_device_pages : num_pages])
        return any(replica is not None and not replica.is_valid for replica in found)

    def deepest(self) -> ResumePoint:
        """Return the deepest complete resume point, `ROOT` if there is none."""
        points = self._points_at(len(self.path))
        if points:
            return points[-1]
        for depth in range(len(self.path) - 1, -1, -1):
            points = self._points_at(depth)
            if points:
                return points[-1]
        return ROOT

    def resume_points(self) -> list[ResumePoint]:
        """Return every complete resume point, shallow to deep, root excluded. Made once."""
        if self._points is None:
            depths = range(len(self.path) + 1)
            self._points = [point for depth in depths for point in self._points_at(depth)]
        return self._points

    def matches(self) -> Sequence[Match]:
        """Return the resume points as matchers see them."""
        return [point.as_match() for point in self.resume_points()]

    def _points_at(self, depth: int) -> list[ResumePoint]:
        """Return the resume points at the end of `depth` pages and inside the page after it."""
        parent = self.path[depth - 1] if depth else self._root
        if self._has_state:
            return self._stateful_points(depth, parent)
        points = [self._point(depth)] if depth else []
        if depth == len(self.path):
            follower, tokens = self._tree.longest_partial(parent, self._rest(depth))
            if follower is not None and follower.fastest_tier(self._stalled) is not None:
                points.append(self._point(depth, partial=follower, partial_tokens=tokens))
        return points

    def _stateful_points(self, depth: int, parent: PageNode) -> list[ResumePoint]:
        if parent.image is None and parent.tails is None:
            return []
        points = []
        if depth and self._is_complete(parent.image):
            points.append(self._point(depth, image=parent.image))
        tails = [
            tail
            for tail in self._tree.tails_within(parent, self._rest(depth))
            if tail.fastest_tier(self._stalled) is not None and self._is_complete(tail.image)
        ]
        points += [
            self._point(depth, partial=tail, partial_tokens=tail.num_tokens, image=tail.image)
            for tail in reversed(tails)
        ]
        return points

    def _rest(self, depth: int) -> bytes:
        start = depth * PAGE_TOKEN_BYTES
        return self._usable[start : start + PAGE_TOKEN_BYTES]

    def _point(
        self,
        depth: int,
        *,
        partial: PageNode | None = None,
        partial_tokens: int = 0,
        image: StateImage | None = None,
    ) -> ResumePoint:
        slowest = self._slowest[depth]
        for extra in (partial, image):
            if extra is not None:
                slowest = max(slowest, extra.fastest_tier(self._stalled) or DEVICE)
        return ResumePoint(
            position_tokens=depth * PAGE_SIZE_TOKENS + partial_tokens,
            num_pages=depth,
            partial=partial,
            partial_tokens=partial_tokens,
            image=image,
            slowest_tier=slowest,
        )

    def _is_complete(self, stored: StoredObject | None) -> bool:
        return stored is not None and stored.fastest_tier(self._stalled) is not None
