"""Belady's optimum for prefix blocks: what a cache could serve that knows the future. Independent of the store.

A request is served from the longest stored prefix of its blocks, and between requests a cache holds at most its
capacity. Dropping what is needed again last is then optimal, new blocks included, since sizes are equal. Among equals
the deepest goes first, and whoever needs a block needs all before it, so no block is ever held without its prefix.

Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (1966).
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from ninfer.simulate.trace import TraceRequest

_NEVER = 1 << 60


def belady_hits(requests: Sequence[TraceRequest], capacity: int) -> list[int]:
    """Return the prompt blocks of each request that a cache of `capacity` blocks serves at best.

    No cache serves more of the trace: one that stores only a part of what a request brings, as a prompt longer than
    the cache demands, is among those that this bounds.
    """
    next_uses = _next_uses(requests)
    held: dict[int, int] = {}
    order: list[tuple[int, int, int]] = []
    hits = []
    for number, request in enumerate(requests):
        num_hits = 0
        for depth, block in enumerate(request.blocks):
            num_hits += held.pop(block, _NEVER) != _NEVER
            next_use = next_uses[number][depth]
            if next_use != _NEVER:
                held[block] = next_use
                heappush(order, (-next_use, -depth, block))
        hits.append(num_hits)
        while len(held) > capacity:
            next_use, _, block = heappop(order)
            if held.get(block) == -next_use:
                del held[block]
    return hits


def _next_uses(requests: Sequence[TraceRequest]) -> list[list[int]]:
    """Return for each block of each request the number of the next request with that block."""
    following: dict[int, int] = {}
    found: list[list[int]] = []
    for number in range(len(requests) - 1, -1, -1):
        blocks = requests[number].blocks
        found.append([following.get(block, _NEVER) for block in blocks])
        for block in blocks:
            following[block] = number
    found.reverse()
    return found
