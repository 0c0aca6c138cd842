"""An engine over the fake device, driven step by step from a test: real store, planner, transfers, scheduler."""

import threading

from ninfer.api import (
    DecoderContext,
    MatcherContext,
    PolicyContext,
    TierFacts,
)
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.builtin.ngram import NgramConfig, NgramDecoder
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.cache.checks import require
from ninfer.cache.identity import sha256
from ninfer.cache.manager import CacheManager
from ninfer.cache.recovery import recover
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_handle import TierHandle
from ninfer.cache.tier_space import TierSpace, WriteRules
from ninfer.cache.transfers import Transfers
from ninfer.core.request import (
    CacheParams,
    FinishedEvent,
    GenerationRequest,
    StartedEvent,
    TokensEvent,
)
from ninfer.engine.engine import EngineLoop, EngineParts
from ninfer.obs.clock import SystemClock
from ninfer.sched.chunks import ChunkSizes
from ninfer.sched.drafting import Drafting
from ninfer.sched.limits import SchedulerLimits
from ninfer.sched.scheduler import Scheduler
from tests.fakes.model import FakeDevice


class Answer:
    """Collects the events of one request."""

    def __init__(self):
        self.tokens, self.finished, self.cached = [], None, None

    def __call__(self, event):
        assert self.finished is None, "an event after the last one"
        if isinstance(event, StartedEvent):
            self.cached = event.num_cached_tokens
        elif isinstance(event, TokensEvent):
            self.tokens += event.token_ids
        elif isinstance(event, FinishedEvent):
            self.finished = event

    @property
    def reason(self):
        return self.finished.reason if self.finished else None


class Harness:
    def __init__(
        self,
        *,
        num_pages=16,
        num_lanes=4,
        tiers=(),
        policy=None,
        has_state=False,
        num_slots=0,
        draft_tokens=0,
        chunk=32,
        shared_chunk=16,
        max_queue=1000,
        queue_timeout_s=1000.0,
        max_head_passes=4,
        first_rung=128,
        deadline_s=5.0,
        clock=None,
        digest=sha256,
        vocab=4,
        checks=True,
        device=None,
        decoder=None,
        rules=None,
    ):
        self.clock = clock or SystemClock()
        self.device = device or FakeDevice(
            num_pages=num_pages,
            num_lanes=num_lanes,
            vocab=vocab,
            has_state=has_state,
            num_slots=num_slots,
            num_scratch=draft_tokens,
        )
        layout = self.device.layout
        self.wake = threading.Event()
        self.tiers = list(tiers)
        handles = [TierHandle(f"t{n}", tier) for n, tier in enumerate(self.tiers, start=1)]
        self.handles = handles
        spaces = [
            TierSpace(
                name=handle.name,
                capacity_bytes=handle.usage().capacity_bytes,
                stored_bytes=handle.stored_bytes,
                rules=rules if rules is not None and handle is handles[-1] else WriteRules(),
            )
            for handle in handles
        ]
        facts = [TierFacts(tier_name="device", capacity_bytes=layout.num_pages * 512)]
        facts += [TierFacts(tier_name=s.name, capacity_bytes=s.capacity_bytes) for s in spaces]
        context = PolicyContext(clock=self.clock, tiers=facts)
        self.policy = policy(context) if policy else LruPolicy.open(context, LruConfig())
        self.store = ContextStore(layout, spaces, self.policy.keep_value, self.clock, digest=digest)
        self.transfers = Transfers(
            handles, self.device, self.clock, deadline_s=deadline_s, wake=self.wake.set
        )
        self.manager = CacheManager(
            self.store,
            self.transfers,
            matcher=RadixMatcher.open(MatcherContext(), RadixConfig()),
            policy=self.policy,
            clock=self.clock,
            slack_tokens=draft_tokens,
        )
        for number, handle in enumerate(handles, start=1):
            found = recover(self.store, handle, number)
            self.manager.shared.take(number, found.left)
        if draft_tokens and decoder is None:
            decoder = NgramDecoder.open(
                DecoderContext(
                    clock=self.clock, model=None, max_lanes=num_lanes, max_draft_tokens=draft_tokens
                ),
                NgramConfig(min_ngram=1, max_ngram=3),
            )
        self.scheduler = Scheduler(
            self.manager,
            self.device,
            drafting=Drafting(decoder, max_tokens=draft_tokens),
            policy=self.policy,
            clock=self.clock,
            limits=SchedulerLimits(
                chunk_sizes=ChunkSizes(alone_tokens=chunk, shared_tokens=shared_chunk),
                max_queue=max_queue,
                queue_timeout_s=queue_timeout_s,
                max_head_passes=max_head_passes,
                first_rung_tokens=first_rung,
            ),
        )
        self.loop = EngineLoop(
            EngineParts(
                scheduler=self.scheduler,
                manager=self.manager,
                runner=self.device,
                clock=self.clock,
                wake=self.wake,
                checks_every_step=checks,
            )
        )
        self._numbers = iter(range(10**9))

    def submit(
        self, prompt, max_tokens=4, *, cache=True, salt="", stop=(), name=None, keep=None, **more
    ):
        answer = Answer()
        answer.id = name or f"r{next(self._numbers)}"
        answer.prompt, answer.max_tokens, answer.stop = list(prompt), max_tokens, frozenset(stop)
        markers = more.pop("markers", ())
        self.loop.submit(
            GenerationRequest(
                request_id=answer.id,
                prompt_token_ids=list(prompt),
                max_tokens=max_tokens,
                stop_token_ids=frozenset(stop),
                cache=CacheParams(
                    is_enabled=cache, salt=salt, marker_tokens=tuple(markers), retention=keep
                ),
                **more,
            ),
            answer,
        )
        return answer

    def step(self):
        busy = self.loop.step()
        assert not self.loop.failure, self.loop.failure
        if not busy:
            self.wake.wait(0.02)
            self.wake.clear()
        return busy

    def run(self, *answers, max_steps=200_000):
        for _ in range(max_steps):
            if all(answer.finished for answer in answers) and (
                answers or not self.scheduler.has_work
            ):
                return
            self.step()
        raise AssertionError("did not finish")

    def settle(self):
        """Let copies in the background end."""
        for _ in range(10_000):
            self.step()
            is_idle = self.manager.copies_down.is_idle and self.manager.retaining.is_idle
            if is_idle and not self.transfers.num_waiting():
                return
        raise AssertionError("transfers did not end")

    def ask(self, prompt, max_tokens=4, **more):
        answer = self.submit(prompt, max_tokens, **more)
        self.run(answer)
        return answer

    def cold(self, answer):
        return self.device.mind.cold(answer.prompt, answer.max_tokens, answer.stop)

    def check_drained(self):
        """Nothing is leased, reserved or lost once nothing runs."""
        self.settle()
        require(self.store)
        assert not self.store.private_pages
        assert not self.store.private_slots
        images = [node.image for node in self.store.tree.nodes() if node.image]
        slots = [i.replicas[0].location for i in images if i.replicas[0]]
        all_slots = [*slots, *self.store.free_slots, *self.manager.scratch.free]
        assert sorted(all_slots) == list(range(self.device.layout.num_all_slots))
        assert self.store.num_leased_pages == 0
        assert self.store.num_gone_pages == 0
        assert not self.device.open_lanes
        assert self.scheduler.num_rebuilt == 0
        for ledger, gone in zip(self.store.ledgers, self.store.gone_bytes, strict=True):
            assert ledger.reserved_bytes == 0
            assert gone == 0
        for node in self.store.tree.nodes():
            for stored in (node, node.image):
                for replica in stored.replicas if stored else ():
                    assert replica is None or (replica.leases == 0 and replica.is_valid)

    def flush(self):
        def wait():
            self.wake.wait(0.02)
            self.wake.clear()

        return self.manager.flush(10.0, wait)

    def close(self):
        self.transfers.close(5.0)
