"""Random workloads with MTP: as `real_workload`, with the head's KV in every page and any acceptance."""

import shutil

from ninfer.models.random_model import random_mtp_head
from tests.fakes.harness import Harness
from tests.integration.engine.helped_decoder import HelpedDecoder
from tests.integration.engine.real_device import RealDevice
from tests.integration.engine.real_workload import Engine, Workload, open_costmodel

SEED = 7
"""Of the models' weights."""


class MtpEngine(Engine):
    """An engine whose decoder is the head of the model, helped now and then."""

    def _open(self):
        options = dict(self.options)
        sizes = {name: options.pop(name) for name in ("num_pages", "num_lanes", "num_slots")}
        head = random_mtp_head(self.model, SEED)
        num_drafts = options["draft_tokens"]
        device = RealDevice(self.model, num_scratch=num_drafts, head=head, **sizes)
        self.decoder = HelpedDecoder(head, max_tokens=num_drafts, seed=num_drafts)
        device.runner.follow = self.decoder.follow
        if options.pop("policy") == "costmodel":
            options["policy"] = open_costmodel(device.layout)
        self.tiers = self._open_tiers(device.layout)
        self.harness = Harness(
            tiers=self.tiers,
            device=device,
            num_lanes=sizes["num_lanes"],
            decoder=self.decoder,
            **options,
        )


class MtpWorkload(Workload):
    """One random workload; see `Workload`."""

    def __init__(self, seed, model, folder):
        super().__init__(seed, model, folder / "ngram")
        self.engine.close()
        options = {
            **self.engine.options,
            "draft_tokens": self.rng.choice([1, 2, 3, 5]),
            "first_rung": self.rng.choice([64, 128, 4096]),
        }
        self.draft_tokens = options["draft_tokens"]
        self.engine = MtpEngine(model, self.engine.shape, folder / "mtp", **options)

    def _add(self, prompt, max_tokens, *, sampling, **more):
        answer = self.cold.answer(prompt, max_tokens, more["stop"], sampling)
        self.engine.decoder.learn(prompt, answer)
        return super()._add(prompt, max_tokens, sampling=sampling, **more)


def run_mtp_workload(seed, model, folder, *, num_requests=10):
    """Run one workload in a folder of its own and remove it; returns the stats of its requests."""
    own = folder / f"{seed}"
    workload = MtpWorkload(seed, model, own)
    workload.run(num_requests)
    shutil.rmtree(own, ignore_errors=True)
    return [answer.finished.stats for answer in workload.answers]
