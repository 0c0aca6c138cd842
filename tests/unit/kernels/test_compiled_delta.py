"""A compiled gated delta layer: right numbers, and the same bits wherever a prompt is cut and whatever runs beside it."""

from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional

from ninfer.kernels.causal_conv import CausalConv
from ninfer.kernels.gated_norm import GatedNorm
from ninfer.kernels.l2_norm import L2Norm
from ninfer.kernels.reference_delta_rule import reference_delta_rule
from ninfer.kernels.segment import Segment
from ninfer.kernels.state_pool import StateLayout, StatePool
from tests.unit.kernels.short_team import short_team

pytest.importorskip("numba")
from ninfer.kernels.compiled.delta_layer import DeltaLayer, DeltaTensors
from ninfer.kernels.compiled.state_table import StateTable
from ninfer.kernels.compiled.team import Team

NUM_SLOTS, LAYER, EPS = 9, 1, 1e-6
NAMES = ["one thread", "three threads", "two of five"]
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@dataclass(frozen=True)
class Shape:
    key_heads: int
    group: int
    key_dim: int
    value_dim: int
    window: int = 4

    @property
    def num_heads(self):
        return self.key_heads * self.group

    @property
    def conv_width(self):
        return 2 * self.key_heads * self.key_dim + self.num_heads * self.value_dim

    @property
    def width(self):
        return self.conv_width + self.num_heads * (self.value_dim + 2)


SHAPES = [Shape(2, 2, 8, 16), Shape(3, 1, 6, 40, window=3), Shape(1, 4, 32, 32, window=2)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Bench:
    """A layer with random weights, and states full of rubbish."""

    def __init__(self, shape, compiler, team=None):
        self.shape = shape
        self.tensors = DeltaTensors(
            conv=random(1, shape.window, shape.conv_width),
            decay_bias=random(2, shape.num_heads),
            decay_rate=-random(3, shape.num_heads).exp(),
            norm=random(4, shape.value_dim),
            eps=EPS,
        )
        self.layer = DeltaLayer(
            self.tensors,
            key_heads=shape.key_heads,
            key_dim=shape.key_dim,
            compiler=compiler,
            team=team or Team(1),
        )
        layout = StateLayout(
            num_layers=2,
            num_heads=shape.num_heads,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            window_rows=shape.window - 1,
            window_width=shape.conv_width,
            hidden_size=8,
            dtype=torch.float32,
        )
        self.states = StatePool(layout, NUM_SLOTS)
        self.states.images.copy_(random(5, *self.states.images.shape))

    def run(self, rows, *segments):
        return self.layer(rows, StateTable(segments), self.states, LAYER)

    def expected(self, rows, slot):
        """Compute one segment with plain operators; changes the states."""
        shape, tensors = self.shape, self.tensors
        mixed, gate, beta, decay = torch.split(
            rows,
            [shape.conv_width, shape.num_heads * shape.value_dim, *[shape.num_heads] * 2],
            dim=-1,
        )
        window = self.states.windows(LAYER)[slot : slot + 1]
        convolved, seen = CausalConv(tensors.conv)(window, mixed.unsqueeze(0))
        window.copy_(seen[:, len(rows) :])
        keys = 2 * shape.key_heads * shape.key_dim
        scales = torch.ones(2 * shape.key_heads, 1)
        scales[: shape.key_heads] = shape.key_dim**-0.5
        heads = L2Norm(scales)(convolved[0, :, :keys].unflatten(-1, (-1, shape.key_dim)))
        output = reference_delta_rule(
            self.states.recurrent(LAYER)[slot],
            heads.unflatten(1, (2, -1)),
            convolved[0, :, keys:].unflatten(-1, (-1, shape.value_dim)),
            log_decay=functional.softplus(decay + tensors.decay_bias) * tensors.decay_rate,
            beta=beta.sigmoid(),
        )
        return GatedNorm(tensors.norm, EPS)(output, gate)


def part(row, num_rows, slot, after=()):
    return Segment(row, num_rows, 0, (), slot, tuple(after))


@shapes
@pytest.mark.parametrize("team", [Team(1), Team.of_torch(3), short_team(5, 2)], ids=NAMES)
@pytest.mark.parametrize("num_rows", [1, 2, 70])
def test_rows_and_states_equal_those_of_plain_operators(shape, num_rows, team, compiler):
    bench, plain = Bench(shape, compiler, team), Bench(shape, compiler)
    rows = random(6, num_rows + 1, shape.width)
    found = bench.run(rows, part(0, num_rows, 3), part(num_rows, 1, 5))
    torch.testing.assert_close(found[:num_rows], plain.expected(rows[:num_rows], 3), **CLOSE)
    torch.testing.assert_close(found[num_rows:], plain.expected(rows[num_rows:], 5), **CLOSE)
    torch.testing.assert_close(bench.states.images, plain.states.images, **CLOSE)


@shapes
def test_a_prompt_cut_anywhere_has_the_same_bits(shape, compiler):
    whole, cut = Bench(shape, compiler), Bench(shape, compiler)
    rows = random(6, 40, shape.width)
    expected = whole.run(rows, part(0, 40, 2))
    found, start = [], 0
    for num_rows in (1, 2, 20, 3, 14):
        found.append(cut.run(rows[start : start + num_rows], part(0, num_rows, 2)))
        start += num_rows
    assert torch.equal(torch.cat(found), expected)
    assert torch.equal(cut.states.images, whole.states.images)


@shapes
def test_a_lane_has_the_same_bits_alone_and_beside_others(shape, compiler):
    alone, together = Bench(shape, compiler), Bench(shape, compiler)
    rows = random(6, 12, shape.width)
    parts = [part(0, 1, 4), part(1, 7, 0), part(8, 3, 6), part(11, 1, 1)]
    expected = [
        alone.run(rows[p.row_start : p.row_start + p.num_rows], part(0, p.num_rows, p.state_slot))
        for p in parts
    ]
    assert torch.equal(together.run(rows, *parts), torch.cat(expected))
    assert torch.equal(together.states.images, alone.states.images)


@shapes
@pytest.mark.parametrize("last", [2, 8], ids=["the lane's slot", "another slot"])
def test_slots_after_rows_have_the_states_of_single_steps(shape, last, compiler):
    bench, steps = Bench(shape, compiler), Bench(shape, compiler)
    rows = random(6, 5, shape.width)
    kept = (7, 1, 0, 5, last)
    found = bench.run(rows, part(0, 5, 2, kept))
    for number, slot in enumerate(kept):
        expected = steps.run(rows[number : number + 1], part(0, 1, 2))
        assert torch.equal(found[number : number + 1], expected)
        for pool in (bench.states.recurrent(LAYER), bench.states.windows(LAYER)):
            now = steps.states.recurrent(LAYER) if pool.dim() == 4 else steps.states.windows(LAYER)
            assert torch.equal(pool[slot], now[2])
    untouched = [3, 4, 6]
    assert torch.equal(bench.states.images[untouched], steps.states.images[untouched])
    assert torch.equal(bench.states.recurrent(0), steps.states.recurrent(0))
