"""Every form of the gated delta rule gives what going token by token gives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ninfer.kernels.causal_conv import CausalConv
from ninfer.kernels.choose_experts import choose_experts
from ninfer.kernels.delta_chunks import delta_chunks
from ninfer.kernels.delta_rows import delta_rows
from ninfer.kernels.delta_step import delta_step
from ninfer.kernels.gated_norm import GatedNorm
from ninfer.kernels.l2_norm import L2Norm
from ninfer.kernels.reference_delta_rule import reference_delta_rule
from ninfer.kernels.state_pool import StateLayout, StatePool

EXACT = {"rtol": 0, "atol": 1e-11}
SHAPES = {
    "key_heads": st.integers(1, 3),
    "group": st.integers(1, 3),
    "key_dim": st.integers(1, 9),
    "value_dim": st.integers(1, 9),
    "seed": st.integers(0, 10**6),
}


class Inputs:
    """Random rows of one lane, with decays from almost none to almost all."""

    def __init__(
        self, num_rows, *, key_heads, group, key_dim, value_dim, seed, dtype=torch.float64
    ):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        num_heads = key_heads * group
        self.state = normal(num_heads, key_dim, value_dim)
        heads = normal(num_rows, 2, key_heads, key_dim)
        self.heads = functional.normalize(heads, dim=-1)
        self.heads[:, 0] *= key_dim**-0.5
        self.values = normal(num_rows, num_heads, value_dim)
        self.log_decay = -torch.exp(2 * normal(num_rows, num_heads) - 2)
        self.beta = normal(num_rows, num_heads).sigmoid()

    def rows(self, bounds=slice(None)):
        more = {"log_decay": self.log_decay[bounds], "beta": self.beta[bounds]}
        return (self.heads[bounds], self.values[bounds]), more


@settings(max_examples=60, deadline=None)
@given(num_rows=st.one_of(st.integers(1, 10), st.integers(60, 200)), **SHAPES)
def test_chunks_equal_token_by_token(num_rows, **shape):
    inputs = Inputs(num_rows, **shape)
    args, more = inputs.rows()
    state = inputs.state.clone()
    expected = reference_delta_rule(state, *args, **more)
    chunked = inputs.state.clone()
    torch.testing.assert_close(delta_chunks(chunked, *args, **more), expected, **EXACT)
    torch.testing.assert_close(chunked, state, **EXACT)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, 299), max_size=6), **SHAPES)
def test_chunks_do_not_depend_on_where_a_prompt_is_cut(cuts, **shape):
    inputs = Inputs(300, **shape)
    whole, cut = inputs.state.clone(), inputs.state.clone()
    args, more = inputs.rows()
    expected = delta_chunks(whole, *args, **more)
    bounds = sorted({0, 300, *cuts})
    outputs = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        args, more = inputs.rows(slice(start, end))
        outputs.append(delta_chunks(cut, *args, **more))
    torch.testing.assert_close(torch.cat(outputs), expected, **EXACT)
    torch.testing.assert_close(cut, whole, **EXACT)


@settings(max_examples=60, deadline=None)
@given(slots=st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True), **SHAPES)
def test_steps_of_several_lanes_equal_each_alone(slots, **shape):
    lanes = [Inputs(1, **{**shape, "seed": shape["seed"] + lane}) for lane in range(len(slots))]
    # States are views of a pool wherever slots are evenly spaced.
    pool = torch.zeros(8, *lanes[0].state.shape, dtype=torch.float64)
    for slot, lane in zip(slots, lanes, strict=True):
        pool[slot] = lane.state
    states = pool[slots[0] : slots[0] + 1] if len(slots) == 1 else pool[slots]
    outputs = delta_step(
        states,
        torch.cat([lane.heads for lane in lanes]),
        torch.cat([lane.values for lane in lanes]),
        decay=torch.cat([lane.log_decay for lane in lanes]).exp(),
        beta=torch.cat([lane.beta for lane in lanes]),
    )
    for index, lane in enumerate(lanes):
        args, more = lane.rows()
        expected = reference_delta_rule(lane.state, *args, **more)[0]
        torch.testing.assert_close(outputs[index], expected, **EXACT)
        torch.testing.assert_close(states[index], lane.state, **EXACT)


@settings(max_examples=60, deadline=None)
@given(num_lanes=st.integers(1, 3), num_rows=st.integers(1, 6), is_view=st.booleans(), **SHAPES)
def test_rows_of_several_lanes_equal_token_by_token(num_lanes, num_rows, is_view, **shape):
    lanes = [
        Inputs(num_rows, **{**shape, "seed": shape["seed"] + lane}) for lane in range(num_lanes)
    ]
    pool = torch.stack([lane.state for lane in lanes for _ in range(2)])
    states = pool[::2] if is_view else pool[::2].clone()
    before = states.clone()
    outputs, after = delta_rows(
        states,
        torch.stack([lane.heads for lane in lanes]),
        torch.stack([lane.values for lane in lanes]),
        decay=torch.stack([lane.log_decay for lane in lanes]).exp(),
        beta=torch.stack([lane.beta for lane in lanes]),
    )
    assert torch.equal(states, before)
    for index, lane in enumerate(lanes):
        for row in range(num_rows):
            args, more = lane.rows(slice(row, row + 1))
            expected = reference_delta_rule(lane.state, *args, **more)[0]
            torch.testing.assert_close(outputs[index, row], expected, **EXACT)
            torch.testing.assert_close(after[row, index], lane.state, **EXACT)


@pytest.mark.parametrize(("num_lanes", "key_dim"), [(1, 32), (3, 32), (1, 128)])
def test_rows_have_the_bits_of_steps(num_lanes, key_dim):
    shape = {"key_heads": 2, "group": 2, "key_dim": key_dim, "value_dim": key_dim}
    lanes = [Inputs(4, **shape, seed=seed, dtype=torch.float32) for seed in range(num_lanes)]
    states = torch.stack([lane.state for lane in lanes])
    heads, values, decay, beta = (
        torch.stack([each(lane) for lane in lanes])
        for each in (
            lambda lane: lane.heads,
            lambda lane: lane.values,
            lambda lane: lane.log_decay.exp(),
            lambda lane: lane.beta,
        )
    )
    outputs, after = delta_rows(states, heads, values, decay=decay, beta=beta)
    for row in range(4):
        expected = delta_step(
            states, heads[:, row], values[:, row], decay=decay[:, row], beta=beta[:, row]
        )
        assert torch.equal(outputs[:, row], expected)
        assert torch.equal(after[row], states)


def test_float32_chunks_of_a_real_shape_stay_close_to_float64():
    shape = {"key_heads": 16, "group": 2, "key_dim": 128, "value_dim": 128, "seed": 3}
    exact, rounded = Inputs(512, **shape), Inputs(512, **shape, dtype=torch.float32)
    args, more = exact.rows()
    expected = delta_chunks(exact.state, *args, **more)
    args, more = rounded.rows()
    output = delta_chunks(rounded.state, *args, **more)
    assert output.dtype == torch.float32
    scale = expected.abs().max()
    torch.testing.assert_close(output.double() / scale, expected / scale, rtol=0, atol=2e-6)


def test_a_token_of_full_decay_and_no_share_changes_nothing_but_forgets():
    state = torch.ones(1, 1, 2, 2)
    heads, values = torch.ones(1, 2, 1, 2), torch.ones(1, 1, 2)
    zero = torch.zeros(1, 1)
    assert not delta_step(state, heads, values, decay=zero, beta=zero).any()
    assert not state.any()


@settings(max_examples=40, deadline=None)
@given(
    num_lanes=st.integers(1, 3),
    num_rows=st.integers(1, 9),
    width=st.integers(1, 6),
    window=st.integers(2, 5),
    seed=st.integers(0, 10**6),
)
def test_convolution_equals_the_operator_of_torch(num_lanes, num_rows, width, window, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(window, width, generator=generator, dtype=torch.float64)
    rows = torch.randn(
        num_lanes, window - 1 + num_rows, width, generator=generator, dtype=torch.float64
    )
    output, seen = CausalConv(weight)(rows[:, : window - 1], rows[:, window - 1 :])
    assert torch.equal(seen, rows)
    expected = functional.conv1d(rows.transpose(1, 2), weight.t().unsqueeze(1), groups=width)
    torch.testing.assert_close(output, functional.silu(expected).transpose(1, 2), **EXACT)


@settings(max_examples=30, deadline=None)
@given(num_rows=st.sampled_from([1, 2, 40]), width=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_norms_of_heads_equal_their_formulas(num_rows, width, seed):
    generator = torch.Generator().manual_seed(seed)
    heads = torch.randn(num_rows, 3, width, generator=generator, dtype=torch.float64)
    gate = torch.randn(num_rows, 3 * width, generator=generator, dtype=torch.float64)
    weight = torch.randn(width, generator=generator, dtype=torch.float64)
    scales = torch.tensor([[1.0], [0.5], [2.0]], dtype=torch.float64)
    inverse = torch.rsqrt(heads.pow(2).sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(L2Norm(scales)(heads), heads * inverse * scales, **EXACT)
    inverse = torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-5)
    expected = (heads * inverse * weight).flatten(1) * functional.silu(gate)
    torch.testing.assert_close(GatedNorm(weight, 1e-5)(heads.clone(), gate), expected, **EXACT)


def test_heads_of_zeros_stay_zeros():
    scales = torch.ones(2, 1)
    assert not L2Norm(scales)(torch.zeros(1, 2, 4)).any()


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, 5),
    num_experts=st.integers(1, 8),
    share=st.floats(0.01, 1.0),
    normalises=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_most_likely_experts_are_chosen(num_rows, num_experts, share, normalises, seed):
    num_chosen = max(1, math.floor(num_experts * share))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_rows, num_experts, generator=generator, dtype=torch.float64)
    weights, chosen = choose_experts(scores, num_chosen, normalises=normalises)
    for row in range(num_rows):
        likely = scores[row].softmax(0)
        best = sorted(range(num_experts), key=lambda expert, p=likely: -p[expert])[:num_chosen]
        assert chosen[row].tolist() == best
        expected = likely[best] / (likely[best].sum() if normalises else 1.0)
        torch.testing.assert_close(weights[row], expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_experts_have_the_type_of_the_scores(dtype):
    weights, _ = choose_experts(torch.randn(2, 4).to(dtype), 2, normalises=True)
    assert weights.dtype == dtype


def test_states_in_a_pool_are_updated_where_they_are():
    layout = StateLayout(
        num_layers=2,
        num_heads=2,
        key_dim=3,
        value_dim=4,
        window_rows=3,
        window_width=5,
        hidden_size=6,
        dtype=torch.float64,
    )
    pool = StatePool(layout, 5)
    inputs = Inputs(70, key_heads=1, group=2, key_dim=3, value_dim=4, seed=1)
    pool.recurrent(1)[3].copy_(inputs.state)
    before = pool.images.clone()
    args, more = inputs.rows()
    delta_chunks(pool.recurrent(1)[3], *args, **more)
    reference_delta_rule(inputs.state, *args, **more)
    torch.testing.assert_close(pool.recurrent(1)[3], inputs.state, **EXACT)
    pool.recurrent(1)[3].copy_(before[3, 24:48].view(2, 3, 4))
    assert torch.equal(pool.images, before)
