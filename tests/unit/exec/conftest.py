"""A tiny random model with its memory."""

import pytest
import torch

from ninfer.core.sampling import SamplingParams
from ninfer.core.step import LaneChunk, StepPlan
from ninfer.exec.runner import ModelRunner
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.random_model import random_model, tiny_config
from ninfer.testing.clock import FakeClock

VOCAB_SIZE = 256


@pytest.fixture(scope="session")
def model():
    # float64: the result of a row does not visibly depend on which rows run beside it.
    return random_model(tiny_config(vocab_size=VOCAB_SIZE), 7, dtype=torch.float64)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Tiny tensors on several threads of a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Bench:
    """Drives a runner the way a scheduler would, one page run per lane."""

    def __init__(self, model, *, num_lanes=4, pages_per_lane=4) -> None:
        self.pool = KvPool(model.kv_spec, num_lanes * pages_per_lane)
        self.runner = ModelRunner(
            model,
            {"main": self.pool},
            vocab_size=VOCAB_SIZE,
            num_lanes=num_lanes,
            clock=FakeClock(),
        )
        self.pages_per_lane = pages_per_lane

    def runs(self, lane: int):
        return ((lane * self.pages_per_lane, self.pages_per_lane),)

    def chunk(self, lane, start, token_ids, *, num_draft=0, samples=True) -> LaneChunk:
        return LaneChunk(
            lane=lane,
            start_tokens=start,
            token_ids=tuple(token_ids),
            num_draft=num_draft,
            runs=self.runs(lane),
            samples=samples,
        )

    def step(self, *chunks: LaneChunk):
        return self.runner.execute(StepPlan(chunks=chunks)).chunks

    def generate(self, lane, prompt, num_tokens, sampling=None) -> list[int]:
        self.runner.open_lane(lane, sampling or SamplingParams(), prompt)
        (output,) = self.step(self.chunk(lane, 0, prompt))
        tokens = list(output.token_ids)
        while len(tokens) < num_tokens:
            start = len(prompt) + len(tokens) - 1
            (output,) = self.step(self.chunk(lane, start, tokens[-1:]))
            tokens += output.token_ids
        self.runner.close_lane(lane)
        return tokens


@pytest.fixture
def bench(model) -> Bench:
    return Bench(model)
