"""Fragmentation of the arena with the mix of lengths that a hybrid model makes."""

import random

import numpy as np
import pytest
from ninfer_storage_host.arena import Arena, round_up


class PlainAllocator:
    def allocate_host(self, num_bytes):
        return memoryview(np.zeros(num_bytes, np.uint8))


PAGE = 18 * 256
STATE = 61 * 256 + 100


@pytest.mark.parametrize("seed", range(5))
def test_pages_alone_never_waste_a_slot(seed):
    rng = random.Random(seed)
    arena = Arena(PlainAllocator(), 200 * PAGE, slot_bytes=PAGE)
    taken = []
    for _ in range(5000):
        if taken and rng.random() < 0.45:
            arena.give(taken.pop(rng.randrange(len(taken))))
        else:
            extent = arena.take(PAGE)
            assert (extent is None) == (len(taken) == 200)
            if extent:
                taken.append(extent)
    assert arena.check(taken) == []


def run_contexts(seed, *, order):
    """Store contexts (pages, two states, a partial page) and evict until each fits; return the mean fill."""
    rng = random.Random(seed)
    capacity = 600 * PAGE
    arena = Arena(PlainAllocator(), capacity, slot_bytes=PAGE)
    taken = []
    fills = []
    for step in range(1500):
        lengths = [PAGE] * rng.randrange(1, 30) + [STATE, rng.randrange(1, 64) * 72, STATE][
            : rng.randrange(4)
        ]
        for num_bytes in lengths:
            while (extent := arena.take(num_bytes)) is None:
                arena.give(taken.pop(0 if order == "oldest" else rng.randrange(len(taken))))
            taken.append(extent)
        if step > 100:
            fills.append(1 - arena.free_bytes / capacity)
    assert arena.check(taken) == []
    return sum(fills) / len(fills)


@pytest.mark.parametrize("seed", range(3))
def test_fragmentation_costs_little_when_contexts_are_evicted_oldest_first(seed):
    assert run_contexts(seed, order="oldest") > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_fragmentation_stays_bounded_when_images_are_evicted_at_random(seed):
    assert run_contexts(seed, order="random") > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_pieces_fill_the_arena_to_the_last_granule(seed):
    rng = random.Random(seed)
    arena = Arena(PlainAllocator(), 100 * PAGE, slot_bytes=PAGE)
    taken = []
    for _ in range(2000):
        if taken and rng.random() < 0.45:
            arena.give_pieces(taken.pop(rng.randrange(len(taken))))
            continue
        num_bytes = rng.choice([PAGE, STATE, rng.randrange(1, STATE)])
        fits = round_up(num_bytes) <= arena.free_bytes
        extents = arena.take_pieces(num_bytes)
        assert (extents is not None) == fits
        if extents:
            assert sum(extent.length for extent in extents) == round_up(num_bytes)
            assert sum(map(len, arena.views(extents, num_bytes))) == num_bytes
            taken.append(extents)
    assert arena.check([extent for extents in taken for extent in extents]) == []


def test_a_refused_state_fits_after_evicting_a_bounded_number_of_pages():
    arena = Arena(PlainAllocator(), 100 * PAGE, slot_bytes=PAGE)
    pages = [arena.take(PAGE) for _ in range(100)]
    for page in pages[::2]:
        arena.give(page)
    assert arena.take(STATE) is None
    in_pieces = arena.take_pieces(STATE)
    assert len(in_pieces) == 4, "as few as there can be"
    arena.give_pieces(in_pieces)
    kept = pages[1::2]
    num_evicted = 0
    while (extent := arena.take(STATE)) is None:
        arena.give(kept.pop())
        num_evicted += 1
    assert num_evicted <= 3
    assert arena.check([extent, *kept]) == []
