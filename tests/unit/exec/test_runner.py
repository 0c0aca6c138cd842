import random
import time

import pytest
import torch

from ninfer.core.sampling import SamplingParams
from ninfer.core.step import PageCopy, StateCopy, StepPlan
from ninfer.exec.runner import ModelRunner
from ninfer.kernels.kv_pool import KvPool
from ninfer.testing.clock import FakeClock
from tests.unit.exec.conftest import VOCAB_SIZE, Bench

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]
OTHER = [2, 71, 82, 81, 82, 84, 59, 4, 52, 35, 36, 2, 87]


def whole(model, token_ids: list[int]) -> torch.Tensor:
    """Logits of every position, computed in one pass over a pool of its own."""
    from ninfer.models.batch import ForwardBatch, Segment

    pool = KvPool(model.kv_spec, 8)
    batch = ForwardBatch.of(token_ids, [Segment(0, len(token_ids), 0, ((0, 8),))])
    return model.logits(model.forward(batch, pool))


def test_greedy_tokens_are_the_most_likely_ones(model, bench) -> None:
    tokens = bench.generate(0, PROMPT, 12)
    choices = whole(model, PROMPT + tokens).argmax(-1).tolist()
    assert tokens == choices[len(PROMPT) - 1 : -1]


def test_chunked_prefill_gives_the_same_tokens(model, bench) -> None:
    expected = Bench(model).generate(0, PROMPT, 5)
    bench.runner.open_lane(0, SamplingParams(), PROMPT)
    for start in (0, 4):
        (output,) = bench.step(bench.chunk(0, start, PROMPT[start : start + 4], samples=False))
        assert output.token_ids == ()
        assert output.error == ""
    (output,) = bench.step(bench.chunk(0, 8, PROMPT[8:]))
    assert output.token_ids == (expected[0],)
    assert output.num_accepted == 0


def test_lanes_in_one_step_do_not_influence_each_other(model) -> None:
    alone = [Bench(model).generate(0, prompt, 8) for prompt in (PROMPT, OTHER)]
    bench = Bench(model)
    bench.runner.open_lane(0, SamplingParams(), PROMPT)
    bench.runner.open_lane(1, SamplingParams(), OTHER)
    (first,) = bench.step(bench.chunk(0, 0, PROMPT))
    # decode of lane 0 beside two prefill chunks of lane 1
    tokens = list(first.token_ids)
    others: list[int] = []
    for start, end in ((0, 6), (6, len(OTHER))):
        outputs = bench.step(
            bench.chunk(1, start, OTHER[start:end], samples=end == len(OTHER)),
            bench.chunk(0, len(PROMPT) + len(tokens) - 1, tokens[-1:]),
        )
        assert [output.lane for output in outputs] == [1, 0]
        others += outputs[0].token_ids
        tokens += outputs[1].token_ids
    while len(others) < 8:
        outputs = bench.step(
            bench.chunk(0, len(PROMPT) + len(tokens) - 1, tokens[-1:]),
            bench.chunk(1, len(OTHER) + len(others) - 1, others[-1:]),
        )
        tokens += outputs[0].token_ids
        others += outputs[1].token_ids
    assert tokens[:8] == alone[0]
    assert others == alone[1]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(num_logprobs=3),
        SamplingParams(temperature=1.5, seed=11),
        SamplingParams(temperature=0.9, top_p=0.9, top_k=20, seed=12),
        SamplingParams(temperature=1.0, presence_penalty=0.7, repetition_penalty=1.3, seed=13),
        SamplingParams(frequency_penalty=0.5, logit_bias={5: 2.0}),
    ],
)
@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_speculation_changes_no_token(model, sampling, num_right: int) -> None:
    expected = Bench(model).generate(0, PROMPT, 16, sampling)
    bench = Bench(model)
    bench.runner.open_lane(0, sampling, PROMPT)
    (output,) = bench.step(bench.chunk(0, 0, PROMPT))
    tokens = list(output.token_ids)
    dice = random.Random(1)
    while len(tokens) < 12:
        guesses = [*expected[len(tokens) : len(tokens) + num_right], dice.randrange(VOCAB_SIZE)]
        start = len(PROMPT) + len(tokens) - 1
        chunk = bench.chunk(0, start, [tokens[-1], *guesses], num_draft=len(guesses))
        (output,) = bench.step(chunk)
        assert output.num_accepted >= num_right
        assert len(output.token_ids) == output.num_accepted + 1
        assert len(output.logprobs) == (
            0 if sampling.num_logprobs is None else len(output.token_ids)
        )
        tokens += output.token_ids
    assert tokens == expected[: len(tokens)]


def test_seeds_do_not_depend_on_the_batch(model) -> None:
    sampling = SamplingParams(temperature=1.2, seed=99)
    alone = Bench(model).generate(2, PROMPT, 6, sampling)
    bench = Bench(model)
    bench.runner.open_lane(2, sampling, PROMPT)
    bench.runner.open_lane(0, SamplingParams(temperature=2.0), OTHER)
    outputs = bench.step(bench.chunk(0, 0, OTHER), bench.chunk(2, 0, PROMPT))
    noise, tokens = list(outputs[0].token_ids), list(outputs[1].token_ids)
    while len(tokens) < 6:
        outputs = bench.step(
            bench.chunk(0, len(OTHER) + len(noise) - 1, noise[-1:]),
            bench.chunk(2, len(PROMPT) + len(tokens) - 1, tokens[-1:]),
        )
        noise += outputs[0].token_ids
        tokens += outputs[1].token_ids
    assert tokens == alone
    assert Bench(model).generate(1, PROMPT, 6, sampling) == alone


def test_page_copies_come_before_the_forward_pass(model, bench) -> None:
    expected = Bench(model).generate(0, PROMPT, 4)
    bench.generate(0, PROMPT, 1)
    bench.pool.kv[:, :, 64:].fill_(7.0)
    bench.runner.open_lane(1, SamplingParams(), PROMPT)
    plan = StepPlan(
        page_copies=(PageCopy(source=0, target=4, num_tokens=len(PROMPT) - 1),),
        chunks=(bench.chunk(1, len(PROMPT) - 1, PROMPT[-1:]),),
    )
    assert bench.runner.execute(plan).chunks[0].token_ids == (expected[0],)
    assert (bench.pool.kv[:, :, 4 * 64 + len(PROMPT) : 5 * 64] == 7.0).all()


class Spoiled:
    """A model whose logits of some rows are not finite."""

    def __init__(self, model, value: float) -> None:
        self.model = model
        self.device = model.device
        self.value = value
        self.rows: list[int] = []

    def forward(self, batch, kv, states):
        return self.model.forward(batch, kv)

    def logits(self, hidden):
        logits = self.model.logits(hidden)
        logits[self.rows, 17] = self.value
        return logits


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=1.0, top_p=0.5)])
def test_a_lane_with_bad_logits_fails_alone(model, value: float, sampling) -> None:
    spoiled = Spoiled(model, value)
    bench = Bench(spoiled_with_layout(spoiled))
    expected = Bench(model).generate(1, OTHER, 1)
    bench.runner.open_lane(0, sampling, PROMPT)
    bench.runner.open_lane(1, SamplingParams(), OTHER)
    spoiled.rows = [0]
    outputs = bench.step(bench.chunk(0, 0, PROMPT), bench.chunk(1, 0, OTHER))
    assert "not finite" in outputs[0].error
    assert outputs[0].token_ids == ()
    assert list(outputs[1].token_ids) == expected
    assert outputs[1].error == ""


def spoiled_with_layout(spoiled: Spoiled) -> Spoiled:
    spoiled.kv_spec = spoiled.model.kv_spec
    return spoiled


def test_a_bad_row_behind_a_rejected_guess_does_not_matter(model) -> None:
    expected = Bench(model).generate(0, PROMPT, 2)
    spoiled = Spoiled(model, float("nan"))
    bench = Bench(spoiled_with_layout(spoiled))
    bench.runner.open_lane(0, SamplingParams(), PROMPT)
    spoiled.rows = [1]
    wrong = (expected[0] + 1) % VOCAB_SIZE
    (output,) = bench.step(bench.chunk(0, 0, [*PROMPT, wrong], num_draft=1))
    assert output.token_ids == (expected[0],)


def test_ids_outside_the_vocabulary_fail_alone(bench, model) -> None:
    expected = Bench(model).generate(1, OTHER, 1)
    bench.runner.open_lane(0, SamplingParams(), PROMPT)
    bench.runner.open_lane(1, SamplingParams(), OTHER)
    outputs = bench.step(bench.chunk(0, 0, [5, VOCAB_SIZE]), bench.chunk(1, 0, OTHER))
    assert "vocabulary" in outputs[0].error
    assert list(outputs[1].token_ids) == expected
    (output,) = bench.step(bench.chunk(0, 0, [-1]))
    assert "vocabulary" in output.error


def test_columns_behind_the_vocabulary_are_never_chosen(model) -> None:
    pool = KvPool(model.kv_spec, 4)
    runner = ModelRunner(model, {"main": pool}, vocab_size=3, num_lanes=1, clock=FakeClock())
    for sampling in (SamplingParams(), SamplingParams(temperature=5.0)):
        runner.open_lane(0, sampling, [1])
        chunk = Bench(model).chunk(0, 0, [1, 2])
        output = runner.execute(StepPlan(chunks=(chunk,))).chunks[0]
        assert output.token_ids[0] < 3


class ListStates:
    """States as lists, to see what is asked for."""

    num_slots = 3
    image_bytes = 8

    def __init__(self) -> None:
        self.copies: list[tuple[int | None, int]] = []

    def copy(self, source, target) -> None:
        self.copies.append((source, target))

    def copy_out(self, slot, buffer) -> None: ...

    def copy_in(self, slot, buffer) -> None: ...


def test_states_are_copied_before_and_captured_after(model) -> None:
    states = ListStates()
    pool = KvPool(model.kv_spec, 4)
    runner = ModelRunner(
        model, {"main": pool}, vocab_size=VOCAB_SIZE, num_lanes=1, clock=FakeClock(), states=states
    )
    assert (runner.layout.num_state_slots, runner.layout.state_image_bytes) == (3, 8)
    runner.open_lane(0, SamplingParams(), [1])
    from dataclasses import replace

    chunk = replace(Bench(model).chunk(0, 0, [1]), state_slot=0, capture_slot=2)
    runner.execute(StepPlan(state_copies=(StateCopy(source=None, target=0),), chunks=(chunk,)))
    assert states.copies == [(None, 0), (0, 2)]


def test_models_without_state_refuse_state_copies(bench) -> None:
    with pytest.raises(ValueError, match="no state"):
        bench.runner.execute(StepPlan(state_copies=(StateCopy(source=0, target=1),)))


def test_layout_describes_the_pools(model) -> None:
    pools = {"main": KvPool(model.kv_spec, 5), "draft": KvPool(model.kv_spec, 5)}
    runner = ModelRunner(model, pools, vocab_size=VOCAB_SIZE, num_lanes=2, clock=FakeClock())
    layout = runner.layout
    assert layout.num_pages == 5
    assert layout.page_pool_bytes == {"draft": 32768 * 2, "main": 32768 * 2}
    assert layout.page_image_bytes == 2 * model.kv_spec.page_bytes
    with pytest.raises(ValueError, match="main"):
        ModelRunner(model, {"x": pools["main"]}, vocab_size=9, num_lanes=1, clock=FakeClock())
    with pytest.raises(ValueError, match="lane 2"):
        runner.open_lane(2, SamplingParams(), [1])


def test_empty_plans_do_nothing(bench) -> None:
    assert bench.runner.execute(StepPlan()).chunks == ()
    bench.runner.close_lane(3)


class TimedModel(Spoiled):
    """Counts the seconds inside the model."""

    inside_s = 0.0

    def forward(self, batch, kv, states):
        begun = time.perf_counter()
        result = self.model.forward(batch, kv)
        self.inside_s += time.perf_counter() - begun
        return result

    def logits(self, hidden):
        begun = time.perf_counter()
        result = self.model.logits(hidden)
        self.inside_s += time.perf_counter() - begun
        return result


def test_a_greedy_step_costs_little_outside_the_model(model) -> None:
    timed = TimedModel(model, 0.0)
    bench = Bench(spoiled_with_layout(timed))
    bench.runner.open_lane(0, SamplingParams(), PROMPT)
    bench.step(bench.chunk(0, 0, PROMPT))
    best = 1.0
    for start in range(10, 110):
        timed.inside_s = 0.0
        chunk = bench.chunk(0, start, [7])
        begun = time.perf_counter()
        bench.step(chunk)
        best = min(best, time.perf_counter() - begun - timed.inside_s)
    assert best < 0.0003
