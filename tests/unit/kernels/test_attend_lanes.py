"""Attention in matrix tiles as an operation of a step: right numbers for all lanes, with the bits of each lane alone."""

import numpy as np
import pytest
import torch

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.segment import Segment
from tests.unit.kernels.short_team import short_team

pytest.importorskip("numba")
from ninfer.kernels.compiled import header
from ninfer.kernels.compiled.attend_tiles import PART_KEYS
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.lane_tables import LaneTables
from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.program import Program
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.compiled.tile_attention import TileAttention

if matrix_unit() is None:
    pytest.skip("no matrix tiles on this processor", allow_module_level=True)
TEAMS = [Team(1), Team.of_torch(3), short_team(5, 2)]
both_teams = pytest.mark.parametrize("team", TEAMS, ids=["one thread", "three", "two of five"])
SHAPES = [
    HeadShapes(9, 3, 64, 64),
    HeadShapes(16, 8, 128, 128),
    HeadShapes(2, 1, 32, 8),
    HeadShapes(32, 1, 32, 32),
    HeadShapes(5, 5, 96, 96),
]
LANES = {
    "first token": [(0, 1, 0)],
    "one lane": [(100, 1, 0)],
    "part borders": [(PART_KEYS - 1, 1, 0), (PART_KEYS, 1, 0), (2 * PART_KEYS - 2, 4, 0)],
    "several rows": [(126, 8, 0), (10, 2, 0), (63, 1, 0)],
    "many rows": [(PART_KEYS - 9, 32, 0), (500, 17, 3)],
    "late start": [(PART_KEYS + 300, 2, PART_KEYS + 130), (5, 1, 5), (200, 1, 1)],
}


def pool_and_segments(shapes, lanes):
    """Random KV, and rows whose pages are scattered."""
    segments, num_rows, num_pages = [], 0, 3
    for start, count, context_start in lanes:
        needed = (start + count) // PAGE_SIZE_TOKENS + 1
        runs = ((num_pages + needed, 1), (num_pages, needed - 1))
        runs = tuple(run for run in runs if run[1])
        segments.append(Segment(num_rows, count, start, runs, context_start=context_start))
        num_rows, num_pages = num_rows + count, num_pages + needed + 1
    pool = KvPool(KvLayout(2, shapes.num_kv_heads, shapes.head_dim, torch.bfloat16), num_pages)
    values = torch.randn(pool.kv.shape)
    is_used = torch.zeros(pool.num_slots, dtype=torch.bool)
    for segment in segments:
        for slot, count in segment.slot_ranges(segment.context_start, segment.position_end):
            is_used[slot : slot + count] = True
    values[:, :, ~is_used] = torch.nan
    pool.kv.copy_(values)
    return pool, segments, num_rows


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_row_has_the_same_bits_alone_and_as_one_of_several(shapes, compiler):
    torch.manual_seed(1)
    pool, (segment,), num_rows = pool_and_segments(shapes, [(PART_KEYS - 3, 7, 0)])
    kernel = TileAttention(compiler, Team(1))
    heads = torch.randn(num_rows, shapes.num_heads, shapes.head_dim).bfloat16()
    together = kernel.prepared(pool, segment, 0.1)(1, heads)
    for row in range(num_rows):
        start = segment.position_start + row
        alone = Segment(0, 1, start, segment.runs)
        assert torch.equal(
            kernel.prepared(pool, alone, 0.1)(1, heads[row : row + 1]), together[row : row + 1]
        )


@both_teams
@pytest.mark.parametrize("has_gates", [False, True])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_attention_of_several_lanes(shapes, lanes, has_gates, team, compiler):
    torch.manual_seed(0)
    pool, segments, num_rows = pool_and_segments(shapes, LANES[lanes])
    width = shapes.num_heads * shapes.head_dim
    scale = shapes.head_dim**-0.5
    tables = LaneTables(shapes, num_rows, num_threads=team.num_threads, scale=scale)
    gates = torch.randn(num_rows, width)
    y = torch.empty(team.num_threads, num_rows, width)
    program = Program(compiler, team)
    program.attend_tiles(1, tables.attended, y, gates=gates if has_gates else None)
    queries = torch.randn(num_rows, width).bfloat16()
    found = []
    for _ in range(2):
        # Twice: what was left behind does not matter.
        tables.queries.copy_(queries)
        contexts = Contexts(segments)
        lane_tables = tables.tables(contexts, pool)
        numbers = np.zeros(header.SIZE, np.int64)
        numbers[header.NUM_ROWS] = num_rows
        numbers[header.LANES] = lane_tables.ctypes.data
        numbers[header.NUM_LANES] = len(segments)
        program.run(numbers)
        found.append(y.clone())
    assert torch.equal(*found)
    assert all(torch.equal(own, y[0]) for own in y)

    heads = queries.view(num_rows, shapes.num_heads, shapes.head_dim)
    factor = gates.sigmoid() if has_gates else torch.ones(num_rows, width)
    kernel = TileAttention(compiler, Team(1))
    for segment in segments:
        rows = slice(segment.row_start, segment.row_start + segment.num_rows)
        alone = kernel.prepared(pool, segment, scale)(1, heads[rows]).float() * factor[rows]
        if has_gates:
            torch.testing.assert_close(y[0, rows], alone, rtol=1e-6, atol=1e-7)
        else:
            assert torch.equal(y[0, rows], alone)

    own_kv = torch.cat([
        pool.kv[1].transpose(0, 1)[slot : slot + count]
        for segment in segments
        for slot, count in segment.slot_ranges(segment.position_start, segment.position_end)
    ])
    plan = ReferenceAttention(pool, segments, num_heads=shapes.num_heads, scale=scale)
    expected = plan.attend(1, heads.float(), own_kv) * factor
    torch.testing.assert_close(y[0], expected, rtol=0.02, atol=0.02)
