"""HTTP of health, plugins and metrics, and nothing else."""

from fastapi import APIRouter
from starlette.responses import Response

from ninfer.obs.metrics import METRICS_CONTENT_TYPE
from ninfer.server.admin.service import AdminService
from ninfer.server.json_response import json_response


def admin_router(service: AdminService) -> APIRouter:
    """Return the routes of `service`."""
    router = APIRouter()

    @router.get("/health", response_model=None)
    async def health() -> Response:
        is_serving, details = service.health()
        return json_response(details, status=200 if is_serving else 503)

    @router.get("/admin/plugins", response_model=None)
    async def plugins() -> Response:
        return json_response(service.plugins())

    @router.get("/metrics", response_model=None)
    async def metrics() -> Response:
        return Response(service.metrics(), headers={"content-type": METRICS_CONTENT_TYPE})

    return router
