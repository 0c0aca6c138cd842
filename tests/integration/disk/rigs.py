"""Engines over a disk tier: the fake model or a real tiny one, and what they answer without any cache."""

import random

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import TierContext
from ninfer.cache.identity import encode_tokens, sha256
from ninfer.cache.recovery import by_value
from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.obs.clock import SystemClock
from plugins.storage_disk.tests.recorded_files import UnflushedFiles
from tests.fakes.harness import Harness
from tests.fakes.model import PAGE_BYTES, STATE_BYTES, FakeDevice
from tests.integration.engine.real_device import ColdModel, RealDevice

FINGERPRINT = b"m" * 32


class FakeRig:
    """The model of integers; `vocab` is large enough that a wrong byte changes tokens."""

    page_bytes, state_bytes = PAGE_BYTES, STATE_BYTES
    capacity = 600 << 10
    num_pages, context_tokens, once_tokens, num_turns = 32, 500, 900, 20

    def __init__(self, *, has_state):
        self.has_state = has_state
        self.vocab = 50

    def device(self):
        return FakeDevice(
            num_pages=self.num_pages,
            vocab=self.vocab,
            has_state=self.has_state,
            num_slots=24 if self.has_state else 0,
        )

    def cold(self, device, prompt, max_tokens):
        return device.mind.cold(prompt, max_tokens)


class RealRig:
    """A tiny random model in float64."""

    capacity = 3 << 20
    num_pages, context_tokens, once_tokens, num_turns = 12, 300, 300, 12

    def __init__(self, model):
        self.model = model
        self.has_state = model.state_layout is not None
        self.vocab = 250
        layout = self.device().layout
        self.page_bytes, self.state_bytes = layout.page_image_bytes, layout.state_image_bytes
        self._cold = ColdModel(model)

    def device(self):
        return RealDevice(self.model, num_pages=self.num_pages, num_lanes=4)

    def cold(self, device, prompt, max_tokens):
        return self._cold.answer(prompt, max_tokens)


def tokens(seed, num_tokens, vocab=50):
    rng = random.Random(f"{seed}")
    return [rng.randrange(vocab) for _ in range(num_tokens)]


class Leap(SystemClock):
    """Time that jumps by `ahead_s`."""

    ahead_s = 0.0

    def monotonic_s(self):
        return super().monotonic_s() + self.ahead_s


class Running:
    """One engine on a folder, from its start to its end.

    Args:
        rig: model and sizes.
        root: folder of the disk tier.
        files: the file layer; one that flushes nothing by default.
        tier_class: what to open there.
        capacity: cap of the directory; the rig's if not given.
        sync: as in the settings of the tier.
        faster: tiers before the disk.
        more: options of the harness.
    """

    def __init__(
        self,
        rig,
        root,
        *,
        files=None,
        tier_class=DiskTier,
        capacity=0,
        sync="batch",
        faster=(),
        fingerprint=FINGERPRINT,
        **more,
    ):
        self.rig, self.root = rig, root
        self.capacity = capacity or rig.capacity
        device = rig.device()
        context = TierContext(
            tier_name="disk",
            fingerprint=fingerprint,
            clock=SystemClock(),
            host_allocator=None,
            page_image_bytes=rig.page_bytes,
            state_image_bytes=rig.state_bytes if rig.has_state else 0,
            by_value=by_value,
        )
        config = DiskConfig(path=root, capacity=self.capacity, sync=sync)
        self.tier = tier_class(context, config, files or UnflushedFiles())
        options = {"num_pages": rig.num_pages, "chunk": 256, "vocab": rig.vocab, **more}
        self.harness = Harness(tiers=[*faster, self.tier], device=device, **options)
        self.handle = self.harness.handles[-1]

    def ask(self, prompt, max_tokens=4, **more):
        """Ask, and compare with the answer of an engine without a cache."""
        answer = self.harness.submit(prompt, max_tokens, **more)
        self.harness.run(answer)
        cold = self.rig.cold(self.harness.device, prompt, max_tokens)
        assert answer.tokens == cold, answer.finished
        answer.computed = len(prompt) - answer.cached
        return answer

    def stop(self):
        """End as a clean shutdown does."""
        self.harness.check_drained()
        self.harness.flush()
        self.harness.close()
        assert self.tier.check() == []
        self.tier.close()

    def kill(self):
        """End as a crash does: what is on disk stays as it is."""
        self.harness.close()
        self.tier._store._finalizer()


def resumable_tokens(rig, prompt, keys):
    """Return how many tokens of a prompt images of these keys restore, counting full pages only."""
    digest = sha256(b"domain")
    best = 0
    for start in range(0, len(prompt) - PAGE_SIZE_TOKENS, PAGE_SIZE_TOKENS):
        page = encode_tokens(prompt[start : start + PAGE_SIZE_TOKENS])
        digest = sha256(b"page" + digest + page)
        if digest not in keys:
            break
        if not rig.has_state or sha256(b"state" + digest) in keys:
            best = start + PAGE_SIZE_TOKENS
    return best
