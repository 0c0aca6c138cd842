"""HTTP of tokenize and detokenize, and nothing else."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from ninfer.server.body import json_body
from ninfer.server.json_response import json_response
from ninfer.server.tokens.schema import DetokenizeRequest, TokenizeRequest
from ninfer.server.tokens.service import TokenService

TokenizeBody = Annotated[TokenizeRequest, Depends(json_body(TokenizeRequest))]
DetokenizeBody = Annotated[DetokenizeRequest, Depends(json_body(DetokenizeRequest))]


def token_router(service: TokenService) -> APIRouter:
    """Return the routes of `service`."""
    router = APIRouter()

    @router.post("/tokenize", response_model=None)
    async def tokenize(body: TokenizeBody) -> Response:
        return json_response(await service.tokenize(body))

    @router.post("/detokenize", response_model=None)
    async def detokenize(body: DetokenizeBody) -> Response:
        return json_response(await service.detokenize(body))

    return router
