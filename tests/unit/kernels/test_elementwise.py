"""Norm, rotation and gated activation against their formulas."""

import pytest
import torch
from torch.nn import functional

from ninfer.kernels.rms_norm import MAX_FEW_ROWS, RmsNorm
from ninfer.kernels.rope import interleave_heads, rotate_, rotations
from ninfer.kernels.silu_mul import silu_mul

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("num_rows", [1, 4, MAX_FEW_ROWS, MAX_FEW_ROWS + 1])
@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 300.0])
def test_rms_norm_equals_its_formula(num_rows, dtype, magnitude):
    torch.manual_seed(0)
    x = (torch.randn(num_rows, 576) * magnitude).to(dtype)
    weight = torch.randn(576).to(dtype)
    expected = functional.rms_norm(x.double(), (576,), weight.double(), 1e-5)
    actual = RmsNorm(weight, 1e-5)(x)
    assert actual.dtype == dtype
    torch.testing.assert_close(
        actual.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


def test_rms_norm_of_zero_is_zero():
    assert torch.equal(RmsNorm(torch.ones(8), 1e-6)(torch.zeros(2, 8)), torch.zeros(2, 8))


def test_rms_norm_in_place_works_on_strided_heads():
    torch.manual_seed(0)
    rows = torch.randn(50, 7, 16, dtype=torch.float64)
    before = rows.clone()
    weight = torch.randn(5, 16, dtype=torch.float64)
    RmsNorm(weight, 1e-6).in_place(rows[:, :5])
    expected = functional.rms_norm(before[:, :5], (16,), None, 1e-6) * weight
    torch.testing.assert_close(rows[:, :5], expected)
    assert torch.equal(rows[:, 5:], before[:, 5:])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_rotating_interleaved_heads_equals_rotating_halves(head_dim, dtype):
    torch.manual_seed(0)
    positions = torch.tensor([0, 1, 77, 8191])
    frequencies = 1.0 / 1e5 ** (torch.arange(0, head_dim, 2) / head_dim)
    heads = torch.randn(4, 3, head_dim).to(dtype)
    angles = (positions.float().unsqueeze(1) * frequencies).double().unsqueeze(1)
    first, second = heads.double().chunk(2, -1)
    expected = torch.cat(
        (
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ),
        -1,
    )
    order = interleave_heads(torch.arange(head_dim), head_dim)
    rows = heads[..., order].clone()
    rotate_(rows, rotations(positions, frequencies, dtype))
    tolerance = max(TOLERANCE[dtype], 1e-6)
    torch.testing.assert_close(rows.double(), expected[..., order], rtol=0, atol=tolerance)


def test_interleaving_pairs_the_halves_of_each_head():
    assert interleave_heads(torch.arange(8), 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    matrix = torch.arange(16).view(8, 2)
    assert interleave_heads(matrix, 8)[:, 0].tolist() == [0, 8, 2, 10, 4, 12, 6, 14]


@pytest.mark.parametrize("num_rows", [1, 5])
def test_silu_mul_equals_its_formula(num_rows):
    torch.manual_seed(0)
    gate_up = torch.randn(num_rows, 32, dtype=torch.float64)
    gate, up = gate_up.chunk(2, -1)
    expected = gate * torch.sigmoid(gate) * up
    actual = silu_mul(gate_up)
    torch.testing.assert_close(actual, expected)
    assert actual.is_contiguous()


def test_silu_mul_of_bf16_rounds_once():
    torch.manual_seed(0)
    gate_up = torch.randn(130, 32).bfloat16()
    gate, up = gate_up.float().chunk(2, -1)
    expected = (torch.nn.functional.silu(gate) * up).bfloat16()
    assert torch.equal(silu_mul(gate_up), expected)
