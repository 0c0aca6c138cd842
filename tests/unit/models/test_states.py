"""State images are exact: however a context came about, its image is that of a cold run, and nobody else's changed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.kernels.linear_calibration import has_half_kernel
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.random_model import random_model, tiny_config

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
NUM_SLOTS = 16
PAGES_PER_LANE = 3
NUM_TOKENS = 160
EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def models():
    return {
        family: random_model(tiny_config(family), 3, dtype=torch.float64) for family in FAMILIES
    }


class Memory:
    """KV and states full of rubbish."""

    def __init__(self, model, num_lanes=4):
        generator = torch.Generator().manual_seed(1)
        self.model = model
        self.kv = KvPool(model.kv_spec, PAGES_PER_LANE * num_lanes)
        self.kv.kv.normal_(generator=generator)
        self.states = StatePool(model.state_layout, NUM_SLOTS)
        self.states.images.normal_(generator=generator)

    def run(self, *segments):
        token_ids = [id for segment, ids in segments for id in ids]
        batch = ForwardBatch.of(token_ids, [segment for segment, _ in segments])
        return self.model.forward(batch, self.kv, self.states)

    def prefill(self, lane, slot, token_ids):
        self.states.copy(None, slot)
        return self.run(rows_of(0, lane, slot, token_ids, 0, len(token_ids)))


def rows_of(row, lane, slot, token_ids, start, end, slots_after=()):
    runs = ((PAGES_PER_LANE * lane, PAGES_PER_LANE),)
    return Segment(row, end - start, start, runs, slot, tuple(slots_after)), token_ids[start:end]


def tokens(seed, num_tokens=NUM_TOKENS):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (num_tokens,), generator=generator).tolist()


def cold_image(model, token_ids):
    memory = Memory(model)
    memory.prefill(0, 5, token_ids)
    return memory.states.images[5].clone()


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(1, NUM_TOKENS - 1), max_size=8), seed=st.integers(0, 100))
def test_a_prompt_cut_anywhere_leaves_the_same_image(models, family, cuts, seed):
    memory, token_ids = Memory(models[family]), tokens(seed)
    memory.states.copy(None, 2)
    bounds = sorted({0, NUM_TOKENS, *cuts})
    for start, end in zip(bounds, bounds[1:], strict=False):
        memory.run(rows_of(0, 1, 2, token_ids, start, end))
    torch.testing.assert_close(
        memory.states.images[2], cold_image(models[family], token_ids), **EXACT
    )


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_state_after_every_row_is_that_of_a_cold_run(models, family, data):
    """Lanes with different numbers of guesses, plain decode and prefill together, slots in any order."""
    model = models[family]
    slots = data.draw(st.permutations(range(NUM_SLOTS)))
    num_lanes = data.draw(st.integers(1, 4))
    memory = Memory(model)
    segments, kept, row, used = [], [], 0, num_lanes
    for lane in range(num_lanes):
        token_ids = tokens(10 * lane + data.draw(st.integers(0, 9)))
        start = data.draw(st.sampled_from([0, 1, 2, 3, 63, 64, 100]))
        count = data.draw(st.sampled_from([1, 1, 2, 3, 4, 5, 50]))
        memory.states.copy(None, slots[lane])
        if start:
            memory.prefill(lane, slots[lane], token_ids[:start])
        after = []
        if count < 5 and used + count <= NUM_SLOTS and data.draw(st.booleans()):
            after = list(slots[used : used + count])
            used += count
            if data.draw(st.booleans()):
                after[-1] = slots[lane]
        segments.append(rows_of(row, lane, slots[lane], token_ids, start, start + count, after))
        row += count
        kept.append((slots[lane], token_ids[: start + count]))
        kept += [(slot, token_ids[: start + i + 1]) for i, slot in enumerate(after)]
    before = memory.states.images.clone()
    memory.run(*segments)
    changed = {slot for slot, _ in kept}
    for slot, token_ids in kept:
        image = memory.states.images[slot]
        torch.testing.assert_close(image, cold_image(model, token_ids), **EXACT)
    for slot in set(range(NUM_SLOTS)) - changed:
        assert torch.equal(memory.states.images[slot], before[slot])


@pytest.mark.parametrize("family", FAMILIES)
def test_going_on_from_a_kept_state_is_going_on_from_the_accepted_tokens(models, family):
    model, token_ids = models[family], tokens(3)
    memory = Memory(model)
    memory.prefill(0, 0, token_ids[:90])
    guesses = [*token_ids[90:92], 7, 7]
    memory.run(rows_of(0, 0, 0, [*token_ids[:90], *guesses], 90, 94, (4, 5, 6, 7)))
    memory.states.copy(5, 0)
    ours = memory.run(rows_of(0, 0, 0, token_ids, 92, 100))
    cold = Memory(model)
    expected = cold.prefill(0, 0, token_ids[:100])[92:]
    torch.testing.assert_close(ours, expected, **EXACT)


def test_the_last_hidden_state_is_the_result_for_the_last_row(models):
    memory = Memory(models["qwen3_5"])
    memory.prefill(0, 0, tokens(1)[:40])
    memory.prefill(1, 9, tokens(2)[:60])
    hidden = memory.run(
        rows_of(0, 0, 0, tokens(1), 40, 42, (1, 2)), rows_of(2, 1, 9, tokens(2), 60, 90)
    )
    for slot, row in ((0, 1), (1, 0), (2, 1), (9, 31)):
        assert torch.equal(memory.states.last_hidden[slot], hidden[row])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_slot": None}, "has no state slot"),
        ({"state_slot": NUM_SLOTS}, f"state slot {NUM_SLOTS} is not in a pool of {NUM_SLOTS}"),
        ({"state_slots_after": (-1, 3)}, "state slot -1 is not in a pool"),
        ({"state_slots_after": (1, 3)}, "state slot 1 is used twice"),
        ({"state_slots_after": (0, 3)}, "state slot 0 is used twice"),
        ({"state_slots_after": (3,)}, "one slot after each row"),
    ],
)
def test_wrong_slots_are_refused_before_anything_is_written(models, changes, message):
    memory = Memory(models["qwen3_5"])
    images, kv = memory.states.images.clone(), memory.kv.kv.clone()
    first, ids = rows_of(0, 0, 0, tokens(1), 0, 2)
    fields = {name: getattr(first, name) for name in Segment.__slots__}
    other = rows_of(2, 1, 1, tokens(2), 0, 70)
    with pytest.raises(ValueError, match=message):
        memory.run((Segment(**{**fields, **changes}), ids), other)
    assert torch.equal(memory.states.images, images)
    assert torch.equal(memory.kv.kv, kv)


def test_a_missing_or_foreign_pool_is_refused(models):
    model = models["qwen3_5"]
    foreign = StatePool(random_model(tiny_config("qwen3_5"), 3).state_layout, 4)
    segment, ids = rows_of(0, 0, 0, tokens(1), 0, 2)
    kv = KvPool(model.kv_spec, PAGES_PER_LANE)
    for states in (None, foreign):
        with pytest.raises(ValueError, match="needs a state pool of its layout"):
            model.forward(ForwardBatch.of(ids, [segment]), kv, states)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_types_and_sizes(family, dtype):
    model = random_model(tiny_config(family), 1, dtype=dtype)
    assert model.kv_spec.num_layers == 1
    assert model.kv_spec.dtype == dtype
    layout = model.state_layout
    assert layout.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (layout.num_layers, layout.num_heads, layout.window_rows) == (3, 4, 3)
    memory = Memory(model)
    logits = model.logits(memory.prefill(0, 0, tokens(1)[:70]))
    assert logits.dtype == layout.dtype
    assert logits.isfinite().all()


@pytest.mark.skipif(not has_half_kernel(), reason="this torch has no FBGEMM")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="measured with the AVX2 kernels"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_decode_step_has_the_same_bits_alone_and_in_any_batch(family):
    policy = LinearPolicy(many="half")
    model = random_model(tiny_config(family), 1, dtype=torch.bfloat16, policy=policy)
    memory = Memory(model, num_lanes=7)
    lengths = [10, 64, 100, 127, 150, 31, 77]
    for lane, length in enumerate(lengths):
        memory.prefill(lane, lane, tokens(lane, length))
    before = memory.states.images.clone()

    def decode(*lanes):
        memory.states.images.copy_(before)
        segments = [
            rows_of(row, lane, lane, [9] * 200, lengths[lane], lengths[lane] + 1)
            for row, lane in enumerate(lanes)
        ]
        logits = model.logits(memory.run(*segments))
        return logits, memory.states.images[list(lanes)]

    alone = [decode(lane) for lane in range(7)]
    for lanes in ((0, 1), (0, 1, 2, 3), (3, 0, 1, 6, 2), range(7)):
        logits, images = decode(*lanes)
        assert torch.equal(logits, torch.cat([alone[lane][0] for lane in lanes]))
        assert torch.equal(images, torch.cat([alone[lane][1] for lane in lanes]))
