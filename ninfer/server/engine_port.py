"""What the server needs from an engine, and the data that crosses. Knows nothing about how tokens are made."""

from collections.abc import Callable, Iterable
from typing import Protocol

from ninfer.core.request import GenerationRequest, RequestEvent
from ninfer.obs.health import HealthReport
from ninfer.obs.metrics import MetricSample
from ninfer.obs.model_info import ModelInfo

__all__ = ["EnginePort", "EventSink", "HealthReport", "MetricSample", "ModelInfo"]

EventSink = Callable[[RequestEvent], None]
"""Takes the events of one request, in order, on the engine's thread. Must not block or raise."""


class EnginePort(Protocol):
    """An engine as the server sees it. All methods may be called from any thread and none waits for a step."""

    @property
    def model_info(self) -> ModelInfo:
        """The served model; constant."""
        ...

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request.

        Args:
            request: its id must not be live.
            sink: gets StartedEvent (unless it never starts), TokensEvents, and exactly one FinishedEvent.

        Raises:
            RequestError: it is wrong or can never fit.
            QueueFull: too many wait already.
            EngineStopped: the engine drains, has failed or is closed.
        """
        ...

    def abort(self, request_id: str) -> None:
        """End a request within a step; its FinishedEvent follows. Unknown and ended ids are ignored."""
        ...

    def health(self) -> HealthReport:
        """Return how the engine is, now."""
        ...

    def metrics_snapshot(self) -> Iterable[MetricSample]:
        """Return the engine's counters and gauges, now."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and wait until none is live or the time is over; then abort the rest.

        Args:
            timeout_s: seconds to wait.
        """
        ...

    def close(self) -> None:
        """Stop the engine and free what it holds. May be called twice. Blocks until its thread has ended."""
        ...
