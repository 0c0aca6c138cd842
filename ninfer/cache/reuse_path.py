"""Names the way a request resumed, for the request log. Changes nothing."""

from collections.abc import Sequence

from ninfer.cache.node import PageNode
from ninfer.cache.resume import ResumePoint
from ninfer.core.request import ReusePath


def classify(point: ResumePoint, path: Sequence[PageNode]) -> ReusePath:
    """Return the name of a resume point.

    Args:
        point: where the request resumes.
        path: full pages of its prompt that are stored.
    """
    if point.position_tokens == 0:
        return ReusePath.ROOT
    if point.image is not None and point.image.is_rung:
        return ReusePath.PRIVATE_LONG_ANCHOR
    last = point.partial or path[point.num_pages - 1]
    is_whole = point.partial is None or point.partial_tokens == last.num_tokens
    if is_whole and last.is_endpoint:
        return ReusePath.PRIVATE_ENDPOINT
    if last.parent is not None and len(last.parent.followers()) > 1 and not is_whole:
        return ReusePath.SHARED_STABLE_PREFIX
    if is_whole and len(last.followers()) > 1:
        return ReusePath.SHARED_STABLE_PREFIX
    return ReusePath.PRIVATE_TURN_CLOSURE
