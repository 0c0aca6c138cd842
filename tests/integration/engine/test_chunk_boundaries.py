"""In bfloat16, a context resumed from the host has bit-identical logits to a cold run split at the same borders."""

import pytest
import torch

from ninfer.core.sampling import SamplingParams
from ninfer.core.step import LaneChunk, StepPlan
from ninfer.models.random_model import random_model, tiny_config
from tests.fakes.harness import Harness
from tests.integration.engine.conftest import FAMILIES
from tests.integration.engine.real_device import VOCAB_SIZE, RealDevice
from tests.integration.engine.real_tiers import open_tiers

NUM_PAGES = 8


class Recorder:
    """A model that keeps every row of logits it gave, and a device that keeps every chunk it ran."""

    def __init__(self, model):
        self.model, self.rows, self.chunks = model, [], []
        self.kv_spec, self.device = model.kv_spec, model.device
        self.forward, self.state_layout = model.forward, model.state_layout

    def logits(self, hidden):
        rows = self.model.logits(hidden)
        self.rows += rows.clone().unbind(0)
        return rows

    def watch(self, device):
        execute = device.execute

        def watched(plan):
            self.chunks += plan.chunks
            return execute(plan)

        device.execute = watched
        return device


@pytest.mark.parametrize("family", FAMILIES)
def test_resumed_context_has_the_logits_of_a_cold_run_split_at_the_same_borders(family, tmp_path):
    model = random_model(tiny_config(family, vocab_size=VOCAB_SIZE), 7, dtype=torch.bfloat16)
    recorder = Recorder(model)
    device = recorder.watch(RealDevice(recorder, num_pages=NUM_PAGES, num_lanes=1))
    tiers = open_tiers(tmp_path, device.layout.page_image_bytes, host_pages=20, disk_pages=0)
    harness = Harness(tiers=tiers, device=device, num_lanes=1, chunk=64, shared_chunk=64)
    context = [index * 7 % 250 for index in range(190)]
    harness.ask(context, 1)
    first_chunks = list(recorder.chunks)
    harness.ask([index * 11 % 240 + 3 for index in range(510)], 1, cache=False)
    recorder.chunks.clear()
    recorder.rows.clear()
    answer = harness.ask([*context, *range(100, 170)], 8)
    assert answer.cached == 190
    assert answer.finished.stats.restored_bytes["t1"] > 0
    warm_rows = list(recorder.rows)
    (runs,) = {chunk.runs for chunk in recorder.chunks}
    assert len(runs) == 1, "the same layout: one run of pages"
    # Cold, on another device: the chunks of the first request, then those of the resumed one.
    recorder.rows.clear()
    cold = RealDevice(recorder, num_pages=NUM_PAGES, num_lanes=1)
    cold.open_lane(0, SamplingParams(), context)
    for chunk in [*first_chunks, *recorder.chunks]:
        plain = LaneChunk(
            lane=0,
            start_tokens=chunk.start_tokens,
            token_ids=chunk.token_ids,
            runs=runs,
            samples=chunk.samples,
        )
        cold.execute(StepPlan(chunks=(plain,)))
    cold_rows = recorder.rows[1:]
    assert len(cold_rows) == len(warm_rows) == 8
    assert all(torch.equal(cold, warm) for cold, warm in zip(cold_rows, warm_rows, strict=True))
    harness.close()
    for tier in tiers:
        tier.close()
