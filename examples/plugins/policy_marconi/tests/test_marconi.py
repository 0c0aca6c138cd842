"""The order is recency plus FLOPs per byte; the price is seconds. Expected values are worked out by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ninfer_policy_marconi.config import MarconiConfig
from ninfer_policy_marconi.plugin import ninfer_placement_policies
from ninfer_policy_marconi.policy import MarconiPolicy

from ninfer.api import (
    Degraded,
    ImageFacts,
    ImageKind,
    OutcomeFacts,
    PolicyContext,
    TierFacts,
    TransferCost,
)

PAGE_BYTES = 64 * 1000
STATE_BYTES = 32 * 64 * 1000


class StoppedClock:
    def monotonic_s(self) -> float:
        return 0.0

    def unix_s(self) -> float:
        return 0.0


def policy(squared: float = 0.0, **settings) -> MarconiPolicy:
    context = PolicyContext(
        clock=StoppedClock(),
        tiers=[
            TierFacts(tier_name="device", capacity_bytes=10**9),
            TierFacts(tier_name="ram", capacity_bytes=10**9),
            TierFacts(tier_name="disk", capacity_bytes=10**9, read_bytes_per_s=1e9),
        ],
        bytes_per_token=1000,
        state_image_bytes=STATE_BYTES,
        prefill_tokens_per_s=1000.0,
        prefill_seconds_per_token_squared=squared,
    )
    return MarconiPolicy.open(context, MarconiConfig(**settings))


def page(**changes) -> ImageFacts:
    facts = ImageFacts(
        kind=ImageKind.PAGE,
        tier_index=0,
        num_bytes=PAGE_BYTES,
        position_tokens=64,
        lost_tokens=64,
        num_uses=1,
        created_s=0.0,
        last_use_s=100.0,
        last_use_index=1,
        has_lower_replica=False,
        is_reachable=True,
    )
    return replace(facts, **changes)


def state(lost_tokens: int, **changes) -> ImageFacts:
    return page(
        kind=ImageKind.STATE,
        num_bytes=STATE_BYTES,
        lost_tokens=lost_tokens,
        position_tokens=64_000,
        **changes,
    )


def test_a_page_at_the_start_has_half_of_alpha():
    assert policy(alpha_s=300).keep_value(page()) == pytest.approx(250.0)


def test_a_state_that_saves_more_flops_per_byte_outlives_a_later_one_that_saves_less():
    far, near = state(8192, last_use_s=100.0), state(256, last_use_s=150.0)
    by_flops, by_recency = policy(alpha_s=300), policy(alpha_s=10)
    assert by_flops.keep_value(far) > by_flops.keep_value(near)
    assert by_recency.keep_value(far) < by_recency.keep_value(near)


def test_flops_grow_with_the_position_because_attention_looks_back():
    early, late = page(), page(position_tokens=64_000)
    assert policy().keep_value(early) == policy().keep_value(late)
    assert policy(squared=1e-6).keep_value(early) < policy(squared=1e-6).keep_value(late)


def test_efficiency_never_outweighs_more_than_alpha():
    huge = state(10**9, last_use_s=100.0, last_use_index=0)
    assert policy(alpha_s=300).keep_value(huge) <= 400.0


def test_alpha_zero_is_lru():
    facts = [state(8192), page(last_use_s=101.0), page(last_use_s=101.0, last_use_index=2)]
    lru = policy(alpha_s=0)
    assert sorted([facts[2], facts[0], facts[1]], key=lru.keep_value) == facts


@pytest.mark.parametrize("redundant", ["has_lower_replica", "has_device_replica"])
def test_a_replica_that_another_tier_has_too_goes_first(redundant):
    assert policy().keep_value(page(**{redundant: True})) < policy().keep_value(page())


def test_what_no_resume_point_needs_goes_before_everything():
    assert policy().keep_value(page(is_reachable=False)) == -math.inf


@given(
    st.integers(1, 10**7),
    st.integers(0, 10**6),
    st.integers(1, 10**10),
    st.floats(0, 1e9, allow_nan=False),
    st.sampled_from(ImageKind),
)
def test_values_are_numbers_that_depend_on_the_facts_alone(position, lost, size, used, kind):
    facts = page(
        kind=kind,
        position_tokens=position,
        lost_tokens=min(lost, position),
        num_bytes=size,
        last_use_s=used,
    )
    subject = policy(squared=1e-8)
    first = subject.keep_value(facts)
    assert math.isfinite(first)
    assert used <= first <= used + 300.0 + 1e-6
    assert subject.keep_value(facts) == first


def outcome(**changes) -> OutcomeFacts:
    facts = OutcomeFacts(
        resume_tokens=0, prefill_tokens=1000, transfers=(), copy_bytes=0, degraded=()
    )
    return replace(facts, **changes)


def test_the_price_of_prefill_is_its_measured_time():
    assert policy().price_s(outcome()) == pytest.approx(1.0)


def test_transfers_cost_what_the_slower_end_takes():
    moved = TransferCost(source_index=2, target_index=0, num_bytes=5 * 10**8, num_images=10)
    found = policy().price_s(outcome(prefill_tokens=0, transfers=(moved,)))
    assert found == pytest.approx(0.5)


def test_losing_the_last_replica_costs_its_prefill_times_the_chance_of_a_use():
    lost = Degraded(facts=state(1000), target_index=None)
    found = policy(reuse_probability=0.5).price_s(outcome(prefill_tokens=0, degraded=(lost,)))
    assert found == pytest.approx(0.5)


def test_a_victim_that_is_kept_further_down_costs_less_than_one_that_is_dropped():
    kept, lost = (Degraded(facts=state(8192), target_index=tier) for tier in (1, None))
    price = policy().price_s
    assert price(outcome(degraded=(kept,))) < price(outcome(degraded=(lost,)))


def test_copies_go_to_the_next_tier_and_further_down_only_after_a_second_use():
    subject = policy()
    assert subject.wants_copy(page(), 1)
    assert not subject.wants_copy(page(), 2)
    assert subject.wants_copy(page(num_uses=2), 2)
    assert not subject.wants_copy(page(), 0)
    assert not subject.wants_copy(page(), 3)
    assert not subject.wants_copy(page(is_reachable=False), 1)


def test_nothing_is_copied_that_is_computed_faster_than_read():
    assert not policy().wants_copy(state(1, num_uses=9), 2)


def test_the_plugin_offers_the_kind():
    (provider,) = ninfer_placement_policies()
    assert provider.kind == "marconi"
    assert isinstance(provider.open(_context(), provider.sample_config(None)), MarconiPolicy)


def _context() -> PolicyContext:
    return PolicyContext(
        clock=StoppedClock(), tiers=[TierFacts(tier_name="device", capacity_bytes=1)]
    )
