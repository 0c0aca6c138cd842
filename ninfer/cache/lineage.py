"""The state images along one conversation's path: which stay fresh, which a newer one replaces. Moves nothing.

A conversation leaves images wherever it ended and where its prompts were captured. Of those on the path of its newest
end, later requests need the newest and the anchors (borders that a client or template marks, rungs of the ladder, the
end of a shared head); the others are superseded: the first to go when room is needed, and whole again with a use.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ninfer.cache.identity import encode_tokens
from ninfer.cache.lane_context import LaneContext
from ninfer.cache.node import StateImage, StoredObject
from ninfer.cache.store import ContextStore
from ninfer.core.step import PAGE_SIZE_TOKENS

_OWN_USES: Final = 2
"""Uses of an image that only its own lineage continued: it was made, and grown from once."""


class Lineage:
    """Looks after the images along paths.

    Args:
        store: the context store.
    """

    def __init__(self, store: ContextStore) -> None:
        """Keep the store."""
        self._store = store

    def refresh(self, context: LaneContext, token_ids: Sequence[int]) -> None:
        """Count a request that starts as recent use of the anchors before its resume point.

        It did not resume from them, but it needs them as much as its own end: if its history changes, it resumes there.
        """
        found: list[StoredObject] = []
        for position in context.anchors:
            if position < context.resume_tokens:
                image = self._image_at(context, token_ids, position)
                if image is not None:
                    found += [image.node, image]
        if found:
            self._store.touch(found, is_use=False)

    def _image_at(
        self, context: LaneContext, token_ids: Sequence[int], position: int
    ) -> StateImage | None:
        num_pages = position // PAGE_SIZE_TOKENS
        if position <= 0 or num_pages > len(context.path):
            return None
        node = context.path[num_pages - 1] if num_pages else context.root
        rest = token_ids[num_pages * PAGE_SIZE_TOKENS : position]
        if not rest:
            return node.image
        tail = self._store.tree.find_child(node, encode_tokens(rest))
        return tail.image if tail is not None else None

    def supersede(self, context: LaneContext, token_ids: Sequence[int], newest: StateImage) -> None:
        """Mark what a request's end replaces.

        Args:
            context: a request that ends; its path is published.
            token_ids: its tokens.
            newest: the image at its end.
        """
        for image in self._images_along(context, token_ids):
            position = image.node.end_tokens
            is_own = position > context.resume_tokens
            if image is newest or is_own or image.is_superseded or position in context.anchors:
                continue
            if image.num_uses <= _OWN_USES and len(image.node.followers()) <= 1:
                self._store.supersede(image)

    def _images_along(self, context: LaneContext, token_ids: Sequence[int]) -> Iterator[StateImage]:
        """Yield the images on a context's published path, at page borders and inside pages."""
        for depth, node in enumerate((context.root, *context.path)):
            if node.image is not None:
                yield node.image
            if node.tails:
                start = depth * PAGE_SIZE_TOKENS
                rest = encode_tokens(token_ids[start : start + PAGE_SIZE_TOKENS])
                for tail in self._store.tree.tails_within(node, rest):
                    if tail.image is not None:
                        yield tail.image
