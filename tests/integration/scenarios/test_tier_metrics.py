"""Numbers of tiers for Prometheus, against what a run really did."""

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.engine.tier_samples import tier_samples
from ninfer.obs.metrics import SampleCollector, render_metrics
from ninfer.testing.clock import FakeClock
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.integration.scenarios.test_retention import IMAGE, prompt_of, soft, strict

PER_TIER = {
    "capacity_bytes used_bytes reserved_bytes protected_bytes protected_budget_bytes records",
    "hits_total misses_total served_tokens_total",
}
PER_LOWER_TIER = {
    "images_read_total images_written_total read_bytes_total written_bytes_total",
    "read_seconds_total write_seconds_total queue_images",
    "images_missing_total images_corrupt_total failures_total refusals_total deadlines_total",
    "events_total unwritten_images_total unwritten_bytes_total",
}


def words(lines):
    return {word for line in lines for word in line.split()}


def scrape(harness):
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: tier_samples(harness.manager)))
    text = render_metrics(registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(sample.labels[key] for key in sorted(sample.labels))
            name = sample.name.removeprefix("ninfer_tier_")
            assert (name, labels) not in found
            found[name, labels] = sample.value
    return found


def engine(*tiers, **rules):
    return Harness(
        tiers=[DictTier(pages * IMAGE) for pages in tiers],
        num_pages=20,
        num_lanes=1,
        vocab=50,
        clock=FakeClock(),
        rules=WriteRules(**rules),
    )


def test_every_tier_has_every_number():
    harness = engine(30, 60, max_bytes_per_day=10**9)
    found = scrape(harness)
    for tier in ("device", "t1", "t2"):
        assert {name for name, labels in found if tier in labels.split(",")} >= words(PER_TIER)
    for tier in ("t1", "t2"):
        names = {name for name, labels in found if tier in labels.split(",")}
        assert names >= words(PER_LOWER_TIER)
    assert ("write_budget_bytes", "t2") in found
    assert ("write_budget_bytes", "t1") not in found
    harness.close()


def test_numbers_are_those_of_the_store_and_of_requests():
    harness = engine(12, 40)
    answers = [harness.ask(prompt_of(n), 2) for n in range(12)]
    harness.settle()
    answers += [harness.ask([*prompt_of(n), 1], 1) for n in range(6)]
    harness.settle()
    found = scrape(harness)
    objects = list(harness.store.tree.nodes())
    for tier, name in enumerate(("device", "t1", "t2")):
        held = [node.replicas[tier] for node in objects if node.replicas[tier] is not None]
        assert found["records", name] == len(held) > 0
        if tier:
            assert found["used_bytes", name] == sum(replica.num_bytes for replica in held)
            assert found["records", name] == len(harness.tiers[tier - 1].images)
    served = {"device": 0, "t1": 0, "t2": 0}
    for answer in answers:
        restored = answer.finished.stats.restored_tokens
        for name, num_tokens in restored.items():
            served[name] += num_tokens
        served["device"] += answer.cached - sum(restored.values())
    assert {name: found["served_tokens_total", name] for name in served} == served
    assert served["t2"] > 0
    for name in served:
        assert found["hits_total", name] + found["misses_total", name] == len(answers)
    assert found["read_bytes_total", "t2"] > 0
    assert found["queue_images", "read,t2"] == 0
    assert found["reserved_bytes", "t2"] == 0
    harness.close()


def test_a_request_that_may_not_use_the_cache_is_neither_hit_nor_miss():
    harness = engine(12)
    harness.ask(prompt_of(0), 2, cache=False)
    assert scrape(harness)["misses_total", "device"] == 0
    harness.close()


def test_time_and_queue_of_a_tier_that_takes_long():
    harness = engine(40)
    tier, clock = harness.tiers[0], harness.clock
    tier.gate.clear()
    answer = harness.submit(prompt_of(0), 2)
    while not answer.finished:
        harness.step()
    harness.step()
    assert scrape(harness)["queue_images", "write,t1"] > 0
    clock.advance(3.0)
    tier.gate.set()
    harness.settle()
    found = scrape(harness)
    assert found["queue_images", "write,t1"] == 0
    assert found["write_seconds_total", "t1"] >= 3.0
    assert found["read_seconds_total", "t1"] == 0.0
    harness.close()


def test_faults_retentions_and_what_is_not_written():
    harness = engine(20, filter=WriteFilter.REUSED)
    harness.ask(prompt_of(0), 2, keep=soft(100.0))
    harness.ask(prompt_of(1), 2, keep=strict(10**6))
    harness.ask(prompt_of(2), 2, keep=strict(10**6))
    for number in range(10, 30):
        harness.ask(prompt_of(number), 2)
    harness.settle()
    harness.tiers[0].refuses = True
    for _ in range(2):
        for number in range(40, 46):
            harness.ask(prompt_of(number), 2)
    harness.clock.advance(200.0)
    harness.step()
    found = scrape(harness)
    assert found["ninfer_retentions_total", "granted"] == 2
    assert found["ninfer_retentions_total", "refused"] == 1
    assert found["ninfer_retentions_total", "expired"] == 1
    assert found["unwritten_images_total", "one_time,t1"] > 0
    assert found["unwritten_bytes_total", "one_time,t1"] >= 500
    assert found["protected_bytes", "t1"] <= found["protected_budget_bytes", "t1"]
    harness.close()
