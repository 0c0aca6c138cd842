"""The contract of a placement policy: what is worth keeping where. Knows nothing about how moves happen."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ninfer.api.clock import Clock
from ninfer.api.image import ImageKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """A tier as a policy sees it, fastest first; index 0 is the device.

    Attributes:
        tier_name: instance name.
        capacity_bytes: bytes it may hold.
        read_bytes_per_s: measured speed towards the device, 0.0 if not measured yet. The device reads from
            itself for free.
        write_bytes_per_s: measured speed from the device, 0.0 if not measured yet.
        read_latency_s: measured fixed time of one batch of reads.
    """

    tier_name: str
    capacity_bytes: int
    read_bytes_per_s: float = 0.0
    write_bytes_per_s: float = 0.0
    read_latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What the core hands to a policy when it opens it. Grows by fields with defaults.

    Attributes:
        clock: source of time.
        tiers: all tiers, fastest first.
        model_fingerprint: 32 bytes; a calibration of another one is worthless.
        cache_dir: folder where the policy may keep files of its own (below a subfolder of its name).
        bytes_per_token: KV bytes of one token, all pools.
        state_image_bytes: bytes of a state image, 0 for models without state.
        prefill_tokens_per_s: measured at start, 0.0 if unknown.
        prefill_seconds_per_token_squared: growth of the price of a token with its position: prefilling
            token p costs 1 / prefill_tokens_per_s + p times this.
    """

    clock: Clock
    tiers: Sequence[TierFacts]
    model_fingerprint: bytes = b""
    cache_dir: Path = field(default_factory=Path)
    bytes_per_token: int = 1
    state_image_bytes: int = 0
    prefill_tokens_per_s: float = 0.0
    prefill_seconds_per_token_squared: float = 0.0


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ImageFacts:
    """One stored object (page or state image) as a policy sees it.

    Nobody changes one. Not frozen, for a plan makes one for every page it may give up, and that would triple what it
    costs to make.

    Attributes:
        kind: page or state.
        tier_index: where the replica in question lives; 0 is the device.
        num_bytes: bytes that dropping this replica frees.
        position_tokens: token position just after the object.
        lost_tokens: tokens to prefill again if the last replica goes: distance to the nearest resume point
            before it.
        num_uses: requests that resumed from or through it; 1 when new.
        created_s: monotonic seconds.
        last_use_s: monotonic seconds; never decreases along a path towards the root.
        last_use_index: counter of uses over all objects, for exact recency.
        has_lower_replica: a slower tier holds a valid replica.
        is_reachable: a resume point needs it; dead objects are worth nothing.
        has_device_replica: the device holds it too, so this replica only saves a copy when that one goes.
        is_rung: a state image that nobody marked and nobody used yet, kept in case a history is edited in the middle.
    """

    kind: ImageKind
    tier_index: int
    num_bytes: int
    position_tokens: int
    lost_tokens: int
    num_uses: int
    created_s: float
    last_use_s: float
    last_use_index: int
    has_lower_replica: bool
    is_reachable: bool
    has_device_replica: bool = False
    is_rung: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """Bytes that an outcome moves between two tiers, in one batch.

    Attributes:
        source_index: tier read.
        target_index: tier written.
        num_bytes: payload bytes.
        num_images: images.
    """

    source_index: int
    target_index: int
    num_bytes: int
    num_images: int


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Degraded:
    """Something that an outcome makes worse. Like `ImageFacts`, not frozen and never changed.

    Attributes:
        facts: the object.
        target_index: tier of the best replica that remains, None if none remains.
    """

    facts: ImageFacts
    target_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeFacts:
    """One complete, feasible way to start a request.

    Attributes:
        resume_tokens: position where prefill would begin.
        prefill_tokens: tokens to compute from there.
        transfers: what must be moved first.
        copy_bytes: bytes copied on the device.
        degraded: victims.
    """

    resume_tokens: int
    prefill_tokens: int
    transfers: Sequence[TransferCost]
    copy_bytes: int
    degraded: Sequence[Degraded]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferObserved:
    """Images that went the same way together, for policies that learn: all their bytes, and the time they took.

    Images of a model with short pages are far smaller than what a transfer moves, so one alone says little about speed.
    """

    source_index: int
    target_index: int
    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillObserved:
    """A finished prefill chunk, for policies that learn."""

    start_tokens: int
    num_tokens: int
    seconds: float


class PlacementPolicy(ABC):
    """Ranks objects and prices outcomes. Pure between `observe_*` calls: equal inputs give equal answers.

    Called on the engine thread; every call must return within microseconds and do no I/O. Costs rank
    outcomes; they never decide feasibility.
    """

    @abstractmethod
    def keep_value(self, facts: ImageFacts) -> float:
        """Return how much this replica is worth where it is; the smallest goes first.

        Asked when the object is stored or used, not at each decision, so the value must age by comparison
        (as a last-use time or an inflating base does), not by being asked again. A finite number; what is not
        reachable is worth less than all that is, minus infinity at the least.
        """

    @abstractmethod
    def price_s(self, outcome: OutcomeFacts) -> float:
        """Return J: seconds now plus expected seconds lost later. Finite, not negative.

        More bytes moved, more tokens to prefill, more victims or less left of one never lower the price.
        """

    @abstractmethod
    def wants_copy(self, facts: ImageFacts, target_index: int) -> bool:
        """Tell whether an object that just became idle should be copied down ahead of pressure.

        False for what is not reachable.
        """

    def evicted(self, value: float) -> None:
        """Learn that an object of this `keep_value` was evicted (ageing of GreedyDual kind)."""

    def observe_transfer(self, observed: TransferObserved) -> None:
        """Learn from a finished transfer."""

    def observe_prefill(self, observed: PrefillObserved) -> None:
        """Learn from a finished prefill chunk."""

    def close(self) -> None:
        """Save what was learned, if it can be saved; a folder that cannot be written is no error."""
