"""Compiled operations other than products, against plain torch."""

import math

import numpy as np
import pytest
import torch

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotate_, rotations
from ninfer.kernels.segment import Segment
from ninfer.kernels.silu_mul import silu_mul
from tests.unit.kernels.short_team import short_team

pytest.importorskip("numba")
import numba

from ninfer.kernels.compiled import header
from ninfer.kernels.compiled.contexts import Contexts
from ninfer.kernels.compiled.exponential import exponential
from ninfer.kernels.compiled.program import Program
from ninfer.kernels.compiled.shapes import HeadShapes
from ninfer.kernels.compiled.team import Team

TEAMS = [Team(1), Team.of_torch(3), short_team(3, 1), short_team(5, 2)]
NAMES = ["one thread", "three threads", "one of three", "two of five"]
both_teams = pytest.mark.parametrize("team", TEAMS, ids=NAMES)


def rows_of(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_exponential_is_exact_to_two_units_in_the_last_place():
    @numba.njit
    def of(values):
        return np.array([exponential(value) for value in values], np.float32)

    x = np.concatenate([np.linspace(-87, 88, 20001), [0.0, -0.0, 1e-30]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(of(x) - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()
    ends = of(np.array([-1e30, -math.inf, 1e30, math.nan], np.float32))
    assert (ends[:2] < 1e-37).all()
    assert ends[2] > 1e38
    assert math.isnan(ends[3])


@both_teams
@pytest.mark.parametrize("num_rows", [1, 5])
def test_norm(num_rows, team, compiler):
    x, weight, y = rows_of(num_rows, 48) * 3, rows_of(48), torch.empty(num_rows, 48)
    own = torch.empty(team.num_threads, num_rows, 48)
    program = Program(compiler, team)
    program.norm(x, weight, 1e-5, y)
    program.norm(x, weight, 1e-5, own)
    program.run_rows(num_rows)
    expected = RmsNorm(weight, 1e-5)(x)
    for found in (y, *own):
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


@both_teams
@pytest.mark.parametrize("num_rows", [1, 3])
def test_activation(num_rows, team, compiler):
    x, y = rows_of(num_rows, 160) * 20, torch.empty(num_rows, 80)
    program = Program(compiler, team)
    program.activation(x, y)
    program.run_rows(num_rows)
    torch.testing.assert_close(y, silu_mul(x), rtol=2e-6, atol=1e-30)


SHAPES = [HeadShapes(9, 3, 64, 64), HeadShapes(16, 8, 128, 128), HeadShapes(4, 4, 16, 8)]
LANES = {
    "first token": [(0, 1, 0)],
    "one part": [(100, 1, 0)],
    "borders": [(63, 1, 0), (64, 1, 0), (127, 1, 0), (128, 1, 0), (300, 1, 0)],
    "several rows": [(126, 5, 0), (10, 2, 0)],
    "late start": [(300, 2, 130), (5, 1, 5), (200, 1, 128)],
}


@both_teams
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_attention(shapes, lanes, has_norm, team, compiler):
    torch.manual_seed(0)
    segments, num_rows, num_pages = [], 0, 3
    for start, count, context_start in LANES[lanes]:
        needed = (start + count) // PAGE_SIZE_TOKENS + 1
        # the last page first: contexts are scattered
        runs = ((num_pages + needed, 1), (num_pages, needed - 1))
        runs = tuple(run for run in runs if run[1])
        segments.append(Segment(num_rows, count, start, runs, context_start=context_start))
        num_rows, num_pages = num_rows + count, num_pages + needed + 1
    layout = KvLayout(2, shapes.num_kv_heads, shapes.head_dim, torch.bfloat16)
    pool, expected_pool = KvPool(layout, num_pages), KvPool(layout, num_pages)
    pool.kv.copy_(torch.randn(pool.kv.shape))
    expected_pool.kv.copy_(pool.kv)
    num_rotated = shapes.num_heads + shapes.num_kv_heads
    rows = torch.randn(num_rows, num_rotated + shapes.num_kv_heads, shapes.head_dim)
    positions = torch.cat([torch.arange(s.position_start, s.position_end) for s in segments])
    frequencies = 0.5 ** torch.arange(shapes.rotated_dim // 2)
    rotation = rotations(positions, frequencies, torch.float32)
    weight = 1 + 0.1 * torch.randn(num_rotated, shapes.head_dim) if has_norm else None

    expected_rows = rows.clone()
    rotated = expected_rows[:, :num_rotated]
    if weight is not None:
        RmsNorm(weight, 1e-6).in_place(rotated)
    rotate_(rotated[..., : shapes.rotated_dim], rotation)
    keys_values = expected_rows[:, shapes.num_heads :].unflatten(1, (2, -1)).bfloat16()
    scale = shapes.head_dim**-0.5
    plan = ReferenceAttention(expected_pool, segments, num_heads=shapes.num_heads, scale=scale)
    expected = plan.attend(1, expected_rows[:, : shapes.num_heads], keys_values)

    flat, y = rows.flatten(1), torch.empty(team.num_threads, num_rows, expected.shape[1])
    program = Program(compiler, team)
    program.heads(flat, shapes, 1, norm=weight, eps=1e-6)
    program.attend(flat, shapes, 1, scale, y)
    contexts = Contexts(segments)
    numbers = np.zeros(header.SIZE, np.int64)
    partial = torch.empty(len(contexts.parts), shapes.num_heads, shapes.head_dim + 2)
    places = {
        header.NUM_ROWS: num_rows,
        header.KV: pool.kv.data_ptr(),
        header.NUM_SLOTS: pool.num_slots,
        header.ROTATION: rotation.data_ptr(),
        header.PAGES: contexts.pages.ctypes.data,
        header.ROWS: contexts.rows.ctypes.data,
        header.PARTS: contexts.parts.ctypes.data,
        header.NUM_PARTS: len(contexts.parts),
        header.PARTIAL: partial.data_ptr(),
    }
    numbers[list(places)] = list(places.values())
    program.run(numbers)
    torch.testing.assert_close(flat, expected_rows.flatten(1), rtol=0, atol=1e-5)
    is_different = pool.kv != expected_pool.kv
    assert is_different.float().mean() < 1e-3, "other roundings to bf16 are rare"
    torch.testing.assert_close(pool.kv.float(), expected_pool.kv.float(), rtol=1e-2, atol=1e-5)
    for found in y:
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
