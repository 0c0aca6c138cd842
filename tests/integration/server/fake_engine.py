"""An engine without a model: says what it is told to say, one token per step, on threads of its own."""

import threading
from collections.abc import Callable, Iterable

from ninfer.core.errors import EngineStopped, QueueFull
from ninfer.core.request import (
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    RequestStats,
    ReusePath,
    StartedEvent,
    TokenLogprob,
    TokensEvent,
)
from ninfer.obs.health import HealthReport
from ninfer.obs.metrics import MetricSample
from ninfer.obs.model_info import ModelInfo
from ninfer.server.engine_port import EventSink

Answer = Callable[[GenerationRequest], Iterable[int]]


class FakeEngine:
    """Implements `EnginePort`. `queue_gate` and `step_gate` hold requests in queue, and between steps."""

    def __init__(self, encode: Callable[[str], list[int]], *, vocab_size: int, eos_id: int) -> None:
        self.info = ModelInfo(
            name="fake-model",
            max_context_tokens=2048,
            vocab_size=vocab_size,
            kv_capacity_tokens=4096,
            created_unix=1_700_000_000,
        )
        self.encode = encode
        self.eos_id = eos_id
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything that a test did."""
        self.text = "Hello world"
        self.answer: Answer | None = None
        self.max_live = 64
        self.submit_error: Exception | None = None
        self.finish_with: tuple[FinishReason, str] | None = None
        self.finish_before_start = False
        self.report = HealthReport(status="ok")
        self.queue_gate = threading.Event()
        self.queue_gate.set()
        self.step_gate = threading.Event()
        self.step_gate.set()
        self.step_s = 0.0
        self.tokens_per_step = 1
        self.submitted: list[GenerationRequest] = []
        self.aborted: list[str] = []
        self.num_steps = 0
        self.live: dict[str, threading.Event] = {}
        self.is_draining = False
        self.is_closed = False

    @property
    def model_info(self) -> ModelInfo:
        return self.info

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        with self._lock:
            if self.is_draining or self.is_closed:
                raise EngineStopped("The engine is shutting down.")
            if len(self.live) >= self.max_live:
                raise QueueFull(f"{len(self.live)} requests wait already.")
            assert request.request_id not in self.live
            assert request.fork_of is None or request.fork_of in [
                r.request_id for r in self.submitted
            ]
            self.submitted.append(request)
            aborted = self.live[request.request_id] = threading.Event()
        threading.Thread(target=self._run, args=(request, sink, aborted), daemon=True).start()

    def abort(self, request_id: str) -> None:
        with self._lock:
            self.aborted.append(request_id)
            if request_id in self.live:
                self.live[request_id].set()

    def health(self) -> HealthReport:
        if self.is_draining:
            return HealthReport(status="draining")
        return self.report

    def metrics_snapshot(self) -> list[MetricSample]:
        return [
            MetricSample(
                name="ninfer_running_requests", kind="gauge", help="Running.", value=len(self.live)
            ),
            MetricSample(
                name="ninfer_restored_bytes_total",
                kind="counter",
                help="Read.",
                value=7,
                labels={"tier": "host"},
            ),
            MetricSample(
                name="ninfer_restored_bytes_total",
                kind="counter",
                help="Read.",
                value=9,
                labels={"tier": "disk"},
            ),
        ]

    async def drain(self, timeout_s: float) -> None:
        import asyncio

        self.is_draining = True
        for _ in range(int(timeout_s / 0.01)):
            if not self.live:
                return
            await asyncio.sleep(0.01)
        for request_id in list(self.live):
            self.abort(request_id)

    def close(self) -> None:
        self.is_closed = True
        for request_id in list(self.live):
            self.abort(request_id)

    def _run(self, request: GenerationRequest, sink: EventSink, aborted: threading.Event) -> None:
        num_prompt = len(request.prompt_token_ids)
        num_cached = (num_prompt - 1) if request.fork_of else min(3, num_prompt - 1)
        num_done = 0

        def finish(reason: FinishReason, message: str = "") -> None:
            with self._lock:
                del self.live[request.request_id]
            sink(
                FinishedEvent(
                    request_id=request.request_id,
                    reason=reason,
                    message=message,
                    stats=RequestStats(
                        num_prompt_tokens=num_prompt,
                        num_cached_tokens=num_cached,
                        num_completion_tokens=num_done,
                        queue_s=0.001,
                        prefill_s=0.25,
                        decode_s=0.5,
                        restored_bytes={"host": 4096},
                        reuse_path=ReusePath.PRIVATE_ENDPOINT,
                        drafted_at=(3, 1),
                        accepted_at=(2, 1),
                    ),
                )
            )

        while not self.queue_gate.wait(0.002):
            if aborted.is_set():
                return finish(FinishReason.ABORTED)
        if self.finish_with is not None and self.finish_before_start:
            return finish(*self.finish_with)
        sink(StartedEvent(request_id=request.request_id, num_cached_tokens=num_cached))
        tokens = list(self._tokens(request))
        while num_done < min(len(tokens), request.max_tokens):
            while not self.step_gate.wait(0.002):
                if aborted.is_set():
                    return finish(FinishReason.ABORTED)
            if aborted.wait(self.step_s) if self.step_s else aborted.is_set():
                return finish(FinishReason.ABORTED)
            step = tokens[num_done : min(num_done + self.tokens_per_step, request.max_tokens)]
            self.num_steps += 1
            num_done += len(step)
            sink(self._event(request, step))
            if step[-1] in request.stop_token_ids:
                return finish(FinishReason.STOP)
        if self.finish_with is not None:
            return finish(*self.finish_with)
        return finish(FinishReason.LENGTH)

    def _tokens(self, request: GenerationRequest) -> Iterable[int]:
        tokens = list(self.answer(request)) if self.answer is not None else self.encode(self.text)
        if self.eos_id in request.stop_token_ids:
            return [*tokens, self.eos_id]
        return (tokens * (request.max_tokens // max(len(tokens), 1) + 1))[: request.max_tokens]

    def _event(self, request: GenerationRequest, step: list[int]) -> TokensEvent:
        logprobs: tuple[TokenLogprob, ...] = ()
        if request.sampling.num_logprobs is not None:
            alternatives = [(step[0], -0.25), (1, -1.5), (2, float("-inf")), (3, float("-inf"))]
            logprobs = tuple(
                TokenLogprob(
                    token_id=token_id,
                    logprob=-0.25,
                    top=tuple(alternatives[: request.sampling.num_logprobs]),
                )
                for token_id in step
            )
        return TokensEvent(request_id=request.request_id, token_ids=tuple(step), logprobs=logprobs)
