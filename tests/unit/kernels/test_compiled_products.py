"""Compiled products against plain torch, and what they promise beside the right numbers."""

import pytest
import torch

from ninfer.kernels.compiled.opening import open_compiler
from ninfer.kernels.compiled.panels import Panels, reference_product
from ninfer.kernels.compiled.team import Team
from ninfer.kernels.weight import Grid4, Weight
from tests.unit.kernels.short_team import short_team

pytest.importorskip("numba")
from ninfer.kernels.compiled.panel_kernel import PanelKernel
from ninfer.kernels.compiled.program import Program, Shares

FORMATS = {"bf16": 3e-3, "int8": 1e-2, "int4": 1.1e-1}
SHAPES = [(960, 576), (40, 64), (16, 1536)]
TEAMS = [Team(1), Team.of_torch(3), short_team(3, 1), short_team(5, 2)]
NAMES = ["one thread", "three threads", "one of three", "two of five"]


def weight_of(shape, seed=0):
    return Weight(torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.05)


def rows_of(num_rows, width, seed=1):
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("panel_format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_panels_lose_what_their_format_loses(panel_format, shape):
    weight = weight_of(shape)
    error = (Panels.of(weight, panel_format).dense() - weight.dense).norm() / weight.dense.norm()
    assert error < FORMATS[panel_format]


def test_panels_on_a_4_bit_grid_of_float16_are_exact():
    grid = Grid4.nearest(weight_of((32, 96)).dense)
    grid = Grid4(grid.codes, grid.scale.half().float(), grid.minimum.half().float())
    exact = grid.codes.view(32, 3, 32) * grid.scale.unsqueeze(2) + grid.minimum.unsqueeze(2)
    weight = Weight(exact.flatten(1), grid)
    assert torch.equal(Panels.of(weight, "int4").dense(), weight.dense)


def test_4_bits_need_groups_of_inputs():
    assert Panels.of(weight_of((32, 48)), "int4").format == "int8"


@pytest.mark.parametrize("team", TEAMS, ids=NAMES)
@pytest.mark.parametrize("panel_format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_the_reference(panel_format, shape, team, compiler):
    panels = Panels.of(weight_of(shape), panel_format)
    x = rows_of(11, shape[1])
    bias = rows_of(1, panels.padded_outputs, seed=2)[0]
    expected = reference_product(x, panels) + bias[: shape[0]]
    y = torch.empty(11, panels.padded_outputs)
    put, added = Program(compiler, team), Program(compiler, team)
    put.product(x, panels, y, bias=bias)
    added.product(x, panels, y, bias=bias, adds=True)
    for num_rows in range(1, 12):
        y.fill_(7)
        put.run_rows(num_rows)
        found = y[:num_rows, : shape[0]]
        torch.testing.assert_close(found, expected[:num_rows], rtol=0, atol=2e-5)
        assert (y[num_rows:] == 7).all(), "rows that were not asked for"
        added.run_rows(num_rows)
        torch.testing.assert_close(found, 2 * expected[:num_rows], rtol=0, atol=4e-5)


@pytest.mark.parametrize("panel_format", FORMATS)
def test_a_row_has_the_same_bits_alone_and_beside_any_others(panel_format, compiler):
    weight = weight_of((96, 576))
    kernel = PanelKernel(weight, panel_format, compiler, max_rows=13)
    x = rows_of(13, 576)
    alone = torch.cat([kernel(row) for row in x.split(1)])
    for num_rows in range(1, 14):
        assert torch.equal(kernel(x[:num_rows]), alone[:num_rows]), num_rows
    with pytest.raises(IndexError):
        kernel(rows_of(14, 576))


@pytest.mark.parametrize("shares", [Shares(num_together=4), Shares(num_parts=2)])
def test_every_share_is_computed_once(shares, compiler):
    panels = Panels.of(weight_of((160, 64)), "bf16")
    x, y = rows_of(2, 64), torch.zeros(2, 160)
    program = Program(compiler, Team.of_torch(3))
    program.product(x, panels, y, adds=True, shares=shares)
    program.run_rows(2)
    torch.testing.assert_close(y, reference_product(x, panels), rtol=0, atol=2e-5)


def test_shapes_that_do_not_fit_are_refused(compiler):
    program = Program(compiler, Team(1))
    panels = Panels.of(weight_of((40, 64)), "bf16")
    with pytest.raises(ValueError, match="does not map"):
        program.product(rows_of(2, 64), panels, torch.empty(2, 40))
    with pytest.raises(ValueError, match="not 2 equal parts"):
        program.product(rows_of(2, 64), panels, torch.empty(2, 48), shares=Shares(num_parts=2))
    with pytest.raises(ValueError, match="float32"):
        program.product(rows_of(2, 64).double(), panels, torch.empty(2, 48))


def test_machine_code_is_kept_in_the_folder(tmp_path):
    first = open_compiler(tmp_path)
    assert first is not None
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert kept
    again = open_compiler(tmp_path)
    assert again is not None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept


def test_without_a_place_for_code_there_is_no_compiler(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    assert open_compiler(blocked / "code") is None
