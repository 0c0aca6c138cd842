"""Opens the configured plugins behind their guards. Every one is tried, and all that fail are in one report."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from ninfer.api import (
    CheckpointMatcher,
    Clock,
    DecoderContext,
    HostAllocator,
    MatcherContext,
    ModelAccess,
    PlacementPolicy,
    PolicyContext,
    SpeculativeDecoder,
    TierContext,
)
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.cache.matcher_handle import MatcherHandle
from ninfer.cache.policy_handle import PolicyHandle
from ninfer.cache.recovery import by_value
from ninfer.cache.tier_handle import TierHandle
from ninfer.config.settings import Settings
from ninfer.core.plugin_guard import PluginGuard
from ninfer.core.plugin_identity import PluginIdentity
from ninfer.core.step import PAGE_SIZE_TOKENS, DeviceLayout
from ninfer.plugins.opening import (
    OpenFailed,
    open_decoder,
    open_matcher,
    open_policy,
    open_report,
    open_tier,
)
from ninfer.plugins.selection import Chosen, Selection
from ninfer.sched.decoder_handle import DecoderHandle

T = TypeVar("T")

TIER_BUDGETS: Final = 20
"""A tier is asked for a size once, so a pause of a busy machine in that call would never be forgiven."""
DECODER_BUDGETS: Final = 100
"""A decoder computes, so its calls may take so many times longer than those of policies and matchers."""


class PluginOpener:
    """Opens one set of plugins.

    Args:
        settings: all of them.
        selection: what they picked.
        clock: source of time.

    Attributes:
        guards: of everything that is called on the engine thread.
        handles: tiers below the device, fastest first.
    """

    def __init__(self, settings: Settings, selection: Selection, clock: Clock) -> None:
        """Open nothing yet."""
        self.guards: list[PluginGuard] = []
        self.handles: list[TierHandle] = []
        self._settings = settings
        self._selection = selection
        self._clock = clock
        self._failures: list[OpenFailed] = []
        self._closers: list[Callable[[], None]] = []

    def decoder(self, model: ModelAccess) -> tuple[SpeculativeDecoder | None, int]:
        """Open the speculative decoder; returns it with the length of its drafts, None and 0 if there is none."""
        chosen, num_drafts = self._selection.decoder, self._settings.spec.draft_tokens
        if chosen is None or not num_drafts:
            return None, 0
        if self._selection.is_decoder_auto and not model.has_mtp_head:
            return None, 0
        context = DecoderContext(
            clock=self._clock,
            model=model,
            max_lanes=self._settings.engine.max_concurrency,
            max_draft_tokens=num_drafts,
        )
        decoder = self._try(open_decoder, chosen, context)
        if decoder is None:
            return None, num_drafts
        guard = self._guard(chosen, "nothing is drafted", budgets=DECODER_BUDGETS)
        handle = DecoderHandle(decoder, vocab_size=model.vocab_size, guard=guard)
        self._closers.append(handle.close)
        return handle, num_drafts

    def tiers(
        self, layout: DeviceLayout, fingerprint: bytes, host: HostAllocator, *, model_name: str
    ) -> list[TierHandle]:
        """Open all tiers below the device, fastest first."""
        for chosen in self._selection.tiers:
            context = TierContext(
                tier_name=chosen.name,
                fingerprint=fingerprint,
                clock=self._clock,
                host_allocator=host,
                model_name=model_name,
                page_image_bytes=layout.page_image_bytes,
                state_image_bytes=layout.state_image_bytes,
                cache_dir=self._settings.cache.dir,
                by_value=partial(by_value, now_unix_s=self._clock.unix_s()),
            )
            tier = self._try(open_tier, chosen, context)
            if tier is not None:
                handle = TierHandle(
                    chosen.name,
                    tier,
                    plugin=chosen.record.name,
                    distribution=chosen.record.origin,
                    clock=self._clock,
                    call_budget_s=self._settings.plugins.call_budget * TIER_BUDGETS,
                )
                self._take(chosen, handle)
        return self.handles

    def _take(self, chosen: Chosen[Any], handle: TierHandle) -> None:
        """Keep a tier that says how large it is."""
        handle.usage()
        if problems := handle.problems():
            self._failures.append(OpenFailed(chosen, problems[0]))
        self.guards.append(handle.guard)
        self.handles.append(handle)
        self._closers.append(handle.close)

    def matcher(self) -> CheckpointMatcher:
        """Open the checkpoint matcher; without the cache, the built-in one."""
        context = MatcherContext(page_size_tokens=PAGE_SIZE_TOKENS)
        fallback = RadixMatcher.open(context, RadixConfig())
        chosen = self._selection.matcher
        matcher = self._try(open_matcher, chosen, context) if chosen is not None else None
        if chosen is None or matcher is None:
            return fallback
        guard = self._guard(chosen, "the matcher radix answers")
        handle = MatcherHandle(matcher, fallback=fallback, guard=guard)
        self._closers.append(handle.close)
        return handle

    def policy(self, context: PolicyContext) -> PlacementPolicy:
        """Open the placement policy; without the cache, the built-in one. Not tried if a tier failed."""
        fallback = LruPolicy.open(context, LruConfig())
        chosen = self._selection.policy
        is_complete = len(self.handles) == len(self._selection.tiers)
        if chosen is None or not is_complete:
            return fallback
        policy = self._try(open_policy, chosen, context)
        if policy is None:
            return fallback
        guard = self._guard(chosen, "the policy lru answers")
        handle = PolicyHandle(policy, fallback=fallback, guard=guard)
        self._closers.append(handle.close)
        return handle

    def on_policy_aside(self, revalue: Callable[[], None]) -> None:
        """Have everything valued anew when the policy is put aside: values of two policies do not compare."""
        for guard in self.guards:
            if guard.identity.family == "policy":
                guard.on_aside = revalue

    def check(self) -> None:
        """Raise if anything did not open; what did is closed.

        Raises:
            PluginError: one report of all failures.
        """
        if self._failures:
            self.close()
            raise open_report(self._failures)

    def close(self) -> None:
        """Close everything that was opened, tiers after what decides about them."""
        for close in self._closers:
            close()
        self._closers.clear()

    def _try(
        self, opener: Callable[[Chosen[Any], Any], T], chosen: Chosen[Any], context: object
    ) -> T | None:
        try:
            return opener(chosen, context)
        except OpenFailed as failure:
            self._failures.append(failure)
            return None

    def _guard(self, chosen: Chosen[Any], instead: str, *, budgets: int = 1) -> PluginGuard:
        identity = PluginIdentity(
            family=chosen.use.family.value,
            name=chosen.name,
            plugin=chosen.record.name,
            distribution=chosen.record.origin,
        )
        guard = PluginGuard(
            identity,
            self._clock,
            budget_s=self._settings.plugins.call_budget * budgets,
            instead=instead,
        )
        self.guards.append(guard)
        return guard
