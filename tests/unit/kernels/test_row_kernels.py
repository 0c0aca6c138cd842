"""Compiled operators on many rows, against torch in float64 and against themselves on fewer rows."""

import pytest
import torch

from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.rope import rotate_, rotations
from ninfer.kernels.silu_mul import silu_mul

pytest.importorskip("numba")

from ninfer.kernels.compiled.row_call import LEAST_SHARED
from ninfer.kernels.compiled.row_kernels import RowKernels
from ninfer.kernels.compiled.team import Team

HALF_STEP = 2**-8
"""Half the distance of two bf16, relative to the smaller."""
EPS = 1e-5
MANY = LEAST_SHARED // 48 + 3
"""Rows of 48 elements that several threads share."""


@pytest.fixture(params=[Team(1), Team.of_torch(3)], ids=["one thread", "three threads"])
def rows(request, compiler):
    return RowKernels(compiler, request.param)


def random(*shape, seed=1, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def normalised(x, weight):
    exact = x.double()
    return exact / (exact.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("num_rows", [1, MANY])
@pytest.mark.parametrize("width", [48, 75])
@pytest.mark.parametrize("added_dtype", [None, torch.bfloat16, torch.float32])
def test_norm_adds_and_normalises(num_rows, width, added_dtype, rows):
    x, weight = random(num_rows, width) * 3, random(width, seed=2)
    added = None if added_dtype is None else random(num_rows, width, seed=3, dtype=added_dtype)
    expected_x = x if added is None else x + added.float()
    expected = normalised(expected_x, weight)
    found_x = x.clone()
    exact = rows.norm(found_x, added, weight, eps=EPS, dtype=torch.float32)
    assert torch.equal(found_x, expected_x)
    torch.testing.assert_close(exact.double(), expected, rtol=2e-6, atol=1e-30)
    rounded = rows.norm(expected_x.clone(), None, weight, eps=EPS, dtype=torch.bfloat16)
    assert torch.equal(rounded, exact.to(torch.bfloat16)), "rounded once, to the nearest"


def test_a_norm_gives_the_type_it_is_told_for_so_many_rows(rows):
    def dtype_of(num_rows):
        return torch.bfloat16 if num_rows > 2 else torch.float32

    weight = random(48, seed=2)
    norm = RmsNorm(weight, EPS, rows=rows, dtype_of=dtype_of)
    assert norm(random(3, 48)).dtype == torch.bfloat16
    assert norm(random(2, 48)).dtype == torch.float32
    assert RmsNorm(weight, EPS, rows=rows)(random(3, 48)).dtype == torch.float32


@pytest.mark.parametrize("num_rows", [1, MANY])
@pytest.mark.parametrize("width", [48, 75])
def test_silu_mul_rounds_once(num_rows, width, rows):
    gate_up = random(num_rows, 2 * width, dtype=torch.bfloat16) * 20
    gate, up = gate_up.double().chunk(2, dim=-1)
    expected = gate * torch.sigmoid(gate) * up
    found = rows.silu_mul(gate_up)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=1.001 * HALF_STEP, atol=1e-30)


def test_silu_mul_of_float32_is_torchs(rows):
    gate_up = random(5, 32)
    assert torch.equal(rows.silu_mul(gate_up), silu_mul(gate_up))


@pytest.mark.parametrize("num_rows", [1, MANY])
@pytest.mark.parametrize(("head_dim", "rotated_dim"), [(16, 16), (32, 8), (64, 64)])
@pytest.mark.parametrize("is_normed", [False, True])
def test_heads_are_normalised_and_rotated_where_they_are(
    num_rows, head_dim, rotated_dim, is_normed, rows
):
    everything = random(num_rows, 5, head_dim, dtype=torch.bfloat16)
    before = everything.clone()
    weight = random(3, head_dim, seed=2) if is_normed else None
    frequencies = torch.rand(rotated_dim // 2, generator=torch.Generator().manual_seed(4))
    rotation = rotations(torch.arange(num_rows) + 7, frequencies, torch.float32)
    expected = before[:, :3].double()
    if weight is not None:
        expected = normalised(expected, weight)
    rotate_(expected[..., :rotated_dim], rotation.to(torch.complex128))
    rows.rotate_(everything[:, :3], rotation, weight, eps=EPS)
    torch.testing.assert_close(
        everything[:, :3].double(), expected, rtol=1.001 * HALF_STEP, atol=2e-6
    )
    assert torch.equal(everything[:, 3:], before[:, 3:]), "heads that are not rotated stay"


def test_a_row_has_the_same_bits_among_many_and_alone(rows):
    x, added, weight = random(MANY, 48), random(MANY, 48, seed=3), random(48, seed=2)
    gate_up = random(MANY, 96, dtype=torch.bfloat16)
    heads, rotation = (
        random(MANY, 3, 16, dtype=torch.bfloat16),
        rotations(torch.arange(MANY), torch.rand(8), torch.float32),
    )
    some = slice(100, 101)
    alone = (
        rows.norm(x[some].clone(), added[some], weight, eps=EPS, dtype=torch.bfloat16),
        rows.silu_mul(gate_up[some]),
        heads[some].clone(),
    )
    rows.rotate_(alone[2], rotation[some], None, eps=EPS)
    among = (
        rows.norm(x, added, weight, eps=EPS, dtype=torch.bfloat16),
        rows.silu_mul(gate_up),
        heads,
    )
    rows.rotate_(heads, rotation, None, eps=EPS)
    for few, many in zip(alone, among, strict=True):
        assert torch.equal(few, many[some])
