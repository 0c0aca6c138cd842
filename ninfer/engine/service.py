"""The engine as the server sees it: thread-safe, with a thread of its own. Knows nothing about HTTP."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ninfer.cache.identity import encode_tokens
from ninfer.core.errors import (
    ContextLengthExceeded,
    EngineStopped,
    QueueFull,
    RequestError,
)
from ninfer.core.request import FinishedEvent, GenerationRequest, RequestEvent
from ninfer.engine.engine import EngineLoop
from ninfer.engine.samples import samples_of
from ninfer.obs.health import HealthReport, HealthStatus
from ninfer.obs.metrics import MetricSample
from ninfer.obs.model_info import ModelInfo

EventSink = Callable[[RequestEvent], None]
_SHUTTING_DOWN: Final = "the server is shutting down"


class EngineService:
    """Takes requests for an engine loop from any thread.

    Args:
        loop: the engine.
        thread: runs the loop.
        model_info: what is served.
        max_queue: requests that may wait.
        is_cache_enabled: False switches the cache off for every request.
    """

    def __init__(
        self,
        loop: EngineLoop,
        thread: threading.Thread,
        model_info: ModelInfo,
        *,
        max_queue: int,
        is_cache_enabled: bool,
    ) -> None:
        """Take over a loop that runs."""
        self._loop = loop
        self._model_info = model_info
        self._max_queue = max_queue
        self._is_cache_enabled = is_cache_enabled
        self._is_draining = False
        self._lock = threading.Lock()
        self._live: set[str] = set()
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._thread = thread

    @property
    def model_info(self) -> ModelInfo:
        """The served model; constant."""
        return self._model_info

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request.

        Args:
            request: its id must not be live.
            sink: gets its events on the engine's thread.

        Raises:
            ContextLengthExceeded: the prompt is longer than the served context.
            RequestError: it is wrong or can never fit.
            QueueFull: too many wait already.
            EngineStopped: the engine drains, has failed or is closed.
        """
        if self._is_draining or not self._thread.is_alive() or self._loop.failure:
            raise EngineStopped(self._loop.failure or _SHUTTING_DOWN)
        request = self._fitted(request)
        self._loop.parts.manager.check_feasible(request)
        self._take(request, sink)

    def _fitted(self, request: GenerationRequest) -> GenerationRequest:
        """Check a request against the served context and clamp what may be clamped."""
        num_prompt, most = len(request.prompt_token_ids), self._model_info.max_context_tokens
        if num_prompt == 0:
            msg = "the prompt is empty"
            raise RequestError(msg, param="prompt")
        if num_prompt + (request.max_tokens > 0) > most:
            msg = (
                f"the prompt has {num_prompt} tokens; the served context is {most} tokens, "
                "prompt and completion together"
            )
            raise ContextLengthExceeded(msg, param="prompt")
        encoded = self._encoded(request.prompt_token_ids)
        cache = request.cache
        if not self._is_cache_enabled:
            cache = replace(cache, is_enabled=False)
        return replace(
            request,
            max_tokens=min(request.max_tokens, most - num_prompt),
            cache=cache,
            encoded_prompt=encoded,
        )

    def _encoded(self, token_ids: Sequence[int]) -> bytes:
        """Check token ids and encode them as the context store reads them."""
        vocab = self._model_info.vocab_size
        try:
            encoded = encode_tokens(token_ids)
            is_known = int(np.frombuffer(encoded, ">u4").max()) < vocab
        except OverflowError:  # negative, or larger than any vocabulary
            encoded, is_known = b"", False
        if not is_known:
            msg = f"a token id is not in 0..{vocab - 1}"
            raise RequestError(msg, param="prompt")
        return encoded

    def _take(self, request: GenerationRequest, sink: EventSink) -> None:
        """Reserve a place in the queue and leave the command that submits, before the one that stops the loop."""

        def forward(event: RequestEvent) -> None:
            if isinstance(event, FinishedEvent):
                self._forget(request.request_id)
            sink(event)

        with self._lock:
            if self._is_draining:
                raise EngineStopped(_SHUTTING_DOWN)
            if request.request_id in self._live:
                msg = f"request id {request.request_id!r} is live already"
                raise RequestError(msg, param="request_id")
            num_waiting = len(self._live) - len(self._loop.parts.scheduler.lanes)
            if num_waiting >= self._max_queue:
                msg = f"{num_waiting} requests wait already; try again later"
                raise QueueFull(msg)
            self._live.add(request.request_id)
            self._is_empty.clear()
            self._loop.command(lambda: self._loop.submit_or_end(request, forward))

    def _forget(self, request_id: str) -> None:
        with self._lock:
            self._live.discard(request_id)
            if not self._live:
                self._is_empty.set()

    def abort(self, request_id: str) -> None:
        """End a request within a step; unknown and ended ids are ignored."""
        self._loop.command(lambda: self._loop.parts.scheduler.abort(request_id))

    def health(self) -> HealthReport:
        """Return how the engine is, now."""
        if self._loop.failure:
            return HealthReport(status="failed", problems=(self._loop.failure,))
        if not self._thread.is_alive():
            return HealthReport(status="failed", problems=("the engine thread has ended",))
        found = self._loop.problems()
        hang = self._loop.parts.watch.hang()
        if hang is not None:
            found.insert(0, hang)
        status: HealthStatus = "degraded" if found else "ok"
        if hang is not None:
            status = "failed"
        elif self._is_draining:
            status = "draining"
        by_plugin: dict[str, list[str]] = {}
        for plugin, problem in found:
            by_plugin.setdefault(plugin, []).append(problem)
        return HealthReport(
            status=status,
            problems=tuple(problem for _, problem in found),
            plugins={plugin: tuple(problems) for plugin, problems in by_plugin.items() if plugin},
        )

    def metrics_snapshot(self) -> Iterable[MetricSample]:
        """Return the engine's counters and gauges, now."""
        return samples_of(self._loop)

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests, wait for live ones, then abort the rest."""
        with self._lock:
            self._is_draining = True
        if await asyncio.to_thread(self._is_empty.wait, timeout_s):
            return
        with self._lock:
            left = list(self._live)
        for request_id in left:
            self.abort(request_id)

    def close(self) -> None:
        """Stop the engine and free what it holds; blocks until its thread has ended."""
        with self._lock:
            self._is_draining = True
        self._loop.stop()
        self._thread.join()
