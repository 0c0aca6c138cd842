"""A small policy that keeps every requirement, the base of those that do not. Knows nothing about their mistakes."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from typing_extensions import override

from ninfer.api import (
    ImageFacts,
    OutcomeFacts,
    PlacementPolicy,
    PolicyContext,
    PrefillObserved,
    TransferObserved,
)

_RATE: Final = 0.1
_DEFAULTS: Final = {"seconds_per_byte": 1e-9, "seconds_per_token": 1e-3}


class SoundPolicy(PlacementPolicy):
    """Least recently used first; prices by one speed of transfers and one of prefill, learned and saved.

    Args:
        context: of the core.

    Attributes:
        context: the same.
        folder: where it saves.
        path: what it saves there.
    """

    def __init__(self, context: PolicyContext) -> None:
        """Read what was saved."""
        self.context = context
        self.folder = self.folder_of(context)
        self.path = self.folder / self.name_of(context)
        self._seconds: dict[str, float] = {**_DEFAULTS, **self.load()}

    def folder_of(self, context: PolicyContext) -> Path:
        """Return the folder for files."""
        return context.cache_dir / "sound"

    def name_of(self, context: PolicyContext) -> str:
        """Return the name of the file for a model."""
        return f"{context.model_fingerprint.hex()}.json"

    def load(self) -> Mapping[str, float]:
        """Return what was saved, nothing if it is not what was written."""
        try:
            loaded = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(loaded, dict) or loaded.keys() != _DEFAULTS.keys():
            return {}
        are_numbers = all(isinstance(number, float) for number in loaded.values())
        return loaded if are_numbers and all(1e-15 < n < 10 for n in loaded.values()) else {}

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        if not facts.is_reachable:
            return -math.inf
        return facts.last_use_s + facts.last_use_index * 1e-9

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        num_bytes = outcome.copy_bytes + sum(moved.num_bytes for moved in outcome.transfers)
        moving = num_bytes * self._seconds["seconds_per_byte"]
        computing = outcome.prefill_tokens * self._seconds["seconds_per_token"]
        return moving + computing + self.loss_s(outcome)

    def loss_s(self, outcome: OutcomeFacts) -> float:
        """Return the seconds expected to be lost later."""
        per_token = self._seconds["seconds_per_token"]
        lost = [
            degraded.facts.lost_tokens * (per_token if degraded.target_index is None else 1e-9)
            for degraded in outcome.degraded
            if degraded.facts.is_reachable
        ]
        return math.fsum(lost)

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        return facts.is_reachable and target_index == facts.tier_index + 1

    @override
    def observe_transfer(self, observed: TransferObserved) -> None:
        self._learn("seconds_per_byte", observed.num_bytes, observed.seconds)

    @override
    def observe_prefill(self, observed: PrefillObserved) -> None:
        self._learn("seconds_per_token", observed.num_tokens, observed.seconds)

    def _learn(self, name: str, count: int, seconds: float) -> None:
        if count and seconds:
            measured = min(max(seconds / count, 1e-12), 1.0)
            self._seconds[name] += _RATE * (measured - self._seconds[name])

    @override
    def close(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self._seconds), encoding="utf-8")
        except OSError:
            return
