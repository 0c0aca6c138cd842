"""The engine's numbers as samples for Prometheus. Reads counters, changes nothing."""

from collections.abc import Iterator, Sequence

from ninfer.cache.retention import Retentions
from ninfer.cache.tier_counters import TierCounters
from ninfer.engine.engine import EngineLoop
from ninfer.obs.metrics import MetricSample
from ninfer.sched.draft_counts import DraftCounts

_TIER_COUNTERS = {
    "num_read": ("ninfer_tier_images_read_total", "Images read whole from a tier."),
    "num_missing": ("ninfer_tier_images_missing_total", "Images that were gone when wanted."),
    "num_corrupt": ("ninfer_tier_images_corrupt_total", "Images whose bytes were wrong."),
    "num_failed": ("ninfer_tier_failures_total", "I/O errors and exceptions of a tier."),
    "num_written": ("ninfer_tier_images_written_total", "Images stored in a tier."),
    "num_full": ("ninfer_tier_refusals_total", "Images refused by a tier for lack of room."),
    "num_deadline": ("ninfer_tier_deadlines_total", "Transfers given up: no progress in time."),
    "read_bytes": ("ninfer_tier_read_bytes_total", "Payload bytes read from a tier."),
    "written_bytes": ("ninfer_tier_written_bytes_total", "Payload bytes written to a tier."),
}


def samples_of(loop: EngineLoop) -> Iterator[MetricSample]:
    """Yield all samples of an engine. Called from any thread; numbers may be a step apart."""
    counters = loop.counters
    scheduler, store = loop.parts.scheduler, loop.parts.manager.store
    totals = {
        "ninfer_requests_total": ("Requests taken.", counters.num_submitted),
        "ninfer_steps_total": ("Steps executed.", counters.num_steps),
        "ninfer_failed_steps_total": ("Steps that failed as a whole.", counters.num_failed_steps),
        "ninfer_computed_tokens_total": (
            "Tokens run through the model.",
            counters.num_computed_tokens,
        ),
        "ninfer_sampled_tokens_total": ("Tokens sampled.", counters.num_sampled_tokens),
        "ninfer_prompt_tokens_total": (
            "Prompt tokens of started requests.",
            scheduler.num_prompt_tokens,
        ),
        "ninfer_cached_prompt_tokens_total": (
            "Prompt tokens taken from the cache.",
            scheduler.num_cached_tokens,
        ),
        "ninfer_forward_seconds_total": ("Seconds in model and sampler.", counters.forward_s),
        "ninfer_step_seconds_total": ("Seconds of whole steps.", counters.step_s),
    }
    for name, (text, value) in totals.items():
        yield MetricSample(name=name, kind="counter", help=text, value=value)
    gauges = {
        "ninfer_running_requests": ("Requests that hold a lane.", len(scheduler.lanes)),
        "ninfer_waiting_requests": ("Requests in the queue.", len(scheduler.admission.queue)),
        "ninfer_parked_requests": (
            "Requests waiting for transfers.",
            len(scheduler.admission.parked),
        ),
        "ninfer_device_pages": ("KV pages of 64 tokens on the device.", store.layout.num_pages),
        "ninfer_device_free_pages": ("KV pages that hold nothing.", store.pages.num_free),
        "ninfer_device_private_pages": ("KV pages of running requests.", len(store.private_pages)),
    }
    for name, (text, value) in gauges.items():
        yield MetricSample(name=name, kind="gauge", help=text, value=value)
    yield from _draft_samples(scheduler.drafts)
    yield from _tier_samples(loop)


def _draft_samples(drafts: DraftCounts) -> Iterator[MetricSample]:
    for name, text, counts in (
        ("ninfer_draft_tokens_total", "Guesses verified, by place in the draft.", drafts.drafted),
        ("ninfer_accepted_draft_tokens_total", "Of those, accepted.", drafts.accepted),
    ):
        for position, value in enumerate(list(counts), start=1):
            labels = {"position": str(position)}
            yield MetricSample(name=name, kind="counter", help=text, value=value, labels=labels)


def _tier_samples(loop: EngineLoop) -> Iterator[MetricSample]:
    store, transfers = loop.parts.manager.store, loop.parts.manager.transfers
    for space, ledger in zip(store.spaces, store.ledgers, strict=True):
        labels = {"tier": space.name}
        for name, text, value in (
            ("ninfer_tier_capacity_bytes", "Bytes a tier may hold.", ledger.capacity_bytes),
            ("ninfer_tier_used_bytes", "Bytes of stored images.", ledger.used_bytes),
            (
                "ninfer_tier_foreign_bytes",
                "Of these, bytes of images of a shared tier whose prefix is not known here.",
                ledger.foreign_bytes,
            ),
            ("ninfer_tier_reserved_bytes", "Bytes promised to copies.", ledger.reserved_bytes),
        ):
            yield MetricSample(name=name, kind="gauge", help=text, value=value, labels=labels)
    for handle in transfers.handles:
        yield from _counter_samples(handle.name, handle.counters)
    yield from _retention_samples(store.retentions, ["device", *(s.name for s in store.spaces)])


def _retention_samples(retentions: Retentions, tiers: Sequence[str]) -> Iterator[MetricSample]:
    for name, text, values in (
        (
            "protected",
            "Bytes of retained contexts that outrank others.",
            retentions.protected_bytes,
        ),
        ("protected_budget", "Bytes that may be protected.", retentions.budgets),
    ):
        for tier, value in zip(tiers, values, strict=True):
            yield MetricSample(
                name=f"ninfer_tier_{name}_bytes",
                kind="gauge",
                help=text,
                value=value,
                labels={"tier": tier},
            )
    for result, value in (
        ("granted", retentions.num_granted),
        ("refused", retentions.num_refused),
        ("expired", retentions.num_expired),
    ):
        yield MetricSample(
            name="ninfer_retentions_total",
            kind="counter",
            help="Contexts that were to be retained, by what became of it.",
            value=value,
            labels={"result": result},
        )


def _counter_samples(tier: str, counters: TierCounters) -> Iterator[MetricSample]:
    for field, (name, text) in _TIER_COUNTERS.items():
        value = float(getattr(counters, field))
        yield MetricSample(name=name, kind="counter", help=text, value=value, labels={"tier": tier})
