"""Numbers for Prometheus: samples as data, and their text form. Knows nothing about what is counted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from typing_extensions import override

METRICS_CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Media type of `render_metrics`."""

MetricFamily = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One number at one moment.

    Attributes:
        name: with unit, such as `ninfer_restored_bytes_total`; counters end in `_total`.
        kind: a counter never goes down.
        help: one line for people, the same for all samples of a name.
        value: in the unit of the name.
        labels: the same keys for all samples of a name.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class SampleCollector(Collector):
    """Hands samples to a Prometheus registry each time it is asked.

    Args:
        read_samples: called for each scrape; must be quick.
    """

    def __init__(self, read_samples: Callable[[], Iterable[MetricSample]]) -> None:
        """Keep the source of samples."""
        self._read_samples = read_samples

    @override
    def collect(self) -> Iterator[MetricFamily]:
        """Yield one family per metric name."""
        families: dict[str, tuple[MetricFamily, tuple[str, ...]]] = {}
        for sample in self._read_samples():
            if sample.name not in families:
                families[sample.name] = (_new_family(sample), tuple(sample.labels))
            family, keys = families[sample.name]
            family.add_metric([sample.labels[key] for key in keys], sample.value)
        for family, _ in families.values():
            yield family

    def describe(self) -> Iterable[MetricFamily]:
        """Return nothing: names are known only when samples are read."""
        return []


def _new_family(sample: MetricSample) -> MetricFamily:
    if sample.kind == "counter":
        return CounterMetricFamily(
            sample.name.removesuffix("_total"), sample.help, labels=list(sample.labels)
        )
    return GaugeMetricFamily(sample.name, sample.help, labels=list(sample.labels))


def render_metrics(registry: CollectorRegistry) -> bytes:
    """Return all metrics of `registry` in the Prometheus text format."""
    return generate_latest(registry)
