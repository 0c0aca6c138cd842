"""Belady's optimum for prefix blocks: what a cache could serve that knows the future. Independent of the store.

A request needs all its blocks at once and is served from the longest stored prefix. Giving up what is needed again
last is optimal for equal sizes; among equals the deepest goes first, and since whoever needs a block needs all before
it, no block is ever stored without its prefix.

Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5 (1966).
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from ninfer.simulate.trace import TraceRequest

_NEVER = 1 << 60


def belady_hits(requests: Sequence[TraceRequest], capacity: int) -> list[int]:
    """Return the prompt blocks of each request that a cache of `capacity` blocks can serve at best."""
    next_uses = _next_uses(requests)
    held: dict[int, int] = {}
    order: list[tuple[int, int, int]] = []
    hits = []
    for number, request in enumerate(requests):
        blocks = request.blocks
        num_hits = 0
        while num_hits < len(blocks) and blocks[num_hits] in held:
            num_hits += 1
        if len(blocks) > capacity:
            hits.append(0)
            continue
        hits.append(num_hits)
        needed = set(blocks)
        num_missing = sum(block not in held for block in needed)
        while len(held) + num_missing > capacity:
            next_use, _, block = heappop(order)
            if held.get(block) == -next_use and block not in needed:
                del held[block]
        for depth, block in enumerate(blocks):
            next_use = next_uses[number][depth]
            held[block] = next_use
            heappush(order, (-next_use, -depth, block))
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
