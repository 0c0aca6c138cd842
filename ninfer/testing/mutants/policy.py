"""Policies that are wrong on purpose, one per requirement; `SoundPolicy` beside them is right.

Each is the sound policy with one mistake that somebody might make.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final
from weakref import WeakSet

from typing_extensions import override

from ninfer.api import (
    Degraded,
    ImageFacts,
    ImageKind,
    OutcomeFacts,
    PolicyContext,
    TransferObserved,
)
from ninfer.testing.mutants.sound_policy import SoundPolicy


class InfiniteForLargeObjects(SoundPolicy):
    """Never wants to give up what is very large."""

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return math.inf if facts.num_bytes >= 1 << 44 else super().keep_value(facts)


class ForgetsDeath(SoundPolicy):
    """Ranks dead objects by their last use like any other."""

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return super().keep_value(replace(facts, is_reachable=True))


class AgesWhenAsked(SoundPolicy):
    """Adds a little to the value each time it is asked."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._asked = count()

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return super().keep_value(facts) + next(self._asked) * 1e-9


class OldStatesFirst(SoundPolicy):
    """Keeps the state images that were used longest ago."""

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        is_live_state = facts.kind is ImageKind.STATE and facts.is_reachable
        return 1 / (1 + facts.last_use_s) if is_live_state else super().keep_value(facts)


class PricesByTheClock(SoundPolicy):
    """Discounts a price by the time of day."""

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        return super().price_s(outcome) * (1 + self.context.clock.monotonic_s() / 1e9)


class Refunds(SoundPolicy):
    """Refunds a fixed sum for every outcome, so that cheap ones cost less than nothing."""

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        return super().price_s(outcome) - 0.01


class CountsBytesIn32Bits(SoundPolicy):
    """Adds up bytes in 32 bits."""

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        wrapped = [
            replace(moved, num_bytes=moved.num_bytes % (1 << 32)) for moved in outcome.transfers
        ]
        return super().price_s(replace(outcome, transfers=wrapped))


class CountsTokensIn16Bits(SoundPolicy):
    """Counts tokens to prefill in 16 bits."""

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        return super().price_s(replace(outcome, prefill_tokens=outcome.prefill_tokens % (1 << 16)))


class AveragesLosses(SoundPolicy):
    """Takes the mean of what is lost for its sum."""

    @override
    def loss_s(self, outcome: OutcomeFacts) -> float:
        return super().loss_s(outcome) / max(len(outcome.degraded), 1)


class SaltsInstances(SoundPolicy):
    """Breaks ties by the number of the instance."""

    _numbers: ClassVar["count[int]"] = count()

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._salt = next(self._numbers) * 1e-6

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return super().keep_value(facts) + self._salt


class CopiesTheDead(SoundPolicy):
    """Copies down whatever became idle."""

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        return target_index == facts.tier_index + 1


class SortsVictims(SoundPolicy):
    """Sorts the victims that it was handed, in place."""

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        if isinstance(outcome.degraded, list):
            outcome.degraded.sort(key=_num_bytes, reverse=True)
        return super().price_s(outcome)


def _num_bytes(degraded: Degraded) -> int:
    return degraded.facts.num_bytes


class FirstInFirstOut(SoundPolicy):
    """Gives up what was stored first, however much it is used."""

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        return facts.created_s if facts.is_reachable else -1.0


class TakesRoots(SoundPolicy):
    """Takes the square root of an evicted value."""

    @override
    def evicted(self, value: float) -> None:
        self._base = math.sqrt(value)


class DividesByTime(SoundPolicy):
    """Divides by the duration of what it observes."""

    @override
    def observe_transfer(self, observed: TransferObserved) -> None:
        self._speed = observed.num_bytes / observed.seconds
        super().observe_transfer(observed)


class LooksAtAllItSaw(SoundPolicy):
    """Compares each object with all that it was asked about before."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._seen: dict[int, float] = {}

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        self._seen[facts.last_use_index] = facts.last_use_s
        sum(last_use_s > facts.last_use_s for last_use_s in self._seen.values())
        return super().keep_value(facts)


class WritesALog(SoundPolicy):
    """Notes every value in a file."""

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        value = super().keep_value(facts)
        with Path(os.devnull).open("a", encoding="utf-8") as log:
            log.write(f"{value}\n")
        return value


class RefusesItsOwnFile(SoundPolicy):
    """Opens once: takes an intact calibration for a policy that is still open."""

    _saved: ClassVar[set[str]] = set()

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        if self.path.is_file() and self.path.read_bytes().hex() in self._saved:
            raise RuntimeError("already open")

    @override
    def close(self) -> None:
        super().close()
        if self.path.is_file():
            self._saved.add(self.path.read_bytes().hex())


class TrustsItsFile(SoundPolicy):
    """Takes whatever is in its file for what it wrote."""

    @override
    def load(self) -> Mapping[str, float]:
        if not self.path.is_file():
            return {}
        return dict(json.loads(self.path.read_text(encoding="utf-8")))


class NeedsItsFolder(SoundPolicy):
    """Expects that the cache folder can be made."""

    @override
    def close(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        super().close()


class WritesBesideOthers(SoundPolicy):
    """Keeps its file directly in the cache folder."""

    @override
    def folder_of(self, context: PolicyContext) -> Path:
        return context.cache_dir


class TrustsOtherModels(SoundPolicy):
    """Keeps one calibration for all models."""

    @override
    def name_of(self, context: PolicyContext) -> str:
        return "calibration.json"


class NeedsALowerTier(SoundPolicy):
    """Looks at the second tier without looking whether there is one."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._second = context.tiers[1]


class ClosesAll(SoundPolicy):
    """Keeps its only resource in the class, so the first close takes it from all."""

    _open: ClassVar[WeakSet["ClosesAll"]] = WeakSet()

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._is_closed = False
        self._open.add(self)

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        if self._is_closed:
            raise RuntimeError("closed")
        return super().keep_value(facts)

    @override
    def close(self) -> None:
        super().close()
        for each in self._open:
            each._is_closed = True  # noqa: SLF001 - the mistake


POLICY_MUTANTS: Final[Mapping[str, type[SoundPolicy]]] = MappingProxyType({
    "POLICY-01": InfiniteForLargeObjects,
    "POLICY-02": ForgetsDeath,
    "POLICY-03": AgesWhenAsked,
    "POLICY-04": OldStatesFirst,
    "POLICY-05": PricesByTheClock,
    "POLICY-06": Refunds,
    "POLICY-07": CountsBytesIn32Bits,
    "POLICY-08": CountsTokensIn16Bits,
    "POLICY-09": AveragesLosses,
    "POLICY-10": SaltsInstances,
    "POLICY-11": CopiesTheDead,
    "POLICY-12": SortsVictims,
    "POLICY-13": FirstInFirstOut,
    "POLICY-14": TakesRoots,
    "POLICY-15": DividesByTime,
    "POLICY-16": LooksAtAllItSaw,
    "POLICY-17": WritesALog,
    "POLICY-18": RefusesItsOwnFile,
    "POLICY-19": TrustsItsFile,
    "POLICY-20": NeedsItsFolder,
    "POLICY-21": WritesBesideOthers,
    "POLICY-22": TrustsOtherModels,
    "POLICY-23": NeedsALowerTier,
    "POLICY-24": ClosesAll,
})
"""Requirement -> the policy that fails it and no other."""
