"""Random workloads on a tiny random model in float64: real runner, KV pool, copier, host arena and disk files."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

from ninfer_policy_costmodel.plugin import ninfer_placement_policies

from ninfer.core.request import FinishReason
from ninfer.core.sampling import SamplingParams
from tests.fakes.harness import Harness
from tests.fakes.workload import next_prompt
from tests.integration.engine.real_device import ColdModel, RealDevice
from tests.integration.engine.real_tiers import open_tiers

SHAPES = ((0, 0), (3, 0), (12, 0), (0, 16), (0, 60), (3, 24), (8, 80), (40, 100))
"""Pages that the host and the disk hold; 0 is no such tier."""

POLICIES = ("lru", "costmodel")


def open_costmodel(layout):
    """A policy factory for the harness: the shipped cost model with plausible measurements."""
    (provider,) = ninfer_placement_policies()

    def make(context):
        full = replace(
            context,
            bytes_per_token=layout.page_image_bytes // 64,
            prefill_tokens_per_s=2_000.0,
            cache_dir=Path("/nonexistent/ninfer"),
        )
        return provider.open(full, provider.config())

    return make


class Engine:
    """One engine with its tiers; `restart` keeps what is on disk only."""

    def __init__(self, model, shape, folder, **options):
        self.model, self.shape, self.folder = model, shape, folder
        self.options = options
        self._open()

    def _open(self):
        options = dict(self.options)
        sizes = {name: options.pop(name) for name in ("num_pages", "num_lanes", "num_slots")}
        device = RealDevice(self.model, num_scratch=options["draft_tokens"], **sizes)
        if options.pop("policy") == "costmodel":
            options["policy"] = open_costmodel(device.layout)
        self.tiers = self._open_tiers(device.layout)
        self.harness = Harness(
            tiers=self.tiers, device=device, num_lanes=sizes["num_lanes"], **options
        )

    def _open_tiers(self, layout):
        host_pages, disk_pages = self.shape
        return open_tiers(
            self.folder,
            layout.page_image_bytes,
            host_pages=host_pages,
            disk_pages=disk_pages,
            state_bytes=layout.state_image_bytes,
        )

    def close(self):
        self.harness.close()
        for tier in self.tiers:
            assert tier.check() == []
            tier.close()

    def restart(self):
        self.harness.check_drained()
        self.harness.flush()
        self.close()
        self._open()


def choose_sampling(rng):
    """Greedy mostly, else sampled with a seed."""
    if rng.random() < 0.7:
        return SamplingParams()
    return SamplingParams(
        temperature=rng.choice([0.7, 1.5]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 20]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        seed=rng.randrange(10**6),
    )


class Workload:
    """One random workload; `run` raises AssertionError on the first wrong token, broken equation or leak."""

    def __init__(self, seed, model, folder):
        self.rng = rng = random.Random(seed)
        self.vocab = rng.choice([2, 4, 50, 250])
        self.most = rng.choice([6, 8, 12]) * 64
        self.draft_tokens = rng.choice([0, 0, 1, 3])
        self.cold = ColdModel(model, num_pages=self.most // 64)
        self.engine = Engine(
            model,
            rng.choice(SHAPES),
            folder,
            policy=rng.choice(POLICIES),
            num_pages=self.most // 64,
            num_lanes=rng.choice([1, 2, 4]),
            num_slots=rng.choice([4, 6, 12]),
            draft_tokens=self.draft_tokens,
            chunk=rng.choice([32, 64, 200]),
            shared_chunk=rng.choice([16, 64]),
        )
        self.history, self.live, self.answers = [], [], []

    @property
    def harness(self):
        return self.engine.harness

    def run(self, num_requests):
        try:
            for _ in range(num_requests):
                self._submit()
                self._step()
                self._collect()
                if self.rng.random() < 0.04:
                    self._restart()
            self.harness.run(*self.live)
            self._check()
            self.harness.check_drained()
        finally:
            self.engine.close()

    def _submit(self):
        rng, room = self.rng, self.most - self.draft_tokens
        prompt = next_prompt(rng, self.history, self.vocab)[: room - 1]
        max_tokens = min(rng.choice([0, 1, 3, 12, 40]), room - len(prompt))
        stop = (rng.randrange(256),) if rng.random() < 0.2 else ()
        more = {"sampling": choose_sampling(rng), "stop": stop}
        leader = self._add(
            prompt,
            max_tokens,
            cache=rng.random() < 0.92,
            salt=rng.choice(["", "", "", "other"]),
            **more,
        )
        if max_tokens and rng.random() < 0.15:
            self._add(prompt, max_tokens, fork_of=leader.id, **more)

    def _add(self, prompt, max_tokens, *, sampling, **more):
        answer = self.harness.submit(prompt, max_tokens, sampling=sampling, **more)
        answer.sampling = sampling
        self.answers.append(answer)
        self.live.append(answer)
        return answer

    def _step(self):
        for _ in range(self.rng.choice([0, 1, 5, 40, 2_000])):
            if not self.harness.scheduler.has_work:
                break
            self.harness.step()
        if self.live and self.rng.random() < 0.2:
            self.harness.scheduler.abort(self.rng.choice(self.live).id)

    def _collect(self):
        for answer in [answer for answer in self.live if answer.finished]:
            self.live.remove(answer)
            self.history.append([*answer.prompt, *answer.tokens])

    def _restart(self):
        for answer in self.live:
            self.harness.scheduler.abort(answer.id)
        self._collect()
        self.engine.restart()

    def _check(self):
        for answer in self.answers:
            cold = self.cold.answer(answer.prompt, answer.max_tokens, answer.stop, answer.sampling)
            if answer.reason is FinishReason.ABORTED:
                cold = cold[: len(answer.tokens)]
            else:
                assert answer.reason in {FinishReason.STOP, FinishReason.LENGTH}, answer.finished
            assert answer.tokens == cold


def run_workload(seed, model, folder, *, num_requests=12):
    """Run one workload in a folder of its own and remove it; returns the stats of its requests."""
    own = folder / str(seed)
    workload = Workload(seed, model, own)
    workload.run(num_requests)
    shutil.rmtree(own, ignore_errors=True)
    return [answer.finished.stats for answer in workload.answers]
