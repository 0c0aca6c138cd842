"""Small random hybrid checkpoints in float64: the same logits as `transformers`, however the work is cut up."""

import random

import pytest
import torch

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from tests.e2e.hybrid_reference import MODELS, VOCAB_SIZE, make_exact, write_reference

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = 1e-9
NUM_TOKENS = 300


@pytest.fixture(scope="module", params=sorted(MODELS))
def pair(request, tmp_path_factory):
    """A reference model in float64 and ours, loaded from the files that the reference wrote."""
    folder = tmp_path_factory.mktemp("model")
    reference = write_reference(request.param, folder)
    model = load_model(resolve_model(str(folder)), dtype=torch.float64)
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_exact(monkeypatch)
        yield reference, model


@pytest.fixture(scope="module")
def one_thread():
    """Tiny tensors on several threads of a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Memory:
    """KV and states full of rubbish, so that a stale read shows."""

    def __init__(self, model, *, num_pages=12, num_slots=8):
        generator = torch.Generator().manual_seed(1)
        self.model = model
        self.kv = KvPool(model.kv_spec, num_pages)
        self.kv.kv.normal_(generator=generator)
        self.states = StatePool(model.state_layout, num_slots)
        self.states.images.normal_(generator=generator)

    def forward(self, token_ids, segments):
        hidden = self.model.forward(ForwardBatch.of(token_ids, segments), self.kv, self.states)
        return self.model.logits(hidden)

    def prefill(self, token_ids, runs, slot, bounds=()):
        """Run a prompt from its beginning, cut at the bounds; returns all logits."""
        self.states.copy(None, slot)
        rows = []
        for start, end in zip([0, *bounds], [*bounds, len(token_ids)], strict=True):
            segment = Segment(0, end - start, start, runs, slot)
            rows.append(self.forward(token_ids[start:end], [segment]))
        return torch.cat(rows)


def prompt(seed, num_tokens=NUM_TOKENS):
    return random.Random(seed).choices(range(VOCAB_SIZE), k=num_tokens)


@torch.inference_mode()
def reference_logits(reference, token_ids):
    return reference(torch.tensor([token_ids]), use_cache=False).logits[0]


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE)


def test_logits_equal_the_reference(pair):
    reference, model = pair
    token_ids = prompt(1)
    ours = Memory(model).prefill(token_ids, ((0, 5),), 3)
    close(ours, reference_logits(reference, token_ids))


def test_prompts_around_every_border_equal_the_reference(pair):
    reference, model = pair
    token_ids = prompt(1)
    # The reference is causal: its rows for a short prompt are the first rows for a long one.
    expected = reference_logits(reference, token_ids)
    lengths = [1, 2, 3, 4, 5, 6, 8, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 255, 256, 257]
    for length in lengths:
        ours = Memory(model).prefill(token_ids[:length], ((0, 5),), 3)
        close(ours, expected[:length])


def test_prefill_split_anywhere_equals_the_reference(pair):
    reference, model = pair
    token_ids = prompt(2)
    expected = reference_logits(reference, token_ids)
    rng = random.Random(3)
    for pages in ([4, 5, 1, 0, 9], [9, 7, 5, 3, 1]):
        runs = tuple((page, 1) for page in pages)
        bounds = {*rng.sample(range(1, NUM_TOKENS), 6), 64, 65, 66, 69, NUM_TOKENS - 1}
        close(Memory(model).prefill(token_ids, runs, 2, sorted(bounds)), expected)


def test_lanes_together_equal_lanes_alone(pair):
    reference, model = pair
    lengths = [70, 129, 3, 200, 81]
    prompts = [prompt(seed, n) for seed, n in enumerate(lengths)]
    runs = [((0, 2),), ((2, 1), (9, 1), (4, 1)), ((3, 1),), ((5, 4),), ((10, 2),)]
    slots = [6, 1, 0, 3, 4]
    memory = Memory(model)
    # Lanes 0 and 4 decode their last token while the others prefill, lane 1 the second part of its prompt.
    memory.prefill(prompts[0][:-1], runs[0], 6)
    memory.prefill(prompts[1][:50], runs[1], 1)
    memory.prefill(prompts[4][:-1], runs[4], 4)
    memory.states.copy(None, 0)
    memory.states.copy(None, 3)
    token_ids = [prompts[0][-1], *prompts[1][50:], *prompts[2], *prompts[3], prompts[4][-1]]
    counts, starts, segments, row = [1, 79, 3, 200, 1], [69, 50, 0, 0, 80], [], 0
    for lane, (count, start) in enumerate(zip(counts, starts, strict=True)):
        segments.append(Segment(row, count, start, runs[lane], slots[lane]))
        row += count
    ours = memory.forward(token_ids, segments)
    for segment, token_ids in zip(segments, prompts, strict=True):
        expected = reference_logits(reference, token_ids)[-segment.num_rows :]
        close(ours[segment.row_start : segment.row_start + segment.num_rows], expected)


@pytest.mark.parametrize("slots", [(0, 2, 4), (5, 0, 3)], ids=["evenly spaced", "scattered"])
def test_decoding_lanes_together_equals_the_reference(pair, slots):
    reference, model = pair
    prompts = [prompt(seed, n) for seed, n in enumerate([60, 1, 130])]
    runs = [((0, 1), (6, 1)), ((5, 1),), ((1, 3),)]
    memory = Memory(model)
    for token_ids, pages, slot in zip(prompts, runs, slots, strict=True):
        memory.prefill(token_ids, pages, slot)
    for step in range(8):
        new_ids = [(17 * step + lane) % VOCAB_SIZE for lane in range(3)]
        segments = [
            Segment(lane, 1, len(ids), runs[lane], slots[lane]) for lane, ids in enumerate(prompts)
        ]
        ours = memory.forward(new_ids, segments)
        for lane, token_id in enumerate(new_ids):
            prompts[lane].append(token_id)
            close(ours[lane], reference_logits(reference, prompts[lane])[-1])


def test_64_greedy_tokens_are_those_of_the_reference(pair):
    reference, model = pair
    token_ids = prompt(7, 90)
    with torch.inference_mode():
        expected = reference.generate(
            torch.tensor([token_ids]), max_new_tokens=64, min_new_tokens=64, do_sample=False
        )[0, 90:].tolist()
    memory = Memory(model)
    ours = [int(memory.prefill(token_ids, ((0, 4),), 1)[-1].argmax())]
    while len(ours) < 64:
        segment = Segment(0, 1, 89 + len(ours), ((0, 4),), 1)
        ours.append(int(memory.forward(ours[-1:], [segment])[-1].argmax()))
    assert ours == expected
