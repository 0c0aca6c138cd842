"""The composition root: settings and plugins become a running engine. The only place that knows all parts."""

import os
import queue
import threading
from dataclasses import dataclass

import structlog
import torch

from ninfer.api import Clock, PlacementPolicy, PolicyContext, TierFacts
from ninfer.cache.manager import CacheManager
from ninfer.cache.pace import COPY_SHARE, Pace
from ninfer.cache.recovery import recover
from ninfer.cache.retaining import RetentionLimits
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_space import TierSpace
from ninfer.cache.transfers import Transfers
from ninfer.config.loading import LoadedSettings
from ninfer.config.settings import Settings
from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.core.without_collections import without_collections
from ninfer.engine.engine import EngineLoop, EngineParts
from ninfer.engine.fingerprint import fingerprint
from ninfer.engine.model_access import LoadedModelAccess
from ninfer.engine.open_device import Device, open_device
from ninfer.engine.open_plugins import PluginOpener
from ninfer.engine.plugin_watch import PluginWatch
from ninfer.engine.served_model import LoadedModel, load_served_model
from ninfer.engine.service import EngineService
from ninfer.engine.tier_rules import write_rules
from ninfer.exec.device_copy import build_copier
from ninfer.exec.host_memory import HostMemory
from ninfer.obs.clock import SystemClock
from ninfer.obs.model_info import ModelInfo
from ninfer.plugins.catalog import PluginCatalog
from ninfer.plugins.selection import select_plugins
from ninfer.sched.chunks import ChunkSizes, auto_chunk_tokens
from ninfer.sched.drafting import Drafting
from ninfer.sched.limits import SchedulerLimits
from ninfer.sched.scheduler import Scheduler
from ninfer.text.chat_template import ChatTemplate
from ninfer.text.sampling_defaults import SamplingDefaults
from ninfer.text.tokenizer import Tokenizer

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine:
    """A running engine and the text side of its model.

    Attributes:
        engine: takes requests.
        tokenizer: of the served model.
        template: of the served model.
        sampling: how it wants tokens chosen.
    """

    engine: EngineService
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: SamplingDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class _Composed:
    loop: EngineLoop
    info: ModelInfo
    model: LoadedModel


def build_engine(loaded: LoadedSettings, catalog: PluginCatalog) -> BuiltEngine:
    """Load the model, open the plugins and start the engine thread.

    Args:
        loaded: all settings.
        catalog: installed plugins.

    Raises:
        ConfigError: settings that do not fit together.
        PluginError: a configured plugin is broken or does not open.
        ModelError: the model cannot be used.

    Blocks for seconds; reads the whole model. All of it happens on the engine thread: the OpenMP runtime keeps a team
    of threads for every thread that ever computed, and as soon as teams outnumber processors each parallel region
    starts by waking sleepers, which doubles the time of a decode step.
    """
    results: queue.SimpleQueue[_Composed | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            composed = _compose(loaded, catalog)
        except BaseException as error:  # noqa: BLE001 - raised again where the engine was asked for
            results.put(error)
            return
        results.put(composed)
        composed.loop.run()

    thread = threading.Thread(target=run, name="ninfer-engine", daemon=True)
    thread.start()
    composed = results.get()
    if isinstance(composed, BaseException):
        raise composed
    service = EngineService(
        composed.loop,
        thread,
        composed.info,
        max_queue=loaded.settings.engine.max_queue,
        is_cache_enabled=loaded.settings.cache.enabled,
    )
    model = composed.model
    return BuiltEngine(
        engine=service,
        tokenizer=model.tokenizer,
        template=model.template,
        sampling=model.sampling,
    )


def _compose(loaded: LoadedSettings, catalog: PluginCatalog) -> "_Composed":
    settings, clock = loaded.settings, SystemClock()
    opener = PluginOpener(settings, select_plugins(catalog, loaded), clock)
    model = load_served_model(settings, clock)
    access = LoadedModelAccess(model.model, model.load_mtp_head)
    decoder, num_drafts = opener.decoder(access)
    device = open_device(settings, model, clock, num_drafts=num_drafts, head=access.loaded_head)
    if decoder is not None and decoder.uses_hidden_states:
        device.runner.follow = decoder.follow
    drafting = Drafting(decoder, max_tokens=num_drafts)
    loop = _assemble(settings, opener, model, device, drafting)
    name = settings.server.served_name or settings.model.name
    info = ModelInfo(
        name=name,
        max_context_tokens=device.max_context_tokens,
        vocab_size=model.model.config.vocab_size,
        kv_capacity_tokens=device.pool.num_pages * PAGE_SIZE_TOKENS,
        created_unix=int(clock.unix_s()),
    )
    return _Composed(loop=loop, info=info, model=model)


def _assemble(
    settings: Settings,
    opener: PluginOpener,
    model: LoadedModel,
    device: Device,
    drafting: Drafting,
) -> EngineLoop:
    clock = SystemClock()
    name = fingerprint(
        weights=model.weights,
        tokenizer=model.tokenizer.digest(),
        dtype=settings.model.dtype_name,
        weight_format=model.weight_format,
        page_pools=device.runner.layout.page_pool_bytes.items(),
        state_image_bytes=device.runner.layout.state_image_bytes,
        drafter="mtp" if "draft" in device.pools else "",
    )
    host = HostMemory(model.model.device)
    with without_collections():
        handles = opener.tiers(device.runner.layout, name, host, model_name=model.name)
    spaces = [
        TierSpace(
            name=handle.name,
            capacity_bytes=handle.usage().capacity_bytes,
            stored_bytes=handle.stored_bytes,
            rules=write_rules(settings, handle.name, handle.capabilities),
        )
        for handle in handles
    ]
    policy = _open_policy(settings, opener, spaces, device, name, clock)
    matcher = opener.matcher()
    opener.check()
    limits = RetentionLimits(
        default_s=settings.cache.retention_default, max_s=settings.cache.retention_max
    )
    store = ContextStore(
        device.runner.layout,
        spaces,
        policy.keep_value,
        clock,
        retention_budget=settings.cache.retention_budget,
    )
    wake = threading.Event()
    transfers = Transfers(
        handles,
        build_copier(device.pools, states=device.states),
        clock,
        deadline_s=settings.cache.transfer_deadline,
        wake=wake.set,
        pace=Pace(COPY_SHARE) if _takes_all_processors(device) else None,
    )
    manager = CacheManager(
        store,
        transfers,
        matcher=matcher,
        policy=policy,
        clock=clock,
        slack_tokens=drafting.max_tokens,
        retention=limits,
    )
    for tier, handle in enumerate(handles, start=1):
        with without_collections():
            found = recover(store, handle, tier)
        manager.shared.take(tier, found.left)
        if found.num_kept or found.num_dropped:
            _log.info(
                "tier_recovered",
                tier=handle.name,
                num_kept=found.num_kept,
                num_dropped=found.num_dropped,
            )
    scheduler = Scheduler(
        manager,
        device.runner,
        drafting=drafting,
        policy=policy,
        clock=clock,
        limits=_limits(settings, device),
    )

    def close(is_sound: bool) -> None:  # noqa: FBT001 - a callback with one meaning
        if is_sound:
            num_flushed = manager.flush(settings.server.drain_timeout, lambda: _wait(wake))
            _log.info("contexts_flushed", num_images=num_flushed)
        transfers.close(settings.cache.transfer_deadline)
        opener.close()
        watch.stop()

    watch = PluginWatch(opener.guards, handles)
    loop = EngineLoop(
        EngineParts(
            scheduler=scheduler,
            manager=manager,
            runner=device.runner,
            clock=clock,
            wake=wake,
            on_close=close,
            watch=watch,
        )
    )
    opener.on_policy_aside(lambda: loop.command(manager.rebuild_victims))
    watch.start()
    return loop


def _takes_all_processors(device: Device) -> bool:
    """Tell whether steps leave no processor to the threads that copy."""
    if device.pool.device.type != "cpu":
        return False
    affinity = getattr(os, "sched_getaffinity", None)
    num_processors = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return torch.get_num_threads() >= num_processors


def _wait(wake: threading.Event) -> None:
    wake.wait(0.05)
    wake.clear()


def _limits(settings: Settings, device: Device) -> SchedulerLimits:
    engine = settings.engine
    alone_tokens = engine.prefill_chunk_tokens
    if alone_tokens == "auto":
        alone_tokens = auto_chunk_tokens(device.speed.tokens_per_s)
    return SchedulerLimits(
        chunk_sizes=ChunkSizes(
            alone_tokens=alone_tokens,
            shared_tokens=engine.prefill_chunk_tokens_shared,
        ),
        max_queue=engine.max_queue,
        queue_timeout_s=engine.queue_timeout,
        max_head_passes=engine.max_head_passes,
    )


def _open_policy(
    settings: Settings,
    opener: PluginOpener,
    spaces: list[TierSpace],
    device: Device,
    name: bytes,
    clock: Clock,
) -> PlacementPolicy:
    layout = device.runner.layout
    context = PolicyContext(
        clock=clock,
        tiers=[
            TierFacts(
                tier_name="device", capacity_bytes=layout.num_pages * layout.page_image_bytes
            ),
            *(TierFacts(tier_name=s.name, capacity_bytes=s.capacity_bytes) for s in spaces),
        ],
        model_fingerprint=name,
        cache_dir=settings.cache.dir,
        bytes_per_token=layout.page_image_bytes // PAGE_SIZE_TOKENS,
        state_image_bytes=layout.state_image_bytes,
        prefill_tokens_per_s=device.speed.tokens_per_s,
        prefill_seconds_per_token_squared=device.speed.seconds_per_token_squared,
    )
    return opener.policy(context)
