"""What the server counts by itself. Knows nothing about what the engine counts."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from ninfer.obs.metrics import SampleCollector
from ninfer.server.engine_port import EnginePort

_LATENCY_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ServerMetrics:
    """Counters of one server, in a registry of its own, together with the engine's samples.

    Args:
        engine: asked for its samples at each scrape.
    """

    def __init__(self, engine: EnginePort) -> None:
        """Create all metrics at zero."""
        self.registry = CollectorRegistry()
        self._http = Counter(
            "ninfer_http_requests_total",
            "HTTP requests by endpoint and status.",
            ["endpoint", "status"],
            registry=self.registry,
        )
        self._done = Counter(
            "ninfer_requests_finished_total",
            "Generation requests by finish reason.",
            ["finish_reason"],
            registry=self.registry,
        )
        self._first_token = Histogram(
            "ninfer_time_to_first_token_seconds",
            "From the arrival of a generation request to its first token.",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._duration = Histogram(
            "ninfer_request_duration_seconds",
            "From the arrival of a generation request to its end.",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(SampleCollector(engine.metrics_snapshot))

    def count_http(self, endpoint: str, status: int) -> None:
        """Count one HTTP request; status 0 is an answer that was never sent."""
        self._http.labels(endpoint, str(status)).inc()

    def observe_request(
        self, finish_reason: str, *, duration_s: float, first_token_s: float | None
    ) -> None:
        """Count one generation request at its end."""
        self._done.labels(finish_reason).inc()
        self._duration.observe(duration_s)
        if first_token_s is not None:
            self._first_token.observe(first_token_s)
