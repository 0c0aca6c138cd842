"""HTTP of completions, and nothing else."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from ninfer.server.body import json_body
from ninfer.server.completions.schema import CompletionRequest
from ninfer.server.completions.service import CompletionService
from ninfer.server.context import ClientDependency
from ninfer.server.json_response import json_response
from ninfer.server.sse import EventStreamResponse

CompletionBody = Annotated[CompletionRequest, Depends(json_body(CompletionRequest))]


def completion_router(service: CompletionService) -> APIRouter:
    """Return the routes of `service`."""
    router = APIRouter()

    @router.post("/v1/completions", response_model=None)
    async def create_completion(body: CompletionBody, client: ClientDependency) -> Response:
        if body.is_streaming:
            return EventStreamResponse(await service.stream(body, client))
        return json_response(await service.complete(body, client))

    return router
