"""The real runner, KV and state pools and copier behind the names that the step-by-step harness uses."""

import torch

from ninfer.core.sampling import SamplingParams
from ninfer.core.step import PAGE_SIZE_TOKENS, LaneChunk, StateCopy, StepPlan
from ninfer.exec.device_copy import HostCopier
from ninfer.exec.runner import ModelRunner
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.obs.clock import SystemClock

VOCAB_SIZE = 256


def noisy_pool(layout, num_pages):
    """A KV pool full of rubbish, so that a stale read changes tokens."""
    pool = KvPool(layout, num_pages)
    pool.kv.normal_(generator=torch.Generator().manual_seed(1))
    return pool


def noisy_states(model, num_slots):
    """State slots full of rubbish, None for a model without state."""
    if model.state_layout is None:
        return None
    states = StatePool(model.state_layout, num_slots)
    states.images.normal_(generator=torch.Generator().manual_seed(2))
    return states


class RealDevice:
    """Runner and copier.

    Args:
        model: what runs.
        head: its multi-token-prediction head, which gets a KV pool beside the model's; None for none.
        num_slots: state slots besides `num_scratch` for each lane, for a model with state.
        vocab_size: tokens that may be sampled.
    """

    def __init__(
        self,
        model,
        *,
        num_pages,
        num_lanes,
        num_slots=8,
        num_scratch=0,
        head=None,
        vocab_size=VOCAB_SIZE,
    ):
        self.model = model
        self.pools = {"main": noisy_pool(model.kv_spec, num_pages)}
        if head is not None:
            self.pools["draft"] = noisy_pool(head.kv_spec, num_pages)
            head.bind(self.pools["draft"])
        self.pool = self.pools["main"]
        self.states = noisy_states(model, num_slots + num_lanes * num_scratch)
        self.runner = ModelRunner(
            model,
            self.pools,
            vocab_size=vocab_size,
            num_lanes=num_lanes,
            clock=SystemClock(),
            states=self.states,
            num_scratch_slots=num_scratch,
        )
        copier = HostCopier(self.pools, states=self.states)
        self.copy_page_out, self.copy_page_in = copier.copy_page_out, copier.copy_page_in
        self.copy_pages_out, self.copy_pages_in = copier.copy_pages_out, copier.copy_pages_in
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
        self.states = noisy_states(model, 1)
        self.slot = None if self.states is None else 0
        self.runner = ModelRunner(
            model,
            {"main": pool},
            vocab_size=VOCAB_SIZE,
            num_lanes=1,
            clock=SystemClock(),
            states=self.states,
        )

    def reset(self):
        if self.states is not None:
            self.runner.execute(StepPlan(state_copies=(StateCopy(source=None, target=0),)))

    def answer(self, prompt, max_tokens, stop=frozenset(), sampling=None):
        assert len(prompt) + max_tokens <= self.num_tokens
        self.reset()
        self.runner.open_lane(0, sampling or SamplingParams(), prompt)
        todo, start, out = tuple(prompt), 0, []
        while len(out) < max_tokens and not (out and out[-1] in stop):
            result = self._run(start, todo, samples=True)
            assert not result.error, result.error
            out += result.token_ids
            start, todo = start + len(todo), result.token_ids
        self.runner.close_lane(0)
        return out

    def state_after(self, token_ids):
        """The state image of a context, computed in one pass."""
        self.reset()
        self._run(0, tuple(token_ids), samples=False)
        return self.states.images[0].clone()

    def _run(self, start, todo, *, samples):
        chunk = LaneChunk(
            lane=0,
            start_tokens=start,
            token_ids=todo,
            runs=self.runs,
            state_slot=self.slot,
            samples=samples,
        )
        return self.runner.execute(StepPlan(chunks=(chunk,))).chunks[0]
