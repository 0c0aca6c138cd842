"""Request id, last-resort error answer and the one log line of each HTTP request. Knows nothing about endpoints."""

import re
import uuid
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ninfer.api.clock import Clock
from ninfer.server.errors import note_error
from ninfer.server.metrics import ServerMetrics

REQUEST_ID_KEY: Final = "ninfer.request_id"
"""Where in the ASGI scope the request id is."""

_VALID_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_QUIET_PATHS: Final = frozenset({"/health", "/metrics"})


class RequestScope:
    """Outermost middleware: gives a request its id, answers what nothing else answered, logs one line.

    Args:
        app: what it wraps.
        clock: for durations.
        metrics: counts requests by endpoint and status.
    """

    def __init__(self, app: ASGIApp, *, clock: Clock, metrics: ServerMetrics) -> None:
        """Wrap `app`."""
        self._app = app
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger("ninfer.server")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[REQUEST_ID_KEY] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(http_request_id=request_id)
        started_s = self._clock.monotonic_s()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - the server's error mapping
            answer = note_error(error, path=scope["path"])
            if status == 0:
                await answer.to_response()(scope, receive, send_with_id)
        finally:
            self._finish(scope, status, self._clock.monotonic_s() - started_s)

    def _finish(self, scope: Scope, status: int, duration_s: float) -> None:
        route = scope.get("route")
        endpoint = str(route.path) if route is not None else "unmatched"
        self._metrics.count_http(endpoint, status)
        emit = self._log.debug if scope["path"] in _QUIET_PATHS else self._log.info
        emit(
            "http_request_finished",
            method=scope["method"],
            path=scope["path"],
            status=status,
            duration_s=round(duration_s, 4),
        )


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _VALID_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
