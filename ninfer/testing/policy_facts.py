"""Tiers, objects, outcomes and observations that a policy may be asked about. Knows nothing about policies."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from ninfer.api import (
    Degraded,
    ImageFacts,
    ImageKind,
    OutcomeFacts,
    PrefillObserved,
    TierFacts,
    TransferCost,
    TransferObserved,
)

NOW_S: Final = 1_000_000.0
"""What the clock shows when a test starts."""
BYTES_PER_TOKEN: Final = 24_576
PAGE_BYTES: Final = 64 * BYTES_PER_TOKEN
STATE_BYTES: Final = 48 << 20
TIERS: Final = (
    TierFacts(tier_name="device", capacity_bytes=4 << 30),
    TierFacts(
        tier_name="ram",
        capacity_bytes=32 << 30,
        read_bytes_per_s=12e9,
        write_bytes_per_s=10e9,
        read_latency_s=50e-6,
    ),
    TierFacts(
        tier_name="nvme",
        capacity_bytes=512 << 30,
        read_bytes_per_s=2e9,
        write_bytes_per_s=1e9,
        read_latency_s=1e-3,
    ),
)
NUM_TIERS: Final = len(TIERS)
SPEED_LADDER: Final = tuple(1 << exponent for exponent in range(0, 45, 4))
"""Sizes from a byte to 16 TiB, for whatever should grow."""

Observation = TransferObserved | PrefillObserved


def unmeasured(tiers: Sequence[TierFacts]) -> tuple[TierFacts, ...]:
    """Return tiers as they are before the core has measured them."""
    return tuple(
        replace(tier, read_bytes_per_s=0.0, write_bytes_per_s=0.0, read_latency_s=0.0)
        for tier in tiers
    )


def page(
    *,
    tier_index: int = 0,
    last_use_s: float = NOW_S - 60,
    last_use_index: int = 1_000,
    num_uses: int = 1,
    is_reachable: bool = True,
) -> ImageFacts:
    """Return an ordinary page, ten pages into its prompt, created an hour ago."""
    return ImageFacts(
        kind=ImageKind.PAGE,
        tier_index=tier_index,
        num_bytes=PAGE_BYTES,
        position_tokens=640,
        lost_tokens=64,
        num_uses=num_uses,
        created_s=NOW_S - 3_600,
        last_use_s=last_use_s,
        last_use_index=last_use_index,
        has_lower_replica=False,
        is_reachable=is_reachable,
    )


def state(*, lost_tokens: int = 2_048) -> ImageFacts:
    """Return an ordinary state image at the end of a prompt of 4,096 tokens."""
    return replace(
        page(),
        kind=ImageKind.STATE,
        num_bytes=STATE_BYTES,
        position_tokens=4_096,
        lost_tokens=lost_tokens,
    )


ORDINARY_FACTS: Final = (
    page(),
    page(num_uses=4),
    page(tier_index=1),
    replace(page(tier_index=1), has_device_replica=True),
    replace(page(), has_lower_replica=True),
    replace(page(tier_index=1), has_lower_replica=True),
    page(tier_index=2),
    state(),
    replace(state(), has_lower_replica=True),
    replace(state(), is_rung=True),
    page(is_reachable=False),
)
CORNER_FACTS: Final = tuple(
    replace(
        page(),
        num_bytes=num_bytes,
        position_tokens=tokens,
        lost_tokens=tokens,
        num_uses=num_uses,
        created_s=0.0,
        last_use_s=last_use_s,
        last_use_index=index,
        kind=kind,
    )
    for kind in ImageKind
    for num_bytes in (1, 1 << 44)
    for tokens in (1, 10_000_000)
    for num_uses in (1, 1_000_000_000)
    for last_use_s, index in ((0.0, 0), (NOW_S, 1 << 50))
)
"""The ends of every range."""


@st.composite
def image_facts(draw: st.DrawFn, *, is_reachable: bool | None = None) -> ImageFacts:
    """Draw any object that can be stored on one of `TIERS`."""
    tier_index = draw(st.integers(0, NUM_TIERS - 1))
    position = draw(st.integers(1, 10_000_000))
    last_use_s = draw(st.floats(0.0, NOW_S))
    kind = draw(st.sampled_from(ImageKind))
    return ImageFacts(
        kind=kind,
        tier_index=tier_index,
        num_bytes=draw(st.integers(1, 1 << 44)),
        position_tokens=position,
        lost_tokens=draw(st.integers(1, position)),
        num_uses=draw(st.integers(1, 1_000_000_000)),
        created_s=draw(st.floats(0.0, last_use_s)),
        last_use_s=last_use_s,
        last_use_index=draw(st.integers(0, 1 << 50)),
        has_lower_replica=tier_index < NUM_TIERS - 1 and draw(st.booleans()),
        is_reachable=draw(st.booleans()) if is_reachable is None else is_reachable,
        has_device_replica=tier_index > 0 and draw(st.booleans()),
        is_rung=kind is ImageKind.STATE and draw(st.booleans()),
    )


def outcome(
    *,
    resume_tokens: int = 1_024,
    prefill_tokens: int = 512,
    transfers: Sequence[TransferCost] = (),
    degraded: Sequence[Degraded] = (),
    copy_bytes: int = 0,
) -> OutcomeFacts:
    """Return one way to start a request, with lists of its own."""
    return OutcomeFacts(
        resume_tokens=resume_tokens,
        prefill_tokens=prefill_tokens,
        transfers=list(transfers),
        copy_bytes=copy_bytes,
        degraded=list(degraded),
    )


def transfer(num_bytes: int, source_index: int = 1, target_index: int = 0) -> TransferCost:
    """Return a batch of page images."""
    return TransferCost(
        source_index=source_index,
        target_index=target_index,
        num_bytes=num_bytes,
        num_images=-(-num_bytes // PAGE_BYTES),
    )


ORDINARY_OUTCOMES: Final = (
    outcome(),
    outcome(copy_bytes=PAGE_BYTES),
    outcome(transfers=[transfer(8 * PAGE_BYTES), transfer(PAGE_BYTES, 0, 1)]),
    outcome(resume_tokens=0, prefill_tokens=1_536, degraded=[Degraded(facts=page(), target_index=None)]),
    outcome(
        transfers=[transfer(20 * PAGE_BYTES, 2, 0)],
        degraded=[
            Degraded(facts=page(num_uses=3), target_index=1),
            Degraded(facts=page(tier_index=1), target_index=2),
            Degraded(facts=state(), target_index=None),
        ],
    ),
)  # fmt: skip


def transfers() -> st.SearchStrategy[TransferCost]:
    """Draw batches between two different tiers."""
    return ways().flatmap(
        lambda way: st.builds(transfer, st.integers(1, 1 << 40), st.just(way[0]), st.just(way[1]))
    )


def ways() -> st.SearchStrategy[tuple[int, int]]:
    """Draw source and target tier, different from each other."""
    tier = st.integers(0, NUM_TIERS - 1)
    return st.tuples(tier, tier).filter(lambda way: way[0] != way[1])


@st.composite
def victims(draw: st.DrawFn) -> Degraded:
    """Draw an object that loses a replica; what remains, if anything, is on a slower tier."""
    facts = draw(image_facts())
    lower = list(range(facts.tier_index + 1, NUM_TIERS))
    return Degraded(facts=facts, target_index=draw(st.sampled_from([None, *lower])))


@st.composite
def outcomes(draw: st.DrawFn) -> OutcomeFacts:
    """Draw any way to start a request."""
    return outcome(
        resume_tokens=draw(st.integers(0, 1_000_000)),
        prefill_tokens=draw(st.integers(1, 1_000_000)),
        transfers=draw(st.lists(transfers(), max_size=3)),
        degraded=draw(st.lists(victims(), max_size=2)),
        copy_bytes=draw(st.sampled_from((0, PAGE_BYTES))),
    )


def histories() -> st.SearchStrategy[list[Observation]]:
    """Draw what a machine may have shown a policy: from hardly measurable to very slow."""
    moved = ways().flatmap(
        lambda way: st.builds(
            TransferObserved,
            source_index=st.just(way[0]),
            target_index=st.just(way[1]),
            num_bytes=st.integers(1, 1 << 36),
            seconds=st.floats(1e-7, 1e4),
        )
    )
    computed = st.builds(
        PrefillObserved,
        start_tokens=st.integers(0, 1_000_000),
        num_tokens=st.integers(1, 65_536),
        seconds=st.floats(1e-7, 1e4),
    )
    return st.lists(st.one_of(moved, computed), max_size=8)


ORDINARY_HISTORY: Final[tuple[Observation, ...]] = tuple(
    each
    for at in range(6)
    for each in (
        TransferObserved(source_index=1, target_index=0, num_bytes=64 << 20, seconds=0.011 + at / 1e4),
        TransferObserved(source_index=2, target_index=0, num_bytes=64 << 20, seconds=0.050 + at / 1e4),
        TransferObserved(source_index=0, target_index=1, num_bytes=PAGE_BYTES, seconds=0.001),
        PrefillObserved(start_tokens=512 * at, num_tokens=512, seconds=0.250 + at / 100),
    )
)  # fmt: skip
"""A slow machine, seen for a while: about 2,000 tokens/s, 6 GB/s from memory, 1.3 GB/s from disk."""
CORNER_HISTORY: Final[tuple[Observation, ...]] = tuple(
    each
    for seconds in (0.0, 1e-300, 1e-9, 1e5)
    for count in (1, 1 << 44)
    for each in (
        TransferObserved(source_index=1, target_index=0, num_bytes=count, seconds=seconds),
        TransferObserved(source_index=0, target_index=2, num_bytes=count, seconds=seconds),
        PrefillObserved(start_tokens=0, num_tokens=min(count, 1_000_000), seconds=seconds),
        PrefillObserved(start_tokens=10_000_000, num_tokens=1, seconds=seconds),
    )
)
"""Clocks that do not move, machines that hang, sizes from one byte up."""
EMPTY_OBSERVATIONS: Final[tuple[Observation, ...]] = (
    TransferObserved(source_index=2, target_index=0, num_bytes=0, seconds=0.0),
    TransferObserved(source_index=2, target_index=0, num_bytes=0, seconds=1.0),
    PrefillObserved(start_tokens=0, num_tokens=0, seconds=0.0),
)
"""Nothing was moved or computed, in no time or in some."""
