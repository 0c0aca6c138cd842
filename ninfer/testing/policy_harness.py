"""How the policy suite opens policies and asks them. Contains no test."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar, Final, Self

from typing_extensions import override

from ninfer.api import (
    ImageFacts,
    OutcomeFacts,
    PlacementPolicy,
    PluginConfig,
    PolicyContext,
    PolicyProvider,
    TierFacts,
    TransferObserved,
)
from ninfer.testing.base import ConformanceSuite
from ninfer.testing.policy_facts import (
    BYTES_PER_TOKEN,
    NUM_TIERS,
    ORDINARY_FACTS,
    ORDINARY_OUTCOMES,
    STATE_BYTES,
    TIERS,
    Observation,
)

FINGERPRINT: Final = bytes(range(32))
PREFILL_TOKENS_PER_S: Final = 4_000.0
_LEAST_SECONDS: Final = 1e-9
"""Sums of seconds may differ by rounding."""


class PolicyHarness(ConformanceSuite):
    """Opens policies below the folder of the test and asks them. A subclass says how to open one."""

    kind: ClassVar[str] = "policy"
    _untaught: PlacementPolicy | None = None

    @abstractmethod
    def open_policy(self, context: PolicyContext) -> PlacementPolicy:
        """Return a new policy; opened again on the same `context.cache_dir` it may find what it saved."""

    @classmethod
    @override
    def bound_to(cls, provider: PolicyProvider[PluginConfig]) -> type[Self]:
        def open_policy(self: Self, context: PolicyContext) -> PlacementPolicy:
            return provider.open(context, provider.sample_config(self.folder))

        return cls.derived(f"Test_{provider.kind}", {"open_policy": open_policy})

    def context(
        self,
        cache_dir: Path | None = None,
        *,
        tiers: Sequence[TierFacts] = TIERS,
        prefill_tokens_per_s: float = PREFILL_TOKENS_PER_S,
        fingerprint: bytes = FINGERPRINT,
    ) -> PolicyContext:
        """Return what the core would hand to a policy.

        Args:
            cache_dir: None takes a folder that no other policy of this test has.
            tiers: fastest first.
            prefill_tokens_per_s: 0.0 if unknown.
            fingerprint: of the model.
        """
        return PolicyContext(
            clock=self.clock,
            tiers=tiers,
            model_fingerprint=fingerprint,
            cache_dir=self.new_folder() if cache_dir is None else cache_dir,
            bytes_per_token=BYTES_PER_TOKEN,
            state_image_bytes=STATE_BYTES,
            prefill_tokens_per_s=prefill_tokens_per_s,
        )

    def new_folder(self) -> Path:
        """Return an empty folder that nothing else of this test uses."""
        return Path(mkdtemp(prefix="cache-", dir=self.folder))

    def opened(self, context: PolicyContext | None = None) -> closing[PlacementPolicy]:
        """Return a policy that is closed at the end of a `with` block."""
        return closing(self.open_policy(context or self.context()))

    def policy(self) -> PlacementPolicy:
        """Return a policy that is closed at the end of the test."""
        opened = self.open_policy(self.context())
        self.at_end(opened.close)
        return opened

    @contextmanager
    def taught(self, history: Sequence[Observation]) -> Iterator[PlacementPolicy]:
        """Lend a policy that observed a history; without one the same policy all test long."""
        if not history:
            if self._untaught is None:
                self._untaught = self.policy()
            yield self._untaught
            return
        with self.opened() as policy:
            teach(policy, history)
            yield policy

    def expect_sound(
        self, what: str, policy: PlacementPolicy, *, num_tiers: int = NUM_TIERS
    ) -> None:
        """Fail the requirement unless ordinary questions get answers that are numbers in range.

        Args:
            what: what was done with the policy before.
            policy: to be asked.
            num_tiers: tiers that it was opened with.
        """
        for facts in ORDINARY_FACTS:
            if facts.tier_index < num_tiers:
                self.expect_value(f"{what}: keep_value({facts})", policy.keep_value(facts), facts)
        for outcome in ORDINARY_OUTCOMES:
            if _num_tiers_of(outcome) <= num_tiers:
                self.expect_price(f"{what}: price_s({outcome})", policy.price_s(copy_of(outcome)))

    def expect_value(self, what: str, value: object, facts: ImageFacts) -> None:
        """Fail the requirement unless a value is a finite number; minus infinity is fine for dead objects."""
        number = _number(value)
        is_fine = math.isfinite(number) or (number == -math.inf and not facts.is_reachable)
        self.expect_that(what, holds=is_fine, got=value, wanted="a finite number")

    def expect_price(self, what: str, price: object) -> None:
        """Fail the requirement unless a price is a finite number of seconds, at least 0."""
        self.expect_that(
            what,
            holds=0 <= _number(price) < math.inf,
            got=price,
            wanted="a finite number, at least 0",
            unit="s",
        )

    def expect_not_cheaper(
        self, what: str, policy: PlacementPolicy, less: OutcomeFacts, more: OutcomeFacts
    ) -> None:
        """Fail the requirement if an outcome that costs more of something is priced lower.

        Args:
            what: what there is more of.
            policy: asked for both prices.
            less: one outcome.
            more: the same with more of something.
        """
        low, high = policy.price_s(copy_of(less)), policy.price_s(copy_of(more))
        least = low - max(abs(low), 1.0) * _LEAST_SECONDS
        if high < least:
            self.expect_that(
                f"price with {what} ({more} instead of {less})",
                holds=False,
                got=high,
                wanted=f"at least {low}",
                unit="s",
            )


def _number(answer: object) -> float:
    """Return an answer as a float, NaN if it is no number."""
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return math.nan
    return float(answer)


def teach(policy: PlacementPolicy, history: Iterable[Observation]) -> None:
    """Let a policy observe what happened, in order."""
    for observed in history:
        if isinstance(observed, TransferObserved):
            policy.observe_transfer(observed)
        else:
            policy.observe_prefill(observed)


def copy_of(outcome: OutcomeFacts) -> OutcomeFacts:
    """Return an equal outcome with lists of its own, so that no question can spoil the next."""
    return replace(outcome, transfers=list(outcome.transfers), degraded=list(outcome.degraded))


def answers_of(policy: PlacementPolicy) -> list[object]:
    """Return a policy's answers to the ordinary questions, in a fixed order."""
    answers: list[object] = [policy.keep_value(facts) for facts in ORDINARY_FACTS]
    answers += prices_of(policy)
    answers += [
        policy.wants_copy(facts, target)
        for facts in ORDINARY_FACTS
        for target in range(facts.tier_index + 1, NUM_TIERS)
    ]
    return answers


def prices_of(policy: PlacementPolicy) -> list[float]:
    """Return a policy's prices of the ordinary outcomes."""
    return [policy.price_s(copy_of(outcome)) for outcome in ORDINARY_OUTCOMES]


def _num_tiers_of(outcome: OutcomeFacts) -> int:
    """Return how many tiers an outcome speaks about."""
    named = [0]
    for cost in outcome.transfers:
        named += [cost.source_index, cost.target_index]
    for degraded in outcome.degraded:
        named += [degraded.facts.tier_index, degraded.target_index or 0]
    return max(named) + 1
