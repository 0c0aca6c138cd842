"""The CPU plan against the torch reference, over shapes of real models and scattered pages."""

import itertools
import random

import pytest
import torch

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels import paged_attention
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.paged_attention import MAX_VIEWED_RANGES, CpuAttention, plan_attention
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.segment import Segment

SHAPES = {
    "smollm2": (9, 3, 64),
    "qwen3": (16, 8, 128),
    "single": (4, 4, 8),
    "pair": (2, 1, 16),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}


def scattered_runs(rng, free_pages, num_tokens, max_run):
    """Take pages in short ascending runs from a shuffled pool."""
    needed = -(-num_tokens // PAGE_SIZE_TOKENS)
    runs = []
    while needed:
        start = rng.choice(sorted(free_pages))
        length = 1
        while length < min(max_run, needed) and start + length in free_pages:
            length += 1
        free_pages.difference_update(range(start, start + length))
        runs.append((start, length))
        needed -= length
    return tuple(runs)


def make_case(shape, dtype, lanes, *, max_run=3, seed=0):
    """Random pool, segments and rows. `lanes` holds (position_start, num_rows)."""
    num_heads, num_kv_heads, head_dim = SHAPES[shape]
    generator = torch.Generator().manual_seed(seed)
    rng = random.Random(seed)
    num_pages = 4 + sum((start + count) // PAGE_SIZE_TOKENS + 1 for start, count in lanes)
    pool = KvPool(KvLayout(2, num_kv_heads, head_dim, dtype), num_pages)
    pool.kv.copy_(torch.randn(pool.kv.shape, generator=generator, dtype=torch.float32))
    free_pages = set(range(num_pages))
    segments, row = [], 0
    for start, count in lanes:
        runs = scattered_runs(rng, free_pages, start + count, max_run)
        segments.append(Segment(row, count, start, runs))
        row += count
    queries = torch.randn(row, num_heads, head_dim, generator=generator).to(dtype)
    keys_values = torch.randn(row, 2, num_kv_heads, head_dim, generator=generator).to(dtype)
    return pool, segments, queries, keys_values


def run(plan_class, case, layer=1):
    pool, segments, queries, keys_values = case
    copy = KvPool(pool.layout, pool.num_pages)
    copy.kv.copy_(pool.kv)
    plan = plan_class(copy, segments, num_heads=queries.shape[1], scale=queries.shape[2] ** -0.5)
    return plan.attend(layer, queries, keys_values), copy


LANES = {
    "one decode": [(100, 1)],
    "first token": [(0, 1)],
    "decodes": [(0, 1), (63, 1), (64, 1), (300, 1)],
    "one chunk": [(0, 130)],
    "later chunk": [(257, 65)],
    "mixed": [(100, 1), (0, 70), (64, 64), (400, 1), (130, 3)],
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_the_reference(shape, lanes, dtype):
    case = make_case(shape, dtype, LANES[lanes])
    ours, our_pool = run(CpuAttention, case)
    expected, expected_pool = run(ReferenceAttention, case)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE[dtype])
    assert torch.equal(our_pool.kv, expected_pool.kv)


@pytest.mark.parametrize("lanes", [[(900, 1)], [(900, 40), (300, 1)]])
def test_many_fragments_are_gathered_without_changing_the_result(lanes):
    case = make_case("smollm2", torch.float64, lanes, max_run=1)
    assert len(case[1][0].runs) > 2 * MAX_VIEWED_RANGES
    ours, _ = run(CpuAttention, case)
    expected, _ = run(ReferenceAttention, case)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_split_prefill_equals_unsplit_prefill():
    pool, (segment,), queries, keys_values = make_case("smollm2", torch.float64, [(0, 300)])
    whole, _ = run(CpuAttention, (pool, [segment], queries, keys_values))
    scale = queries.shape[2] ** -0.5
    for seed in range(5):
        rng = random.Random(seed)
        bounds = [0, *sorted(rng.sample(range(1, 300), 5)), 300]
        rows = []
        for start, end in itertools.pairwise(bounds):
            part = Segment(0, end - start, start, segment.runs)
            plan = plan_attention(pool, [part], num_heads=9, scale=scale)
            rows.append(plan.attend(0, queries[start:end], keys_values[start:end]))
        torch.testing.assert_close(torch.cat(rows), whole, rtol=0, atol=1e-12)


def test_a_decode_does_not_copy_its_context():
    """A poisoned page outside the lane stays unread, and the context is viewed where it is."""
    pool, (segment,), queries, keys_values = make_case("smollm2", torch.float32, [(200, 1)])
    segment = Segment(0, 1, 200, ((2, 4),))
    pool.kv[:, :, : 2 * PAGE_SIZE_TOKENS] = float("nan")
    pool.kv[:, :, 2 * PAGE_SIZE_TOKENS + 201 :] = float("nan")
    case = pool, [segment], queries, keys_values
    ours, _ = run(CpuAttention, case)
    assert ours.isfinite().all()


def test_slot_ranges_join_adjacent_runs_and_clip():
    segment = Segment(0, 1, 200, ((5, 1), (6, 2), (1, 1)))
    assert list(segment.slot_ranges(0, 201)) == [(320, 192), (64, 9)]
    assert list(segment.slot_ranges(10, 70)) == [(330, 60)]
    assert list(segment.slot_ranges(192, 193)) == [(64, 1)]
    assert list(segment.slot_ranges(5, 5)) == []


def test_runs_that_are_too_short_are_refused():
    segment = Segment(0, 1, 128, ((5, 1), (9, 1)))
    with pytest.raises(ValueError, match="128 tokens, 129 are needed"):
        list(segment.slot_ranges(0, 129))


@pytest.mark.parametrize("num_rows", [1, 16])
@pytest.mark.parametrize("num_threads", [2, 3])
def test_few_rows_over_a_long_range_are_shared_out_among_threads(
    num_rows, num_threads, monkeypatch
):
    parts = []

    def watched(queries, *arguments, **more):
        parts.append(queries.shape[0])
        return flash(queries, *arguments, **more)

    flash = paged_attention._flash
    before = torch.get_num_threads()
    pool, (segment,), *rows = make_case("pair", torch.float64, [(60_011, num_rows)])
    in_one_run = Segment(0, num_rows, segment.position_start, ((1, pool.num_pages - 1),))
    case = (pool, [in_one_run], *rows)
    try:
        torch.set_num_threads(num_threads)
        monkeypatch.setattr(paged_attention, "_flash", watched)
        ours, _ = run(CpuAttention, case)
    finally:
        torch.set_num_threads(before)
    expected, _ = run(ReferenceAttention, case)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    assert max(parts) == num_threads
