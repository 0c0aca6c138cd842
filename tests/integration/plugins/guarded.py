"""An engine over the fake device whose plugins are faulty, each behind its guard as `engine/open_plugins.py` puts it."""

import dataclasses
import threading

from ninfer.api import DecoderContext, MatcherContext
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.builtin.ngram import NgramConfig, NgramDecoder
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.cache.matcher_handle import MatcherHandle
from ninfer.cache.policy_handle import PolicyHandle
from ninfer.core.plugin_guard import PluginGuard
from ninfer.core.plugin_identity import PluginIdentity
from ninfer.engine.plugin_watch import PluginWatch
from ninfer.engine.service import EngineService
from ninfer.obs.model_info import ModelInfo
from ninfer.sched.decoder_handle import DecoderHandle
from ninfer.testing.clock import FakeClock
from tests.integration.scenarios.conversation import VOCAB, Session, ended, engine, host

BUDGET_S = 0.05
PLUGIN, DISTRIBUTION = "acme_plugin", "acme-plugin 1.2"


class Faulty:
    """Passes every call on to a sound object, except where a test put something in its way.

    Attributes:
        faults: by method, called in its place with the sound method and the arguments.
        calls: number of calls by method.
    """

    def __init__(self, sound, **faults):
        self.sound, self.faults, self.calls = sound, faults, {}

    def __getattr__(self, name):
        method = getattr(self.sound, name)
        if not callable(method):
            return method

        def call(*arguments):
            self.calls[name] = self.calls.get(name, 0) + 1
            fault = self.faults.get(name)
            return fault(method, *arguments) if fault else method(*arguments)

        return call


class Panic(BaseException):
    """What native code raises when it panics: no Exception."""


class Speechless(Exception):
    """An exception whose text cannot be made."""

    def __str__(self):
        raise RuntimeError("no text")


def returns(answer):
    return lambda method, *arguments: answer


def raises(error):
    def fault(method, *arguments):
        raise error

    return fault


class GuardedEngine:
    """An engine with one faulty plugin, and the reports about it."""

    def __init__(self, family, faults, *, has_state=False, tier_pages=100, num_pages=32):
        self.clock = FakeClock()
        self.guard = PluginGuard(
            PluginIdentity(family=family, name="x", plugin=PLUGIN, distribution=DISTRIBUTION),
            self.clock,
            budget_s=BUDGET_S,
            instead="something else answers",
        )
        self.plugin = None
        self.faults = faults
        draft_tokens = 3 if family == "decoder" else 0
        policy = self._policy if family == "policy" else None
        self.harness = engine(
            num_pages,
            host(tier_pages),
            has_state=has_state,
            policy=policy,
            draft_tokens=draft_tokens,
        )
        if family == "matcher":
            self.harness.manager._planner._matcher = self._matcher()
        if family == "decoder":
            self.harness.scheduler._drafting._decoder = self._decoder()
        loop = self.harness.loop
        self.watch = PluginWatch([self.guard], self.harness.handles)
        loop.parts = dataclasses.replace(loop.parts, watch=self.watch)
        self.guard.on_aside = lambda: loop.command(self.harness.manager.rebuild_victims)
        info = ModelInfo(
            name="fake",
            max_context_tokens=4096,
            vocab_size=VOCAB,
            kv_capacity_tokens=4096,
            created_unix=0,
        )
        self.service = EngineService(
            loop, threading.current_thread(), info, max_queue=9, is_cache_enabled=True
        )

    def _policy(self, context):
        fallback = LruPolicy.open(context, LruConfig())
        self.plugin = Faulty(LruPolicy.open(context, LruConfig()), **self.faults)
        return PolicyHandle(self.plugin, fallback=fallback, guard=self.guard)

    def _matcher(self):
        fallback = RadixMatcher.open(MatcherContext(), RadixConfig())
        self.plugin = Faulty(RadixMatcher.open(MatcherContext(), RadixConfig()), **self.faults)
        return MatcherHandle(self.plugin, fallback=fallback, guard=self.guard)

    def _decoder(self):
        context = DecoderContext(clock=self.clock, model=None, max_lanes=4, max_draft_tokens=3)
        sound = NgramDecoder.open(context, NgramConfig(min_ngram=1, max_ngram=3))
        self.plugin = Faulty(sound, **self.faults)
        return DecoderHandle(self.plugin, vocab_size=VOCAB, guard=self.guard)

    def work(self, *, num_rounds=4, max_tokens=12):
        """Three conversations of which the device holds two; every answer is that of an engine without a cache."""
        sessions = [Session(self.harness, name, 700) for name in "ABC"]
        for _ in range(num_rounds):
            for session in sessions:
                session.turn(max_tokens=max_tokens)
                self.harness.loop.drain_commands()
        return self.harness

    def end(self):
        self.harness.loop.drain_commands()
        ended(self.harness)

    def health(self):
        return self.service.health()
