"""Answers chat requests: prompt, session, output, JSON. Knows nothing about HTTP."""

import asyncio
import uuid
from contextlib import aclosing

from ninfer.core.errors import RequestError
from ninfer.server.chat.answer import (
    AnswerHead,
    TokenBytesFunction,
    WholeChoice,
    closing_choice,
    delta_choice,
    opening_choice,
)
from ninfer.server.chat.messages import CacheMarks, check_messages
from ninfer.server.chat.output import ChatOutput
from ninfer.server.chat.reasoning import OPEN_TAG, ReasoningSplitter
from ninfer.server.chat.schema import ChatRequest
from ninfer.server.chat.tool_parser import ToolCallParser
from ninfer.server.context import Client, ServerContext
from ninfer.server.generation.record import RequestFacts
from ninfer.server.generation.request_builder import Prompt, build_requests
from ninfer.server.generation.session import GenerationSession
from ninfer.server.generation.usage import timings_of, usage_of
from ninfer.server.sse import Comment, SseItems


class ChatService:
    """Chat completions over one engine.

    Args:
        context: of the server.
    """

    def __init__(self, context: ServerContext) -> None:
        """Keep the context."""
        self._context = context

    async def complete(self, body: ChatRequest, client: Client) -> dict[str, object]:
        """Return a whole answer.

        Raises:
            NinferError: see `GenerationSession`.
        """
        run = await self._begin(body, client)
        choices = [WholeChoice(output.lane.index) for output in run.outputs]
        async with aclosing(run.session):
            async for steps in run.session.steps():
                for lane, lane_delta in steps:
                    output = run.outputs[lane.index]
                    choices[lane.index].add(output.push(lane_delta))
                    if output.is_complete:
                        run.session.stop_lane(lane)
        for choice, output in zip(choices, run.outputs, strict=True):
            choice.finish_reason = output.finish_reason
        answer = run.head.whole([choice.to_json(run.token_bytes) for choice in choices])
        answer["usage"] = run.usage()
        answer["timings"] = timings_of(run.session.lanes)
        return answer

    async def stream(self, body: ChatRequest, client: Client) -> SseItems:
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

    async def _begin(self, body: ChatRequest, client: Client) -> "_ChatRun":
        self._context.check_model(body.model)
        body.check_chat()
        marks = check_messages(body.messages)
        prompt = await asyncio.to_thread(self._prompt, body, marks)
        answer_id = f"chatcmpl-{uuid.uuid4().hex}"
        requests = build_requests(
            self._context,
            body,
            [prompt],
            answer_id=answer_id,
            max_tokens=body.completion_limit,
            num_logprobs=body.num_logprobs,
            param="messages",
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
        head = AnswerHead(
            answer_id=answer_id,
            created_unix=int(self._context.clock.unix_s()),
            model=info.name,
            has_usage=body.includes_usage,
        )
        await session.start()
        return _ChatRun(self._context, body, prompt, session, head)

    def _prompt(self, body: ChatRequest, marks: CacheMarks) -> Prompt:
        retention = body.retention_wish(marks.seconds)
        try:
            chat = self._context.text.chat_prompt(
                body.messages,
                tools=body.used_tools,
                add_generation_prompt=body.add_generation_prompt is not False,
                options=body.template_options,
                marked_messages=marks.messages,
            )
        except RecursionError as error:
            raise RequestError("The request is nested too deeply.", param="messages") from error
        return Prompt(
            token_ids=chat.token_ids,
            text=chat.text,
            marker_tokens=chat.marker_tokens,
            retention=retention,
        )


class _ChatRun:
    """A chat request that was submitted."""

    def __init__(
        self,
        context: ServerContext,
        body: ChatRequest,
        prompt: Prompt,
        session: GenerationSession,
        head: AnswerHead,
    ) -> None:
        self.session = session
        self.head = head
        self.has_thinking = context.text.has_thinking
        is_open = prompt.text.rstrip().endswith(OPEN_TAG)
        self.outputs = [
            ChatOutput(
                lane,
                ReasoningSplitter(is_active=self.has_thinking, is_open=is_open),
                ToolCallParser(is_active=bool(body.used_tools)),
                is_one_call_enough=body.parallel_tool_calls is False,
            )
            for lane in session.lanes
        ]
        self.token_bytes: TokenBytesFunction | None = (
            context.text.token_bytes if body.num_logprobs is not None else None
        )

    def usage(self) -> dict[str, object]:
        num_reasoning = sum(output.num_reasoning_tokens for output in self.outputs)
        return usage_of(
            self.session.lanes, num_reasoning_tokens=num_reasoning if self.has_thinking else None
        )


async def _chunks(run: _ChatRun) -> SseItems:
    opened: set[int] = set()
    num_closed = 0
    async with aclosing(run.session):
        async for steps in run.session.steps():
            if not steps:
                yield Comment.KEEP_ALIVE
            for lane, lane_delta in steps:
                if lane.index not in opened:
                    opened.add(lane.index)
                    yield run.head.chunk([opening_choice(lane.index)])
                output = run.outputs[lane.index]
                delta = output.push(lane_delta)
                if not delta.is_empty:
                    yield run.head.chunk([delta_choice(lane.index, delta, run.token_bytes)])
                if output.is_complete:
                    run.session.stop_lane(lane)
                if lane_delta.is_last:
                    num_closed += 1
                    closing = run.head.chunk([closing_choice(lane.index, output.finish_reason)])
                    if num_closed == len(run.outputs):
                        closing["timings"] = timings_of(run.session.lanes)
                    yield closing
    if run.head.has_usage:
        last = run.head.chunk([])
        last["usage"] = run.usage()
        last["timings"] = timings_of(run.session.lanes)
        yield last
