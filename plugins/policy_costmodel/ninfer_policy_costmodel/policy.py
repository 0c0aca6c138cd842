"""The cost model: what is worth keeping, and what a plan costs. Knows nothing about how moves happen."""

import hashlib
import logging
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from ninfer.api import (
    Degraded,
    ImageFacts,
    ImageKind,
    OutcomeFacts,
    PlacementPolicy,
    PolicyContext,
    PrefillObserved,
    TransferObserved,
)
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.estimates import (
    Calibration,
    Estimates,
    PrefillSpeed,
    parse_calibration,
)

_log = logging.getLogger(__name__)

_SMALLEST_SECONDS: Final = 1e-9
_DEVICE_COPY_BYTES_PER_S: Final = 200e9
_RUNG_ODDS: Final = 1 / 16
"""How often a history is edited deep inside, against being continued at its end."""
_LN2: Final = math.log(2)
_NO_DECAY: Final = 1e-9
_EXACT_RECENCY: Final = 1e-9
"""Weight of the use counter: breaks ties of the clock, never anything else."""


class CostModelPolicy(PlacementPolicy):
    """The time at which an object will have been idle for too long: last use plus what its worth adds to that.

    An object that saves S seconds per byte and was used n times of late is taken to bring n x S x 2^(-idle / half
    life) from now on. All objects decay at one rate, so their order never changes while nobody uses them, and the
    logarithm without `now` ranks them for ever:

        value = last use + bonus
        bonus = half life x (log2 n + log2(S / d / S of a page at the start of a prompt)) + depth half life x log2 d
        n     = sum over uses of 2^(-time before the last use / uses half life), evenly spaced uses assumed
        d     = prefill cost where it lies / the same at the start of a prompt

    A session that was used every ten seconds and then ended looks as frequent as a shared prefix. What tells
    them apart is the object's own pace, so from the second use on the bonus is bounded:

        bonus <= grace + gaps x mean gap between its uses

    Source: LRFU (Lee et al., IEEE ToC 2001) for both decays, GreedyDual-Size-Frequency (Cherkasova 1998) for
    cost / bytes. Unlike GreedyDual's inflating base it needs no state, so values of different tiers compare.
    Replays: README.
    """

    def __init__(self, context: PolicyContext, config: CostModelConfig) -> None:
        """Read an earlier calibration, if there is one.

        Args:
            context: tiers, measurements of the core, cache folder.
            config: settings.
        """
        self._config = config
        self._context = context
        self._bytes_per_token = context.bytes_per_token
        self._path = _calibration_path(context)
        saved = _load(self._path) if config.save_calibration else Calibration()
        self._estimates = Estimates(
            context.tiers,
            prefill=_measured_prefill(context, config),
            saved=saved,
            learning_rate=config.learning_rate,
        )
        self._now_s = context.clock.monotonic_s()

    @classmethod
    def open(cls, context: PolicyContext, config: CostModelConfig) -> "CostModelPolicy":
        """Open the policy."""
        return cls(context, config)

    @override
    def keep_value(self, facts: ImageFacts) -> float:
        if not facts.is_reachable:
            return -math.inf
        config = self._config
        seconds, depth = self._worth(facts)
        uses = facts.num_uses
        recent_uses, longest_s = 1.0, math.inf
        if uses > 1:
            mean_gap_s = max(facts.last_use_s - facts.created_s, 0.0) / (uses - 1)
            recent_uses = self._recent_uses(uses, mean_gap_s)
            longest_s = config.grace_s + config.gaps * mean_gap_s
        reference = (facts.num_bytes or 1) * self._estimates.token_s * depth
        worth = recent_uses * seconds * self._bytes_per_token / reference
        bonus_s = config.half_life_s * math.log2(worth)
        if depth > 1.0:
            bonus_s += config.depth_half_life_s * math.log2(depth)
        if longest_s < bonus_s:
            bonus_s = longest_s
        return facts.last_use_s + bonus_s + facts.last_use_index * _EXACT_RECENCY

    def _recent_uses(self, uses: int, mean_gap_s: float) -> float:
        """Return the sum of 2^(-k x gap / half life) over the k-th last uses; all of them if there is no gap."""
        decay = mean_gap_s * _LN2 / self._config.uses_half_life_s
        if decay < _NO_DECAY:
            return float(uses)
        return math.expm1(-uses * decay) / math.expm1(-decay)

    def _worth(self, facts: ImageFacts) -> tuple[float, float]:
        """Return the seconds that a replica saves at its next use, and what part its position has in them.

        The second is the prefill cost at its position, as a multiple of that at the start of a prompt, where the
        prefill cost is what counts.
        """
        if facts.has_lower_replica:
            seconds, depth = self._seconds_lost(facts, facts.tier_index + 1), 1.0
        else:
            seconds, depth = self._seconds_lost(facts, None), self._depth(facts)
        if facts.has_device_replica:
            again_s = facts.num_bytes * self._estimates.per_byte_s(0, facts.tier_index)
            seconds, depth = min(seconds, again_s), 1.0
        odds = _RUNG_ODDS if facts.is_rung else 1.0
        return max(seconds, _SMALLEST_SECONDS) * odds, depth

    def _depth(self, facts: ImageFacts) -> float:
        """Return the prefill cost where an object lies, as a multiple of that at the start of a prompt."""
        if not self._estimates.grows_with_position:
            return 1.0
        num_tokens = self._share_tokens(facts)
        here_s = self._estimates.prefill_s(facts.position_tokens - num_tokens, num_tokens)
        return here_s / self._estimates.prefill_s(0, num_tokens)

    @override
    def price_s(self, outcome: OutcomeFacts) -> float:
        moving = sum(
            self._estimates.transfer_s(cost.source_index, cost.target_index, cost.num_bytes)
            for cost in outcome.transfers
        )
        computing = self._estimates.prefill_s(outcome.resume_tokens, outcome.prefill_tokens)
        copying = outcome.copy_bytes / _DEVICE_COPY_BYTES_PER_S
        return moving + computing + copying + self._expected_loss_s(outcome.degraded)

    @override
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        is_lower = facts.tier_index < target_index < len(self._context.tiers)
        if not facts.is_reachable or not is_lower:
            return False
        restore_s = facts.num_bytes * self._estimates.per_byte_s(target_index, 0)
        if restore_s >= self._recompute_s(facts):
            return False
        return self._is_fast(target_index) or facts.num_uses >= self._config.disk_min_uses

    @override
    def observe_transfer(self, observed: TransferObserved) -> None:
        self._now_s = self._context.clock.monotonic_s()
        self._estimates.observe_transfer(
            observed.source_index, observed.target_index, observed.num_bytes, observed.seconds
        )

    @override
    def observe_prefill(self, observed: PrefillObserved) -> None:
        self._now_s = self._context.clock.monotonic_s()
        if not self._config.recompute_tokens_per_s:
            self._estimates.observe_prefill(
                observed.start_tokens, observed.num_tokens, observed.seconds
            )

    @override
    def close(self) -> None:
        if not self._config.save_calibration:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self._path.with_suffix(".new")
            beside.write_text(
                self._estimates.calibration().model_dump_json(indent=1), encoding="utf-8"
            )
            beside.replace(self._path)
        except OSError as error:
            _log.warning("calibration_not_saved path=%s error=%s", self._path, error)

    def _is_fast(self, tier_index: int) -> bool:
        measured = self._context.tiers[tier_index].read_bytes_per_s
        return measured >= self._config.fast_tier_bytes_per_s if measured else tier_index == 1

    def _recompute_s(self, facts: ImageFacts) -> float:
        """Return the prefill seconds that this object's share of the lost tokens takes."""
        num_tokens = self._share_tokens(facts)
        return self._estimates.prefill_s(facts.position_tokens - num_tokens, num_tokens)

    def _share_tokens(self, facts: ImageFacts) -> int:
        """Return the lost tokens that this object answers for.

        All pages between two resume points name the same distance; each answers for its own tokens, so that
        they sum to the distance. A state image answers for all of it.
        """
        num_tokens = facts.lost_tokens
        if facts.kind is ImageKind.PAGE:
            own = facts.num_bytes // self._bytes_per_token
            if own < num_tokens:
                num_tokens = own
        return num_tokens if num_tokens > 1 else 1

    def _seconds_lost(self, facts: ImageFacts, remaining_tier: int | None) -> float:
        """Return the seconds that the next use takes longer when only the replica on `remaining_tier` is left."""
        num_bytes, estimates = facts.num_bytes, self._estimates
        later_s = self._recompute_s(facts)
        if remaining_tier is not None:
            restore_s = num_bytes * estimates.per_byte_s(remaining_tier, 0)
            if restore_s < later_s:
                later_s = restore_s
        if facts.tier_index:
            later_s -= num_bytes * estimates.per_byte_s(facts.tier_index, 0)
        return later_s if later_s > 0.0 else 0.0

    def _expected_loss_s(self, degraded: Sequence[Degraded]) -> float:
        """Return the seconds that later uses of what is degraded are expected to take longer."""
        # Pages of one path were nearly always used together.
        known: dict[tuple[int, float, bool], float] = {}
        total_s = 0.0
        for each in degraded:
            facts = each.facts
            if not facts.is_reachable:
                continue
            uses = (facts.num_uses, facts.last_use_s, facts.is_rung)
            probability = known.get(uses)
            if probability is None:
                probability = known[uses] = self._probability(facts)
            total_s += probability * self._seconds_lost(facts, each.target_index)
        return total_s

    def _probability(self, facts: ImageFacts) -> float:
        """Return how likely an object is used again."""
        idle_s = max(self._now_s - facts.last_use_s, 0.0)
        never_again = (1 - self._config.return_probability) ** max(facts.num_uses, 1)
        odds = _RUNG_ODDS if facts.is_rung else 1.0
        return odds * (1 - never_again) * 2 ** (-idle_s / self._config.half_life_s)


def _measured_prefill(context: PolicyContext, config: CostModelConfig) -> PrefillSpeed | None:
    tokens_per_s = config.recompute_tokens_per_s or context.prefill_tokens_per_s
    if not tokens_per_s:
        return None
    return PrefillSpeed(
        seconds_per_token=1 / tokens_per_s,
        seconds_per_token_squared=context.prefill_seconds_per_token_squared,
    )


def _calibration_path(context: PolicyContext) -> Path:
    """Return the file of this model on this machine."""
    machine = hashlib.sha256("/".join(platform.uname()).encode()).hexdigest()[:12]
    name = f"{context.model_fingerprint.hex()[:32] or 'model'}-{machine}.json"
    return context.cache_dir / "policy_costmodel" / name


def _load(path: Path) -> Calibration:
    try:
        return parse_calibration(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return Calibration()
