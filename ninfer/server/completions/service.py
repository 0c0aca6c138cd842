"""Answers completion requests: prompts, session, JSON. Knows nothing about HTTP."""

import asyncio
import uuid
from contextlib import aclosing
from dataclasses import dataclass, field

from ninfer.server.completions.logprobs import completion_logprobs
from ninfer.server.completions.schema import CompletionRequest
from ninfer.server.context import Client, ServerContext
from ninfer.server.generation.lane import Lane, ShownToken
from ninfer.server.generation.record import RequestFacts
from ninfer.server.generation.request_builder import Prompt, build_requests
from ninfer.server.generation.schema import check_token_id
from ninfer.server.generation.session import GenerationSession
from ninfer.server.generation.usage import timings_of, usage_of
from ninfer.server.sse import Comment, SseItems


class CompletionService:
    """Completions over one engine.

    Args:
        context: of the server.
    """

    def __init__(self, context: ServerContext) -> None:
        """Keep the context."""
        self._context = context

    async def complete(self, body: CompletionRequest, client: Client) -> dict[str, object]:
        """Return a whole answer.

        Raises:
            NinferError: see `GenerationSession`.
        """
        run = await self._begin(body, client)
        texts = [[run.echoed(lane)] for lane in run.session.lanes]
        tokens: list[list[ShownToken]] = [[] for _ in run.session.lanes]
        async with aclosing(run.session):
            async for steps in run.session.steps():
                for lane, delta in steps:
                    texts[lane.index].append(delta.text)
                    tokens[lane.index] += delta.tokens
        choices = [
            run.choice(lane, "".join(texts[lane.index]), tokens[lane.index], _finish_reason(lane))
            for lane in run.session.lanes
        ]
        return {
            **run.envelope(choices),
            "usage": usage_of(run.session.lanes),
            "timings": timings_of(run.session.lanes),
        }

    async def stream(self, body: CompletionRequest, client: Client) -> SseItems:
        """Return the chunks of an answer, once it has left the queue or waits for long.

        Raises:
            NinferError: see `GenerationSession`; later ones are raised by the chunks.
        """
        run = await self._begin(body, client)
        try:
            await run.session.wait_begun()
        except BaseException:
            await run.session.aclose()
            raise
        return _chunks(run)

    async def _begin(self, body: CompletionRequest, client: Client) -> "_CompletionRun":
        self._context.check_model(body.model)
        body.check_completion()
        prompts = await asyncio.to_thread(self._prompts, body)
        answer_id = f"cmpl-{uuid.uuid4().hex}"
        requests = build_requests(
            self._context,
            body,
            prompts,
            answer_id=answer_id,
            max_tokens=body.completion_limit,
            num_logprobs=body.logprobs,
            param="prompt",
        )
        info = self._context.engine.model_info
        facts = RequestFacts(
            answer_id=answer_id,
            http_request_id=client.http_request_id,
            endpoint=client.path,
            model=info.name,
            is_streaming=body.is_streaming,
            session_key=body.prompt_cache_key or "",
        )
        session = GenerationSession(self._context, client, facts, requests, body.stop or ())
        await session.start()
        return _CompletionRun(
            context=self._context,
            body=body,
            prompts=prompts,
            session=session,
            answer_id=answer_id,
            created_unix=int(self._context.clock.unix_s()),
        )

    def _prompts(self, body: CompletionRequest) -> list[Prompt]:
        text = self._context.text
        vocab_size = self._context.engine.model_info.vocab_size
        retention = body.retention_wish()
        prompts = []
        for prompt in body.prompt:
            if isinstance(prompt, str):
                token_ids = text.encode(prompt, add_special=body.add_special_tokens is not False)
                prompts.append(Prompt(token_ids=token_ids, text=prompt, retention=retention))
            else:
                for token_id in prompt:
                    check_token_id(token_id, vocab_size, param="prompt")
                shown = text.decode(prompt) if body.echo else ""
                prompts.append(Prompt(token_ids=prompt, text=shown, retention=retention))
        return prompts


@dataclass(slots=True, kw_only=True)
class _CompletionRun:
    """A completion request that was submitted."""

    context: ServerContext
    body: CompletionRequest
    prompts: list[Prompt]
    session: GenerationSession
    answer_id: str
    created_unix: int
    opened: set[int] = field(default_factory=set)

    def echoed(self, lane: Lane) -> str:
        """Return the prompt of a choice if it is wanted back."""
        return self.prompts[lane.index // self.body.num_choices].text if self.body.echo else ""

    def choice(
        self, lane: Lane, text: str, tokens: list[ShownToken], finish_reason: str | None
    ) -> dict[str, object]:
        logprobs = None
        if self.body.logprobs is not None:
            logprobs = completion_logprobs(tokens, self.context.text.token_bytes)
        return {
            "index": lane.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }

    def envelope(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.answer_id,
            "object": "text_completion",
            "created": self.created_unix,
            "model": self.context.engine.model_info.name,
            "choices": choices,
        }

    def chunk(self, choices: list[dict[str, object]]) -> dict[str, object]:
        chunk = self.envelope(choices)
        if self.body.includes_usage:
            chunk["usage"] = None
        return chunk


def _finish_reason(lane: Lane) -> str:
    return str(lane.finish_reason or "stop")


async def _chunks(run: _CompletionRun) -> SseItems:
    num_closed = 0
    async with aclosing(run.session):
        async for steps in run.session.steps():
            if not steps:
                yield Comment.KEEP_ALIVE
            for lane, delta in steps:
                text = delta.text
                if lane.index not in run.opened:
                    run.opened.add(lane.index)
                    text = run.echoed(lane) + text
                reason = _finish_reason(lane) if delta.is_last else None
                if text or delta.tokens or reason:
                    chunk = run.chunk([run.choice(lane, text, list(delta.tokens), reason)])
                    num_closed += delta.is_last
                    if num_closed == len(run.session.lanes):
                        chunk["timings"] = timings_of(run.session.lanes)
                    yield chunk
    if run.body.includes_usage:
        last = run.chunk([])
        last["usage"] = usage_of(run.session.lanes)
        last["timings"] = timings_of(run.session.lanes)
        yield last
