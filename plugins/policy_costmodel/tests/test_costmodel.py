"""The cost model: order of values, prices in seconds, learning, saving."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.estimates import PrefillFit, PrefillSpeed, parse_calibration
from ninfer_policy_costmodel.plugin import ninfer_placement_policies
from ninfer_policy_costmodel.policy import CostModelPolicy

from ninfer.api import (
    Degraded,
    ImageFacts,
    ImageKind,
    OutcomeFacts,
    PolicyContext,
    PrefillObserved,
    TierFacts,
    TransferCost,
    TransferObserved,
)


class SettableClock:
    def __init__(self):
        self.now_s = 1000.0

    def monotonic_s(self):
        return self.now_s

    def unix_s(self):
        return self.now_s


TIERS = (
    TierFacts(tier_name="device", capacity_bytes=1 << 30),
    TierFacts(
        tier_name="ram", capacity_bytes=8 << 30, read_bytes_per_s=10e9, write_bytes_per_s=10e9
    ),
    TierFacts(
        tier_name="nvme",
        capacity_bytes=64 << 30,
        read_bytes_per_s=1e9,
        write_bytes_per_s=1e9,
        read_latency_s=1e-3,
    ),
)


def open_policy(tmp_path=None, tiers=TIERS, tokens_per_s=5000.0, clock=None, **config):
    context = PolicyContext(
        clock=clock or SettableClock(),
        tiers=tiers,
        model_fingerprint=b"m" * 32,
        cache_dir=tmp_path or Path(),
        bytes_per_token=24_000,
        state_image_bytes=50_000_000,
        prefill_tokens_per_s=tokens_per_s,
    )
    config.setdefault("save_calibration", tmp_path is not None)
    return CostModelPolicy.open(context, CostModelConfig(**config))


def replace_context(**changes):
    context = PolicyContext(
        clock=SettableClock(), tiers=TIERS, bytes_per_token=24_000, prefill_tokens_per_s=5000.0
    )
    return replace(context, **changes)


def page(**changes):
    facts = ImageFacts(
        kind=ImageKind.PAGE,
        tier_index=0,
        num_bytes=64 * 24_000,
        position_tokens=640,
        lost_tokens=64,
        num_uses=1,
        created_s=500.0,
        last_use_s=900.0,
        last_use_index=7,
        has_lower_replica=False,
        is_reachable=True,
    )
    return replace(facts, **changes)


def outcome(**changes):
    nothing = OutcomeFacts(
        resume_tokens=0, prefill_tokens=0, transfers=(), copy_bytes=0, degraded=()
    )
    return replace(nothing, **changes)


def test_dead_objects_go_before_everything():
    policy = open_policy()
    assert policy.keep_value(page(is_reachable=False)) == -math.inf
    assert policy.keep_value(page(lost_tokens=0)) > -math.inf
    assert (
        policy.price_s(
            outcome(degraded=[Degraded(facts=page(is_reachable=False), target_index=None)])
        )
        == 0.0
    )


@given(older=st.floats(0, 1e6), gap=st.floats(1e-3, 1e5), index=st.integers(0, 10**6))
def test_with_all_else_equal_the_order_is_that_of_lru(older, gap, index):
    policy = open_policy()
    first = page(last_use_s=older, last_use_index=index)
    assert policy.keep_value(
        replace(first, last_use_s=older + gap, last_use_index=index + 1)
    ) > policy.keep_value(first)


def test_uses_of_one_moment_are_ordered_by_the_counter():
    policy = open_policy()
    assert policy.keep_value(page(last_use_index=8)) > policy.keep_value(page(last_use_index=7))


def test_a_shared_prefix_outlives_newer_one_time_pages_but_not_for_ever():
    policy = open_policy(half_life_s=300.0)
    shared = policy.keep_value(page(num_uses=60, created_s=0.0, last_use_s=7200.0))
    assert shared > policy.keep_value(page(last_use_s=7800.0))
    assert shared < policy.keep_value(page(last_use_s=7200.0 + 300.0 * math.log2(60) + 1))


def test_a_session_that_ended_is_held_for_grace_and_a_few_of_its_own_gaps_only():
    policy = open_policy(grace_s=100.0, gaps=6.0)
    session = policy.keep_value(page(num_uses=51, created_s=0.0, last_use_s=500.0))
    assert (
        policy.keep_value(page(last_use_s=659.0))
        < session
        < policy.keep_value(page(last_use_s=661.0))
    )


@given(uses=st.integers(2, 500), life=st.floats(0, 1e7))
def test_recent_uses_are_a_decaying_sum_over_evenly_spaced_uses(uses, life):
    policy = open_policy(uses_half_life_s=1000.0)
    gap_s = life / (uses - 1)
    found = policy._recent_uses(uses, gap_s)
    assert found == pytest.approx(sum(2 ** (-k * gap_s / 1000.0) for k in range(uses)))
    assert policy._recent_uses(uses, gap_s * 2 + 1e-3) <= found


def test_uses_of_long_ago_count_for_nothing():
    policy = open_policy()
    old = page(num_uses=2, created_s=-1e6, last_use_s=900.0)
    assert policy.keep_value(old) == pytest.approx(policy.keep_value(page()), abs=1e-3)
    recent = page(num_uses=2, created_s=890.0, last_use_s=900.0)
    assert policy.keep_value(recent) > policy.keep_value(page()) + 250.0


def test_where_prefill_grows_dearer_a_deep_page_is_worth_more_but_less_than_its_price_says():
    context = replace_context(prefill_seconds_per_token_squared=1e-8)
    policy = CostModelPolicy.open(context, CostModelConfig(save_calibration=False))
    shallow = policy.keep_value(page(position_tokens=64))
    deep = policy.keep_value(page(position_tokens=100_000))
    ratio = (1 / 5000 + 1e-8 * 100_000) / (1 / 5000)
    assert 0 < deep - shallow == pytest.approx(30.0 * math.log2(ratio), rel=0.02)
    tail = policy.keep_value(page(position_tokens=100_000, lost_tokens=8))
    assert deep - tail == pytest.approx(300.0 * 3, rel=0.02), "tokens per byte count in full"


EXACT_USES = (1, *(1 + 2**power for power in range(10)))
"""Uses in 400 seconds whose mean gap is an exact float, so that one use more has the same pace and not almost the same."""


@given(uses=st.sampled_from(EXACT_USES), lost=st.integers(1, 10_000))
def test_more_uses_and_more_lost_tokens_are_never_worth_less(uses, lost):
    policy = open_policy()
    state = page(
        kind=ImageKind.STATE,
        num_bytes=50_000_000,
        position_tokens=20_000,
        num_uses=uses,
        lost_tokens=lost,
    )
    value = policy.keep_value(state)
    more = replace(state, num_uses=uses + 1, created_s=900.0 - 400.0 * uses / max(uses - 1, 1))
    assert policy.keep_value(more) >= value
    assert policy.keep_value(replace(state, lost_tokens=lost + 1)) >= value
    assert policy.keep_value(replace(state, num_bytes=60_000_000)) <= value


def test_a_redundant_replica_goes_before_the_last_one():
    policy = open_policy()
    assert policy.keep_value(page(has_lower_replica=True)) < policy.keep_value(page())
    assert policy.keep_value(page(has_lower_replica=True, num_uses=50)) < policy.keep_value(page())


def test_restoring_beats_prefill_unless_the_measured_costs_say_otherwise():
    policy = open_policy()
    num_bytes = 8000 * 24_000
    moved = TransferCost(source_index=2, target_index=0, num_bytes=num_bytes, num_images=125)
    restore = outcome(resume_tokens=8000, prefill_tokens=100, transfers=[moved])
    prefill = outcome(resume_tokens=0, prefill_tokens=8100)
    assert policy.price_s(restore) < policy.price_s(prefill)
    for _ in range(60):
        policy.observe_transfer(
            TransferObserved(source_index=2, target_index=0, num_bytes=num_bytes, seconds=8.0)
        )
    assert policy.price_s(restore) > policy.price_s(prefill)
    assert not policy.wants_copy(page(tier_index=1, num_uses=9), 2), (
        "not worth writing what is not worth reading"
    )


def test_price_is_in_seconds():
    policy = open_policy()
    assert policy.price_s(outcome(prefill_tokens=5000)) == pytest.approx(1.0)
    moved = TransferCost(source_index=1, target_index=0, num_bytes=10**10, num_images=1)
    assert policy.price_s(outcome(transfers=[moved])) == pytest.approx(1.0, rel=1e-3)


def test_a_drop_costs_more_than_a_demotion_and_fades_with_idle_time():
    clock = SettableClock()
    policy = open_policy(clock=clock)

    def price(target):
        return policy.price_s(outcome(degraded=[Degraded(facts=page(), target_index=target)]))

    assert price(None) > price(2) > price(1) > 0
    fresh = price(None)
    clock.now_s += 300.0
    assert price(None) == fresh, "pure between observations"
    policy.observe_prefill(PrefillObserved(start_tokens=0, num_tokens=5000, seconds=1.0))
    assert price(None) == pytest.approx(fresh / 2, rel=1e-3)


def test_pages_between_two_resume_points_sum_to_their_distance():
    policy = open_policy(return_probability=0.5)
    policy._now_s = 900.0
    pages = [page(lost_tokens=640, position_tokens=64 * (n + 1)) for n in range(10)]
    price = policy.price_s(
        outcome(degraded=[Degraded(facts=facts, target_index=None) for facts in pages])
    )
    assert price == pytest.approx(0.5 * 640 / 5000)


def test_copies_go_to_memory_always_and_to_a_slow_tier_after_the_second_use():
    policy = open_policy()
    assert policy.wants_copy(page(), 1)
    assert not policy.wants_copy(page(), 2)
    assert policy.wants_copy(page(num_uses=2), 2)
    assert open_policy(disk_min_uses=1).wants_copy(page(), 2)
    assert not policy.wants_copy(page(is_reachable=False), 1)
    assert not policy.wants_copy(page(tier_index=1), 1)
    assert not policy.wants_copy(page(tier_index=1, num_uses=5), 0)


def test_prefill_fit_finds_both_costs():
    truth = PrefillSpeed(seconds_per_token=1 / 9000, seconds_per_token_squared=2e-9)
    fit = PrefillFit(PrefillSpeed(seconds_per_token=1 / 2000, seconds_per_token_squared=0.0))
    for step in range(400):
        start = (step * 7919) % 100_000
        fit.observe(start, 2048, truth.seconds(start, 2048))
    for start in (0, 50_000, 200_000):
        assert fit.speed.seconds(start, 1000) == pytest.approx(truth.seconds(start, 1000), rel=0.02)


@given(
    st.lists(
        st.tuples(st.integers(-1, 10**6), st.integers(-1, 10**5), st.floats(-1, 1e4)), max_size=30
    )
)
def test_prefill_fit_never_breaks(chunks):
    fit = PrefillFit(PrefillSpeed(seconds_per_token=1e-4, seconds_per_token_squared=0.0))
    for start, count, seconds in chunks:
        fit.observe(max(start, 0), count, seconds)
        assert 0 < fit.speed.seconds(1000, 10) < math.inf


def test_what_was_learned_survives_a_restart(tmp_path):
    slow = (TIERS[0], TierFacts(tier_name="ram", capacity_bytes=1))
    policy = open_policy(tmp_path, tiers=slow, tokens_per_s=0.0)
    for _ in range(100):
        policy.observe_transfer(
            TransferObserved(source_index=1, target_index=0, num_bytes=10**9, seconds=0.5)
        )
        policy.observe_prefill(PrefillObserved(start_tokens=0, num_tokens=1000, seconds=1.0))
    moved = TransferCost(source_index=1, target_index=0, num_bytes=10**9, num_images=1)
    plan = outcome(transfers=[moved], prefill_tokens=1000)
    price = policy.price_s(plan)
    policy.close()
    again = open_policy(tmp_path, tiers=slow, tokens_per_s=0.0)
    assert again.price_s(plan) == pytest.approx(price, rel=0.01)
    (path,) = (tmp_path / "policy_costmodel").iterdir()
    path.write_text('{"version": 1, "links": {"ram>device": {"latency_s": -1}}}')
    assert open_policy(tmp_path, tiers=slow, tokens_per_s=0.0).price_s(plan) < price


IMPLAUSIBLE = [
    '{"links": {"a>b": {"latency_s": 0, "seconds_per_byte": Infinity}}}',
    '{"links": {"a>b": {"latency_s": 1e308, "seconds_per_byte": 1e-9}}}',
    '{"links": {"a>b": {"latency_s": 0, "seconds_per_byte": 1e-320}}}',
    '{"links": {"a>b": {"latency_s": 0, "seconds_per_byte": 1e-9}}, '
    '"prefill": {"seconds_per_token": 1e-320, "seconds_per_token_squared": 0}}',
]


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"version": 2}', '{"links": 3}', "\x00", *IMPLAUSIBLE]
)
def test_a_damaged_calibration_is_ignored(text):
    assert parse_calibration(text).links == {}


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path):
    in_the_way = tmp_path / "policy_costmodel"
    in_the_way.write_text("in the way")
    open_policy(tmp_path).close()
    assert in_the_way.read_text() == "in the way"


def test_provider_opens_its_own_sample(tmp_path):
    (provider,) = ninfer_placement_policies()
    context = PolicyContext(clock=SettableClock(), tiers=TIERS, cache_dir=tmp_path)
    policy = provider.open(context, provider.sample_config(tmp_path))
    assert math.isfinite(policy.keep_value(page()))
    policy.close()
    assert [folder.name for folder in tmp_path.iterdir()] == ["policy_costmodel"]
