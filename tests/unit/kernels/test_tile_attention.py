"""Attention in matrix tiles against exact attention."""

import pytest
import torch

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.paged_attention import plan_attention
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.segment import Segment
from ninfer.models.attending import attending_segments
from tests.unit.kernels.short_team import short_team

pytest.importorskip("numba")
from ninfer.kernels.compiled import tile_attention
from ninfer.kernels.compiled.attend_tiles import BLOCK_KEYS, PART_KEYS, TILES_TOGETHER
from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.compiled.tile_attention import MAX_COLUMNS, TileAttention

pytestmark = pytest.mark.skipif(matrix_unit() is None, reason="the processor has no AVX512")

RUNS = ((8, 6), (0, 7), (15, 2), (7, 1), (17, 3))
NUM_ROWS = 32


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def filled_pool(num_kv_heads, head_dim, num_pages=20, factor=1.0):
    pool = KvPool(KvLayout(2, num_kv_heads, head_dim, torch.bfloat16), num_pages)
    pool.kv.copy_(random(1, *pool.kv.shape))
    pool.kv[:, 0] *= factor
    return pool


def attend(attention, pool, segment, queries, scale):
    return attention.prepared(pool, segment, scale)(1, queries)


def exact(pool, segment, queries, scale):
    wide = KvPool(
        KvLayout(2, pool.layout.num_kv_heads, pool.layout.head_dim, torch.float64), pool.num_pages
    )
    wide.kv.copy_(pool.kv)
    own = torch.cat([
        torch.arange(slot, slot + count)
        for slot, count in segment.slot_ranges(segment.position_start, segment.position_end)
    ])
    plan = ReferenceAttention(wide, [segment], num_heads=queries.shape[1], scale=scale)
    return plan.attend(1, queries.double(), wide.kv[1][:, own].transpose(0, 1))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "num_rows", "position", "context_start"),
    [
        (1, 1, 32, 1, 0, 0),
        (2, 1, 32, 1, 700, 1),
        (6, 2, 32, 11, 900, BLOCK_KEYS + 5),
        (1, 1, 32, NUM_ROWS, 0, 0),
        (2, 1, 32, 1000, 100, 1),
        (6, 3, 64, 150, 300, BLOCK_KEYS + 5),
        (3, 3, 96, 129, BLOCK_KEYS - 1, 0),
    ],
)
@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_heads_are_as_exact_as_bf16_allows(  # noqa: PLR0913
    num_heads,
    num_kv_heads,
    head_dim,
    num_rows,
    position,
    context_start,
    factor,
    num_threads,
    compiler,
):
    # With the large factor one key takes all, and the largest score grows by hundreds.
    pool = filled_pool(num_kv_heads, head_dim, factor=factor)
    queries = (3 * random(2, num_rows, num_heads, head_dim)).bfloat16()
    segment = Segment(0, num_rows, position, RUNS, context_start=context_start)
    attention = TileAttention(compiler, Team.of_torch(num_threads))
    assert attention.takes(pool.layout)
    found = attend(attention, pool, segment, queries, 0.2).double()
    expected = exact(pool, segment, queries, 0.2)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.025)
    assert float((found - expected).abs().mean()) < 0.002


def test_a_largest_score_that_comes_late_and_is_far_larger_is_followed(compiler):
    pool = filled_pool(1, 32)
    keys = pool.kv[1, 0, : 3 * BLOCK_KEYS, 0]
    keys.zero_()
    keys[BLOCK_KEYS + 7, 0] = 100
    keys[2 * BLOCK_KEYS + 3, 0] = 1000
    queries = torch.zeros(NUM_ROWS, 1, 32, dtype=torch.bfloat16)
    queries[: NUM_ROWS // 2, 0, 0] = 1  # the others see all keys alike
    segment = Segment(0, NUM_ROWS, 3 * BLOCK_KEYS - NUM_ROWS, ((0, 6),))
    found = attend(TileAttention(compiler), pool, segment, queries, 1.0)
    expected = exact(pool, segment, queries, 1.0)
    assert torch.equal(found[0], pool.kv[1, 1, 2 * BLOCK_KEYS + 3, 0])
    torch.testing.assert_close(found.double(), expected, rtol=0.005, atol=0.005)


def test_where_a_prompt_is_cut_and_where_its_pages_are_changes_no_bit(compiler):
    attention = TileAttention(compiler)
    num_rows = 16 * TILES_TOGETHER + 50
    pool = filled_pool(2, 32, num_pages=40, factor=20.0)
    queries = random(2, num_rows, 4, 32).bfloat16()
    runs = ((3, 30), (0, 3), (33, 5))
    whole = attend(attention, pool, Segment(0, num_rows, 100, runs), queries, 0.3)
    for start, end in ((0, 77), (77, 200), (200, num_rows)):
        part = Segment(0, end - start, 100 + start, runs)
        found = attend(attention, pool, part, queries[start:end], 0.3)
        assert torch.equal(found, whole[start:end])
    order = [page for first, count in runs for page in range(first, first + count)]
    moved = KvPool(pool.layout, 40)
    for at, page in enumerate(order):
        to = 39 - at
        moved.kv[:, :, 64 * to : 64 * to + 64] = pool.kv[:, :, 64 * page : 64 * page + 64]
    backwards = tuple((39 - at, 1) for at in range(len(order)))
    found = attend(attention, moved, Segment(0, num_rows, 100, backwards), queries, 0.3)
    assert torch.equal(found, whole)


@pytest.mark.parametrize("context_start", [0, 1])
def test_what_is_in_slots_that_nobody_looks_at_does_not_matter(context_start, compiler):
    pool = filled_pool(1, 32)
    queries = random(2, NUM_ROWS, 2, 32).bfloat16()
    segment = Segment(0, NUM_ROWS, 70, ((4, 2),), context_start=context_start)
    attention = TileAttention(compiler)
    expected = attend(attention, pool, segment, queries, 0.3)
    pool.kv[:, :, 4 * 64 + segment.position_end :] = torch.nan
    pool.kv[:, :, : 4 * 64 + context_start] = torch.nan
    assert torch.equal(attend(attention, pool, segment, queries, 0.3), expected)


def test_what_does_not_fit_tiles_is_left_alone(compiler):
    attention = TileAttention(compiler)
    assert attention.takes(KvLayout(1, 2, 32, torch.bfloat16))
    assert not attention.takes(KvLayout(1, 2, 32, torch.float32))
    assert not attention.takes(KvLayout(1, 2, 48, torch.bfloat16))


@pytest.mark.parametrize("context_start", [0, PART_KEYS + 70])
@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_a_row_has_the_same_bits_whatever_is_beside_it_and_whoever_computes(
    factor, context_start, compiler
):
    # The rows cross the border of two parts; all of them are more than keys are shared out for.
    num_heads, num_kv_heads = 6, 2
    num_rows = MAX_COLUMNS * num_kv_heads // num_heads + 30
    start = 2 * PART_KEYS - num_rows // 2
    pool = filled_pool(num_kv_heads, 32, num_pages=80, factor=factor)
    runs = ((40, 30), (0, 40))
    queries = (3 * random(2, num_rows, num_heads, 32)).bfloat16()

    def rows(first, end, team=None):
        segment = Segment(0, end - first, start + first, runs, context_start=context_start)
        kernel = TileAttention(compiler, team)
        return attend(kernel, pool, segment, queries[first:end], 0.2)

    whole = rows(0, num_rows)
    border = num_rows // 2
    for first, end in ((0, 1), (border - 3, border + 4), (border, border + 1), (9, num_rows - 20)):
        for team in (Team(1), Team.of_torch(3), short_team(3, 1)):
            assert torch.equal(rows(first, end, team), whole[first:end])
    segment = Segment(0, num_rows, start, runs, context_start=context_start)
    expected = exact(pool, segment, queries, 0.2)
    torch.testing.assert_close(whole.double(), expected, rtol=0, atol=0.025)


def test_many_parts_do_not_add_their_rounding_up(compiler):
    # All keys weigh the same, so the first part must not weigh less for all that came after it.
    num_parts = 200
    pool = KvPool(KvLayout(1, 1, 32, torch.bfloat16), num_parts * PART_KEYS // 64)
    pool.kv[0, 1, :PART_KEYS] = 1
    segment = Segment(0, 1, num_parts * PART_KEYS - 1, ((0, pool.num_pages),))
    queries = random(2, 1, 1, 32).bfloat16()
    found = TileAttention(compiler).prepared(pool, segment, 0.2)(0, queries)
    torch.testing.assert_close(found.float() * num_parts, torch.ones(1, 32), rtol=0.005, atol=0)


def test_segments_of_a_step_equal_those_of_the_flash_kernel(compiler):
    queries = random(2, 191, 4, 32).bfloat16()
    own = random(3, 191, 2, 2, 32).bfloat16()
    segments = [Segment(0, 130, 12 * 64, RUNS), Segment(130, 1, 3, ((18, 1),))]
    segments.append(Segment(131, 60, 20, ((14, 1), (19, 1))))
    results = []
    for kernel in (TileAttention(compiler), None):
        pool = filled_pool(2, 32)
        parts = attending_segments(segments, pool.layout, kernel)
        plan = plan_attention(pool, parts, num_heads=4, scale=0.3, kernel=kernel)
        results.append((plan.attend(1, queries, own), pool.kv))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0.02, atol=0.02)
    assert torch.equal(results[0][1], results[1][1])


def test_tiles_of_other_users_are_as_they_were(compiler):
    x = random(1, 64, 64).bfloat16()
    expected = x @ x
    queries = random(2, NUM_ROWS, 1, 32).bfloat16()
    attend(TileAttention(compiler), filled_pool(1, 32), Segment(0, NUM_ROWS, 0, RUNS), queries, 1.0)
    assert torch.equal(x @ x, expected)


def test_tiles_do_not_lie_across_cache_lines(compiler):
    """They would be right, and take twice as long."""
    kernel = TileAttention(compiler)
    queries = torch.randn(600, 2, 32).bfloat16()
    for num_rows in (600, 2):
        segment = Segment(0, num_rows, 0, ((0, 10),))
        kernel.prepared(filled_pool(1, 32), segment, 1.0)(0, queries[:num_rows])
    assert kernel._scratch.data_ptr() % 64 == 0
    assert kernel._partial.data_ptr() % 64 == 0
    assert len(kernel._scratch) > 0 < len(kernel._partial)


def test_room_for_parts_is_bounded_and_changes_no_bit(compiler, monkeypatch):
    pool = filled_pool(2, 32, num_pages=80)
    queries = random(1, 40, 6, 32).bfloat16()
    segment = Segment(0, 40, 3 * 64 * 20, ((40, 30), (0, 40)))
    kernel = TileAttention(compiler)
    few = attend(kernel, pool, segment, queries, 0.2)
    assert len(kernel._partial) > 0
    monkeypatch.setattr(tile_attention, "MAX_PARTIAL_BYTES", 1000)
    kernel = TileAttention(compiler)
    assert torch.equal(attend(kernel, pool, segment, queries, 0.2), few)
    assert len(kernel._partial) == 0
