"""HTTP of chat completions, and nothing else."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from ninfer.server.body import json_body
from ninfer.server.chat.schema import ChatRequest
from ninfer.server.chat.service import ChatService
from ninfer.server.context import ClientDependency
from ninfer.server.json_response import json_response
from ninfer.server.sse import EventStreamResponse

ChatBody = Annotated[ChatRequest, Depends(json_body(ChatRequest))]


def chat_router(service: ChatService) -> APIRouter:
    """Return the routes of `service`."""
    router = APIRouter()

    @router.post("/v1/chat/completions", response_model=None)
    async def create_chat_completion(body: ChatBody, client: ClientDependency) -> Response:
        if body.is_streaming:
            return EventStreamResponse(await service.stream(body, client))
        return json_response(await service.complete(body, client))

    return router
