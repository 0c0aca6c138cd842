"""Compiled steps of whole models: right numbers, and the same bits whatever runs beside a lane."""

from dataclasses import replace

import pytest
import torch

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.compiling import can_compile
from ninfer.models.random_model import random_model, tiny_config

pytest.importorskip("numba")
LENGTHS = [10, 64, 100, 127, 200, 31, 77]
RUNS = [((4 * lane, 4),) for lane in range(len(LENGTHS))]
MAX_ROWS = 4
BIASED = replace(tiny_config(), attention_bias=True, hidden_size=40, vocab_size=250)
CONFIGS = {
    "llama": tiny_config(),
    "qwen3": tiny_config("qwen3"),
    "biased": BIASED,
    "tiles": replace(tiny_config("qwen3"), head_dim=32, num_heads=6),
}
both_attentions = pytest.mark.parametrize("name", ["llama", "tiles"])


def compiled_model(compiler, name="llama", form="bf16"):
    policy = LinearPolicy(many="upcast", compiled=form, max_compiled_rows=MAX_ROWS)
    return random_model(CONFIGS[name], 1, dtype=torch.bfloat16, policy=policy, compiler=compiler)


def prefilled_pool(model):
    kv = KvPool(model.kv_spec, 4 * len(LENGTHS))
    for lane, (length, runs) in enumerate(zip(LENGTHS, RUNS, strict=True)):
        token_ids = [(13 * i + lane) % 250 for i in range(length)]
        model.forward(ForwardBatch.of(token_ids, [Segment(0, length, 0, runs)]), kv)
    return kv


def logits(model, kv, token_ids, segments):
    return model.logits(model.forward(ForwardBatch.of(token_ids, segments), kv))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_compiled_step_equals_the_same_in_torch(name, compiler):
    model = compiled_model(compiler, name)
    torch_policy = LinearPolicy(many="upcast")
    reference = random_model(CONFIGS[name], 1, dtype=torch.bfloat16, policy=torch_policy)
    pools = [prefilled_pool(which) for which in (model, reference)]
    # Prompts go through other norms and rotations in each.
    torch.testing.assert_close(pools[0].kv, pools[1].kv, rtol=0.02, atol=0.05)
    pools[1].kv.copy_(pools[0].kv)
    segments, row = [], 0
    for lane, num_rows in enumerate([1, 3, 1, 2, 4, 1, 1]):
        segments.append(Segment(row, num_rows, LENGTHS[lane], RUNS[lane]))
        row += num_rows
    token_ids = [(7 * i) % 250 for i in range(row)]
    found, expected = (
        logits(which, kv, token_ids, segments)
        for which, kv in zip((model, reference), pools, strict=True)
    )
    assert found.shape == expected.shape == (row, CONFIGS[name].vocab_size)
    # Row by row, queries are not rounded to bf16 in a compiled step.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05 * float(expected.std()))
    torch.testing.assert_close(pools[0].kv, pools[1].kv, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("name", ["qwen3", "tiles"])
@pytest.mark.parametrize("form", ["bf16", "int8", "int4"])
def test_a_lane_has_the_same_bits_alone_and_in_any_batch(form, name, compiler):
    model = compiled_model(compiler, name, form)
    kv = prefilled_pool(model)
    alone = [
        logits(model, kv, [9], [Segment(0, 1, length, runs)])
        for length, runs in zip(LENGTHS, RUNS, strict=True)
    ]
    for num_lanes in range(1, len(LENGTHS) + 1):
        segments = [Segment(i, 1, LENGTHS[i], RUNS[i]) for i in range(num_lanes)]
        together = logits(model, kv, [9] * num_lanes, segments)
        assert torch.equal(together, torch.cat(alone[:num_lanes]))


@both_attentions
def test_a_lane_has_the_same_bits_beside_a_prompt(name, compiler):
    model = compiled_model(compiler, name)
    kv = prefilled_pool(model)
    alone = logits(model, kv, [9], [Segment(0, 1, LENGTHS[2], RUNS[2])])
    prompt = logits(model, kv, [3] * 20, [Segment(0, 20, 0, RUNS[0])])
    mixed = [Segment(0, 20, 0, RUNS[0]), Segment(20, 1, LENGTHS[2], RUNS[2])]
    together = logits(model, kv, [3] * 20 + [9], mixed)
    assert torch.equal(together[20:], alone)
    assert torch.equal(together[:20], prompt)


@both_attentions
def test_guesses_are_verified_with_the_bits_of_single_tokens(name, compiler):
    model = compiled_model(compiler, name)
    kv = prefilled_pool(model)
    token_ids = [5, 6, 7, 8]
    single = torch.cat([
        logits(model, kv, [token], [Segment(0, 1, LENGTHS[3] + i, RUNS[3])])
        for i, token in enumerate(token_ids)
    ])
    assert torch.equal(logits(model, kv, token_ids, [Segment(0, 4, LENGTHS[3], RUNS[3])]), single)


def test_too_few_pages_are_refused_before_anything_is_written(compiler):
    model = compiled_model(compiler)
    kv = KvPool(model.kv_spec, 2)
    with pytest.raises(ValueError, match="64 tokens, 65 are needed"):
        model.forward(ForwardBatch.of([1], [Segment(0, 1, 64, ((1, 1),))]), kv)
    short = [Segment(0, 20, 0, ((0, 1),)), Segment(20, 1, 64, ((1, 1),))]
    with pytest.raises(ValueError, match="64 tokens, 65 are needed"):
        model.forward(ForwardBatch.of([1] * 21, short), kv)
    long = [Segment(0, 70, 0, ((0, 1),)), Segment(70, 1, 0, ((1, 1),))]
    with pytest.raises(ValueError, match="64 tokens, 70 are needed"):
        model.forward(ForwardBatch.of([1] * 71, long), kv)
    assert not kv.kv.any()


@both_attentions
def test_a_step_changes_only_the_slots_of_its_rows(name, compiler):
    model = compiled_model(compiler, name)
    kv = prefilled_pool(model)
    before = kv.kv.clone()
    logits(model, kv, [1, 2, 3, 4], [Segment(0, 1, 64, RUNS[1]), Segment(1, 3, 31, RUNS[5])])
    changed = (kv.kv != before).flatten(3).any(-1).any(0).any(0).nonzero().flatten().tolist()
    assert changed == [4 * 64 + 64, 20 * 64 + 31, 20 * 64 + 32, 20 * 64 + 33]


def test_which_models_can_be_compiled():
    assert can_compile(tiny_config(), torch.bfloat16)
    assert not can_compile(tiny_config(), torch.float32)
    assert not can_compile(tiny_config("qwen3_5"), torch.bfloat16)
    assert not can_compile(replace(tiny_config(), head_dim=12), torch.bfloat16)


@pytest.mark.parametrize(
    ("shapes", "has_tiles"),
    [((9, 3, 64), True), ((4, 2, 64), False), ((2, 1, 32), True), ((6, 1, 48), False)],
)
def test_matrix_tiles_are_for_heads_that_share_keys(shapes, has_tiles, compiler):
    from ninfer.kernels.compiled.matrix_unit import matrix_unit
    from ninfer.kernels.compiled.team import Team
    from ninfer.models.layer_program import LayerProgram

    num_heads, num_kv_heads, head_dim = shapes
    config = replace(
        tiny_config(), num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim
    )
    expected = has_tiles and matrix_unit() is not None
    assert LayerProgram(config, compiler, Team(1), 4).has_tiles == expected
