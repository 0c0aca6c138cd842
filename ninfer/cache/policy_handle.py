"""The placement policy as the core uses it: wrong answers and faults are replaced. Values nothing itself."""

import math
from types import MethodType

from typing_extensions import override

from ninfer.api import (
    ImageFacts,
    OutcomeFacts,
    PlacementPolicy,
    PrefillObserved,
    TransferObserved,
)
from ninfer.core.plugin_guard import PluginGuard, WrongAnswer


class PolicyHandle(PlacementPolicy):
    """A plugin's policy behind a guard. Whatever it does, values are numbers and answers are booleans.

    Args:
        policy: the plugin's.
        fallback: answers when the plugin does not.
        guard: counts faults.
    """

    def __init__(
        self, policy: PlacementPolicy, *, fallback: PlacementPolicy, guard: PluginGuard
    ) -> None:
        """Wrap a policy that is open."""
        self._policy = policy
        self._fallback = fallback
        self._guard = guard
        # Most policies learn nothing from it, and it would be told for every victim.
        self._learns_evicted = any(
            each.evicted != MethodType(PlacementPolicy.evicted, each) for each in (policy, fallback)
        )

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return self._guard.ask("keep_value", self._value, self._fallback.keep_value, facts)

    def _value(self, facts: ImageFacts) -> float:
        value = self._policy.keep_value(facts)
        if (
            type(value) is float and value == value
        ):  # all but wrong answers; equal to itself: not NaN
            return value
        return _number(value)

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        return self._guard.ask("price_s", self._price_s, self._fallback.price_s, outcome)

    def _price_s(self, outcome: OutcomeFacts) -> float:
        return _number(self._policy.price_s(outcome))

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        return self._guard.ask(
            "wants_copy", self._wants_copy, self._fallback.wants_copy, facts, target_index
        )

    def _wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        answer: object = self._policy.wants_copy(facts, target_index)
        if not isinstance(answer, bool):
            raise WrongAnswer(f"returned {_shown(answer)}, not True or False")
        return answer

    @override
    def evicted(self, value: float) -> None:
        if self._learns_evicted:
            self._guard.ask("evicted", self._policy.evicted, self._fallback.evicted, value)

    @override
    def observe_transfer(self, observed: TransferObserved) -> None:
        self._guard.ask(
            "observe_transfer",
            self._policy.observe_transfer,
            self._fallback.observe_transfer,
            observed,
        )

    @override
    def observe_prefill(self, observed: PrefillObserved) -> None:
        self._guard.ask(
            "observe_prefill",
            self._policy.observe_prefill,
            self._fallback.observe_prefill,
            observed,
        )

    @override
    def close(self) -> None:
        self._guard.close(self._policy.close)


def _number(value: object) -> float:
    """Return a value that can be compared; infinite ones are allowed.

    Raises:
        WrongAnswer: it is not a number, or not comparable.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WrongAnswer(f"returned {_shown(value)}, not a number")
    if math.isnan(value):
        raise WrongAnswer("returned nan, which has no place in an order")
    return float(value)


def _shown(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"
