"""Numbers of all tiers as samples for Prometheus. Reads counters and ledgers, changes nothing."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from ninfer.cache.manager import CacheManager
from ninfer.cache.retention import Retentions
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_counters import TierCounters
from ninfer.cache.tier_hits import TierHits
from ninfer.cache.tier_writes import TierWrites
from ninfer.config.tiers import DEVICE_TIER_NAME
from ninfer.obs.metrics import MetricSample

COUNTERS: Final = {
    "num_read": ("ninfer_tier_images_read_total", "Images read whole from a tier."),
    "num_missing": ("ninfer_tier_images_missing_total", "Images that were gone when wanted."),
    "num_corrupt": ("ninfer_tier_images_corrupt_total", "Images whose bytes were wrong."),
    "num_failed": ("ninfer_tier_failures_total", "I/O errors and exceptions of a tier."),
    "num_written": ("ninfer_tier_images_written_total", "Images stored in a tier."),
    "num_full": ("ninfer_tier_refusals_total", "Images refused by a tier for lack of room."),
    "num_deadline": ("ninfer_tier_deadlines_total", "Transfers given up: no progress in time."),
    "read_bytes": ("ninfer_tier_read_bytes_total", "Payload bytes read from a tier."),
    "written_bytes": ("ninfer_tier_written_bytes_total", "Payload bytes written to a tier."),
    "read_s": ("ninfer_tier_read_seconds_total", "Seconds of the thread that reads from a tier."),
    "write_s": ("ninfer_tier_write_seconds_total", "Seconds of the thread that writes to a tier."),
}
"""Fields of `TierCounters` as metrics."""


def tier_samples(manager: CacheManager) -> Iterator[MetricSample]:
    """Yield all samples of tiers, the device included. Called from any thread; numbers may be a step apart."""
    store, transfers = manager.store, manager.transfers
    names = [DEVICE_TIER_NAME, *(space.name for space in store.spaces)]
    yield from _device_samples(store)
    yield from _room_samples(store)
    for tier, handle in enumerate(transfers.handles, start=1):
        yield from _counter_samples(handle.name, handle.counters)
        for direction, length in zip(("read", "write"), transfers.queue_lengths(tier), strict=True):
            yield _sample(
                "ninfer_tier_queue_images",
                "gauge",
                "Images that wait for a tier's thread, those under way included.",
                length,
                tier=handle.name,
                direction=direction,
            )
    yield from _hit_samples(names, manager.hits)
    yield from _write_samples(names[1:], manager.writes)
    yield from _retention_samples(names, store.retentions)


def _sample(
    name: str, kind: Literal["counter", "gauge"], text: str, value: float, **labels: str
) -> MetricSample:
    return MetricSample(name=name, kind=kind, help=text, value=value, labels=labels)


def _device_samples(store: ContextStore) -> Iterator[MetricSample]:
    """Describe the device as the other tiers are: what running requests hold is reserved, contexts are used."""
    layout = store.layout
    num_pages = layout.num_pages - store.pages.num_free - len(store.private_pages)
    num_slots = layout.num_state_slots - len(store.free_slots) - len(store.private_slots)
    reserved_bytes = len(store.private_pages) * layout.page_image_bytes
    reserved_bytes += len(store.private_slots) * layout.state_image_bytes
    used_bytes = num_pages * layout.page_image_bytes + num_slots * layout.state_image_bytes
    yield from _room(
        DEVICE_TIER_NAME, layout.num_bytes, used_bytes, reserved_bytes, num_pages + num_slots
    )


def _room_samples(store: ContextStore) -> Iterator[MetricSample]:
    for space, ledger in zip(store.spaces, store.ledgers, strict=True):
        yield from _room(
            space.name,
            ledger.capacity_bytes,
            ledger.used_bytes,
            ledger.reserved_bytes,
            ledger.num_images,
        )
        yield _sample(
            "ninfer_tier_foreign_bytes",
            "gauge",
            "Of the used bytes, those of images of a shared tier whose prefix is not known here.",
            ledger.foreign_bytes,
            tier=space.name,
        )


def _room(
    tier: str, capacity_bytes: int, used_bytes: int, reserved_bytes: int, num_images: int
) -> Iterator[MetricSample]:
    for name, text, value in (
        ("capacity_bytes", "Bytes a tier may hold.", capacity_bytes),
        ("used_bytes", "Bytes of stored images.", used_bytes),
        ("reserved_bytes", "Bytes promised to copies and running requests.", reserved_bytes),
        ("records", "Stored images, pages and states.", num_images),
    ):
        yield _sample(f"ninfer_tier_{name}", "gauge", text, value, tier=tier)


def _counter_samples(tier: str, counters: TierCounters) -> Iterator[MetricSample]:
    for field, (name, text) in COUNTERS.items():
        yield _sample(name, "counter", text, float(getattr(counters, field)), tier=tier)
    for event, number in sorted({"no_space": 0, "quarantined": 0, **counters.events}.items()):
        yield _sample(
            "ninfer_tier_events_total",
            "counter",
            "What a tier counted by itself since it was opened.",
            number,
            tier=tier,
            event=event,
        )


def _hit_samples(names: Sequence[str], hits: TierHits) -> Iterator[MetricSample]:
    for name, text, numbers in (
        ("hits", "Requests that took prompt tokens from a tier.", hits.num_hits),
        ("misses", "Requests that took none from it.", hits.num_misses),
        ("served_tokens", "Prompt tokens taken from a tier.", hits.num_tokens),
    ):
        for tier, value in zip(names, numbers, strict=True):
            yield _sample(f"ninfer_tier_{name}_total", "counter", text, value, tier=tier)


def _write_samples(
    names: Sequence[str], all_writes: Sequence[TierWrites]
) -> Iterator[MetricSample]:
    for tier, writes in zip(names, all_writes, strict=True):
        for reason, number, num_bytes in (
            ("one_time", writes.num_one_time, writes.one_time_bytes),
            ("over_budget", writes.num_over_budget, writes.over_budget_bytes),
        ):
            labels = {"tier": tier, "reason": reason}
            text = "that were not written to a tier because of what it lets in."
            name = "ninfer_tier_unwritten"
            yield _sample(f"{name}_images_total", "counter", f"Images {text}", number, **labels)
            yield _sample(f"{name}_bytes_total", "counter", f"Bytes {text}", num_bytes, **labels)
        if (left_bytes := writes.budget.left_bytes) is not None:
            yield _sample(
                "ninfer_tier_write_budget_bytes",
                "gauge",
                "Bytes that may be written to a tier with a write limit now.",
                left_bytes,
                tier=tier,
            )


def _retention_samples(names: Sequence[str], retentions: Retentions) -> Iterator[MetricSample]:
    for name, text, values in (
        (
            "protected",
            "Bytes of retained contexts that outrank others.",
            retentions.protected_bytes,
        ),
        ("protected_budget", "Bytes that may be protected.", retentions.budgets),
    ):
        for tier, value in zip(names, values, strict=True):
            yield _sample(f"ninfer_tier_{name}_bytes", "gauge", text, value, tier=tier)
    for result, value in (
        ("granted", retentions.num_granted),
        ("refused", retentions.num_refused),
        ("expired", retentions.num_expired),
    ):
        yield _sample(
            "ninfer_retentions_total",
            "counter",
            "Contexts that were to be retained, by what became of it.",
            value,
            result=result,
        )
