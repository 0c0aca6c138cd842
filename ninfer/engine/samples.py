"""The engine's numbers as samples for Prometheus. Reads counters, changes nothing."""

from collections.abc import Iterator

from ninfer.engine.engine import EngineLoop
from ninfer.engine.tier_samples import tier_samples
from ninfer.obs.metrics import MetricSample
from ninfer.sched.draft_counts import DraftCounts


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
    yield from tier_samples(loop.parts.manager)


def _draft_samples(drafts: DraftCounts) -> Iterator[MetricSample]:
    for name, text, counts in (
        ("ninfer_draft_tokens_total", "Guesses verified, by place in the draft.", drafts.drafted),
        ("ninfer_accepted_draft_tokens_total", "Of those, accepted.", drafts.accepted),
    ):
        for position, value in enumerate(list(counts), start=1):
            labels = {"position": str(position)}
            yield MetricSample(name=name, kind="counter", help=text, value=value, labels=labels)
