"""The real runner, KV pool and copier behind the names that the step-by-step harness uses."""

import torch

from ninfer.core.sampling import SamplingParams
from ninfer.core.step import PAGE_SIZE_TOKENS, LaneChunk, StepPlan
from ninfer.exec.device_copy import HostCopier
from ninfer.exec.runner import ModelRunner
from ninfer.kernels.kv_pool import KvPool
from ninfer.obs.clock import SystemClock

VOCAB_SIZE = 256


class RealDevice:
    """Runner and copier over a KV pool full of rubbish, so that a stale read changes tokens."""

    def __init__(self, model, *, num_pages, num_lanes):
        self.pool = KvPool(model.kv_spec, num_pages)
        self.pool.kv.normal_(generator=torch.Generator().manual_seed(1))
        self.runner = ModelRunner(
            model,
            {"main": self.pool},
            vocab_size=VOCAB_SIZE,
            num_lanes=num_lanes,
            clock=SystemClock(),
        )
        copier = HostCopier({"main": self.pool})
        self.copy_page_out, self.copy_page_in = copier.copy_page_out, copier.copy_page_in
        self.copy_state_out, self.copy_state_in = copier.copy_state_out, copier.copy_state_in
        self.layout = self.runner.layout
        self.execute = self.runner.execute
        self.open_lanes = set()

    def open_lane(self, lane, sampling, prompt_token_ids):
        assert lane not in self.open_lanes
        self.open_lanes.add(lane)
        self.runner.open_lane(lane, sampling, prompt_token_ids)

    def close_lane(self, lane):
        self.open_lanes.remove(lane)
        self.runner.close_lane(lane)


class ColdModel:
    """Answers without cache, store or scheduler: the prompt in one pass, then token by token."""

    def __init__(self, model, *, num_pages=12):
        pool = KvPool(model.kv_spec, num_pages)
        self.runs = ((0, num_pages),)
        self.num_tokens = num_pages * PAGE_SIZE_TOKENS
        self.runner = ModelRunner(
            model, {"main": pool}, vocab_size=VOCAB_SIZE, num_lanes=1, clock=SystemClock()
        )

    def answer(self, prompt, max_tokens, stop=frozenset(), sampling=None):
        assert len(prompt) + max_tokens <= self.num_tokens
        self.runner.open_lane(0, sampling or SamplingParams(), prompt)
        todo, start, out = tuple(prompt), 0, []
        while len(out) < max_tokens and not (out and out[-1] in stop):
            chunk = LaneChunk(
                lane=0, start_tokens=start, token_ids=todo, runs=self.runs, samples=True
            )
            result = self.runner.execute(StepPlan(chunks=(chunk,))).chunks[0]
            assert not result.error, result.error
            out += result.token_ids
            start, todo = start + len(todo), result.token_ids
        self.runner.close_lane(0)
        return out
