"""What the forward pass promises beside the right numbers (those are in tests/e2e/test_parity_*.py)."""

import pytest
import torch

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.kernels.linear_calibration import has_half_kernel
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.random_model import random_model, tiny_config

LENGTHS = [10, 64, 100, 127, 200, 31, 77]
RUNS = [((4 * lane, 4),) for lane in range(len(LENGTHS))]


def prefilled_pool(model):
    kv = KvPool(model.kv_spec, 4 * len(LENGTHS))
    for lane, (length, runs) in enumerate(zip(LENGTHS, RUNS, strict=True)):
        token_ids = [(13 * i + lane) % 256 for i in range(length)]
        model.forward(ForwardBatch.of(token_ids, [Segment(0, length, 0, runs)]), kv)
    return kv


@pytest.mark.skipif(not has_half_kernel(), reason="this torch has no FBGEMM")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="measured with the AVX2 kernels"
)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_decode_step_has_the_same_bits_alone_and_in_any_batch(family):
    policy = LinearPolicy(many="half")
    model = random_model(tiny_config(family), 1, dtype=torch.bfloat16, policy=policy)
    kv = prefilled_pool(model)
    alone = [
        model.logits(model.forward(ForwardBatch.of([9], [Segment(0, 1, length, runs)]), kv))
        for length, runs in zip(LENGTHS, RUNS, strict=True)
    ]
    for num_lanes in range(1, len(LENGTHS) + 1):
        segments = [Segment(i, 1, LENGTHS[i], RUNS[i]) for i in range(num_lanes)]
        together = model.logits(model.forward(ForwardBatch.of([9] * num_lanes, segments), kv))
        assert torch.equal(together, torch.cat(alone[:num_lanes]))


def test_a_step_changes_only_the_slots_of_its_rows():
    model = random_model(tiny_config(), 1)
    kv = prefilled_pool(model)
    before = kv.kv.clone()
    segments = [Segment(0, 1, 64, RUNS[1]), Segment(1, 3, 31, RUNS[5])]
    model.forward(ForwardBatch.of([1, 2, 3, 4], segments), kv)
    changed = (kv.kv != before).flatten(3).any(-1).any(0).any(0).nonzero().flatten().tolist()
    assert changed == [4 * 64 + 64, 20 * 64 + 31, 20 * 64 + 32, 20 * 64 + 33]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_types_and_shapes_of_results(dtype):
    model = random_model(tiny_config(), 1, dtype=dtype)
    kv = KvPool(model.kv_spec, 1)
    assert kv.kv.dtype == model.dtype == dtype
    assert model.state_layout is None
    hidden = model.forward(ForwardBatch.of([1, 2], [Segment(0, 2, 0, ((0, 1),))]), kv)
    assert hidden.shape == (2, model.config.hidden_size)
    logits = model.logits(hidden)
    assert logits.shape == (2, model.config.vocab_size)
    assert logits.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_too_few_pages_are_refused_before_anything_is_written():
    model = random_model(tiny_config(), 1)
    kv = KvPool(model.kv_spec, 2)
    batch = ForwardBatch.of([1] * 70, [Segment(0, 70, 0, ((1, 1),))])
    with pytest.raises(ValueError, match="64 tokens, 70 are needed"):
        model.forward(batch, kv)
    assert not kv.kv.any()


@pytest.mark.parametrize(
    "segments",
    [
        [Segment(0, 1, 0, ((0, 1),))],
        [Segment(1, 2, 0, ((0, 1),))],
        [Segment(0, 2, 0, ((0, 1),)), Segment(2, 0, 0, ((1, 1),))],
    ],
)
def test_segments_must_cover_the_rows(segments):
    with pytest.raises(ValueError, match="segment"):
        ForwardBatch.of([1, 2], segments)


def test_equal_seeds_give_equal_models():
    def logits(seed):
        model = random_model(tiny_config(), seed)
        kv = KvPool(model.kv_spec, 1)
        batch = ForwardBatch.of([1, 2], [Segment(0, 2, 0, ((0, 1),))])
        return model.logits(model.forward(batch, kv))

    assert torch.equal(logits(4), logits(4))
    assert not torch.equal(logits(4), logits(5))
