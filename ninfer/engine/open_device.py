"""Allocates what a loaded model needs on its device and wires the runner to it. Knows nothing about caching."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from ninfer.api import Clock
from ninfer.config.settings import Settings
from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.engine.served_model import LoadedModel
from ninfer.exec.calibrate import PrefillSpeed, calibrate_prefill
from ninfer.exec.host_memory import trim_heap
from ninfer.exec.memory import PageBudget, plan_pages
from ninfer.exec.runner import ModelRunner
from ninfer.exec.state_memory import StateNeed
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.mtp_head import MtpHead

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The memory of a model and who computes in it.

    Attributes:
        runner: executes plans.
        pool: KV of all layers that attend.
        pools: that one as "main", and "draft" for a head that drafts.
        states: recurrent states; None for a model without.
        speed: measured price of prefill.
        max_context_tokens: longest context that fits.
    """

    runner: ModelRunner
    pool: KvPool
    pools: Mapping[str, KvPool]
    states: StatePool | None
    speed: PrefillSpeed
    max_context_tokens: int


def open_device(
    settings: Settings,
    model: LoadedModel,
    clock: Clock,
    *,
    num_drafts: int,
    head: MtpHead | None = None,
) -> Device:
    """Allocate KV and states, wire the runner and measure prefill.

    Args:
        settings: capacities.
        model: what will run.
        clock: measures.
        num_drafts: guesses that a step may verify per lane.
        head: drafts, with KV of its own; None if none does.

    Raises:
        ConfigError: it does not fit.
    """
    loaded = model.model
    config = loaded.config
    max_context = min(
        settings.model.max_context or config.max_context_tokens, config.max_context_tokens
    )
    lanes = settings.engine.max_concurrency
    need = StateNeed(
        image_bytes=0 if loaded.state_layout is None else loaded.state_layout.image_bytes,
        num_lanes=lanes,
        num_scratch=num_drafts,
        num_images=settings.engine.state_images or None,
    )
    layouts = {"main": loaded.kv_spec} | ({"draft": head.kv_spec} if head is not None else {})
    page_bytes = sum(layout.page_bytes for layout in layouts.values())
    budget = _plan(
        settings, model, need, page_bytes=page_bytes, max_lane_tokens=max_context + num_drafts
    )
    pools = {
        name: KvPool(layout, budget.num_pages, device=loaded.device)
        for name, layout in layouts.items()
    }
    pool = pools["main"]
    if head is not None:
        head.bind(pools["draft"])
    states = None
    if loaded.state_layout is not None:
        num_slots = need.num_slots(pool.num_bytes, kv_tokens=budget.num_tokens)
        states = StatePool(loaded.state_layout, num_slots, device=loaded.device)
    runner = ModelRunner(
        loaded,
        pools,
        vocab_size=config.vocab_size,
        num_lanes=lanes,
        clock=clock,
        states=states,
        num_scratch_slots=num_drafts,
    )
    speed = model.calibration.prefill_speed(
        lambda: calibrate_prefill(
            loaded,
            pool,
            seconds=clock.monotonic_s,
            max_tokens=config.max_context_tokens,
            states=states,
        )
    )
    _log.info(
        "device_ready",
        kv_tokens=budget.num_tokens,
        kv_bytes=sum(one.num_bytes for one in pools.values()),
        num_state_slots=0 if states is None else states.num_slots,
        state_bytes=0 if states is None else states.num_bytes,
        reason=budget.reason,
        prefill_tokens_per_s=round(speed.tokens_per_s),
    )
    trim_heap()
    return Device(
        runner=runner,
        pool=pool,
        pools=pools,
        states=states,
        speed=speed,
        max_context_tokens=min(max_context, budget.num_tokens - num_drafts),
    )


def _plan(
    settings: Settings,
    model: LoadedModel,
    need: StateNeed,
    *,
    page_bytes: int,
    max_lane_tokens: int,
) -> PageBudget:
    engine = settings.engine
    capacity_tokens = engine.kv_capacity.num_tokens
    if engine.kv_capacity.num_bytes is not None:
        capacity_tokens = engine.kv_capacity.num_bytes // page_bytes * PAGE_SIZE_TOKENS
    return plan_pages(
        page_bytes,
        model.model.device,
        capacity_tokens=capacity_tokens,
        max_tokens=2 * engine.max_concurrency * (max_lane_tokens + PAGE_SIZE_TOKENS),
        state_bytes=need.least_bytes,
        state_share=need.share,
    )
