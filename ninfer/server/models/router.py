"""HTTP of the list of models, and nothing else."""

from fastapi import APIRouter
from starlette.responses import Response

from ninfer.server.json_response import json_response
from ninfer.server.models.service import ModelService


def model_router(service: ModelService) -> APIRouter:
    """Return the routes of `service`."""
    router = APIRouter()

    @router.get("/v1/models", response_model=None)
    async def list_models() -> Response:
        return json_response(service.list_models())

    @router.get("/v1/models/{name:path}", response_model=None)
    async def get_model(name: str) -> Response:
        return json_response(service.get_model(name))

    return router
