"""Short segments attend row by row: the same result, in the bits of plain steps."""

import pytest
import torch

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.paged_attention import plan_attention
from ninfer.kernels.segment import Segment
from ninfer.models.attending import (
    MAX_ROWS,
    MAX_SINGLE_BYTES,
    MAX_SINGLE_ROWS,
    attending_segments,
    rows_together,
)

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
RUNS = ((5, 1), (2, 2))


def layout_of(dtype):
    return KvLayout(1, KV_HEADS, HEAD_DIM, dtype)


def attend(segments, dtype, num_rows, num_pages=6):
    generator = torch.Generator().manual_seed(1)
    pool = KvPool(layout_of(dtype), num_pages)
    pool.kv.normal_(generator=generator)
    queries = torch.randn(num_rows, HEADS, HEAD_DIM, generator=generator).to(dtype)
    own = torch.randn(num_rows, 2, KV_HEADS, HEAD_DIM, generator=generator).to(dtype)
    plan = plan_attention(pool, segments, num_heads=HEADS, scale=0.5)
    return plan.attend(0, queries, own), pool.kv


@pytest.mark.parametrize("context_start", [0, 1])
@pytest.mark.parametrize("num_rows", [1, 2, MAX_SINGLE_ROWS])
def test_split_rows_give_what_the_segment_gives(num_rows, context_start):
    whole = [Segment(0, num_rows, 126, RUNS, context_start=context_start)]
    split = attending_segments(whole, layout_of(torch.float64))
    assert len(split) == num_rows
    expected, kv = attend(whole, torch.float64, num_rows)
    found, found_kv = attend(split, torch.float64, num_rows)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(found_kv, kv)


def test_rows_have_the_bits_of_plain_steps():
    split = attending_segments([Segment(0, 3, 100, RUNS)], layout_of(torch.bfloat16))
    together, _ = attend(split, torch.bfloat16, 3)
    generator = torch.Generator().manual_seed(1)
    pool = KvPool(layout_of(torch.bfloat16), 6)
    pool.kv.normal_(generator=generator)
    queries = torch.randn(3, HEADS, HEAD_DIM, generator=generator).to(torch.bfloat16)
    own = torch.randn(3, 2, KV_HEADS, HEAD_DIM, generator=generator).to(torch.bfloat16)
    for row in range(3):
        plan = plan_attention(pool, [Segment(0, 1, 100 + row, RUNS)], num_heads=HEADS, scale=0.5)
        alone = plan.attend(0, queries[row : row + 1], own[row : row + 1])
        assert torch.equal(together[row], alone[0])


def test_long_segments_and_long_contexts_stay_whole():
    layout = layout_of(torch.float32)
    most = MAX_SINGLE_BYTES // layout.token_bytes
    long = Segment(0, MAX_SINGLE_ROWS + 1, 0, ((0, 9),))
    far = Segment(5, 2, most - 1, ((0, 99),))
    near = Segment(7, 2, most - 2, ((0, 99),))
    found = attending_segments([long, far, near], layout)
    assert found[:2] == (long, far)
    assert [(s.row_start, s.num_rows, s.position_start) for s in found[2:]] == [
        (7, 1, most - 2),
        (8, 1, most - 1),
    ]


def test_very_long_segments_are_cut_at_multiples_of_positions():
    segment = Segment(3, 2 * MAX_ROWS, 100, ((0, 99),), context_start=1)
    parts = attending_segments([segment], layout_of(torch.float32))
    bounds = [(part.position_start, part.position_end) for part in parts]
    assert bounds == [(100, MAX_ROWS), (MAX_ROWS, 2 * MAX_ROWS), (2 * MAX_ROWS, 100 + 2 * MAX_ROWS)]
    assert [part.row_start for part in parts] == [3, 3 + MAX_ROWS - 100, 3 + 2 * MAX_ROWS - 100]


@pytest.mark.parametrize(
    ("num_kv_heads", "head_dim", "rows"),
    [(1, 32, 512), (1, 128, 256), (3, 64, 128), (8, 128, 128)],
)
def test_where_tokens_have_more_keys_fewer_rows_attend_together(num_kv_heads, head_dim, rows):
    layout = KvLayout(1, num_kv_heads, head_dim, torch.bfloat16)
    assert rows_together(layout) == rows
    parts = attending_segments([Segment(0, 1024, 0, ((0, 99),))], layout)
    assert [part.num_rows for part in parts] == [rows] * (1024 // rows)


def test_parts_of_a_long_segment_give_what_the_whole_gives():
    num_rows = MAX_ROWS + 40
    runs = ((0, 10),)
    whole = [Segment(0, num_rows, 7, runs)]
    split = attending_segments(whole, layout_of(torch.float64))
    assert len(split) > 1
    expected, kv = attend(whole, torch.float64, num_rows, num_pages=10)
    found, found_kv = attend(split, torch.float64, num_rows, num_pages=10)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(found_kv, kv)
