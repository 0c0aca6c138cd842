"""The one place where errors become HTTP answers, always OpenAI-shaped. Knows nothing about endpoints."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson
import structlog
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ninfer.api.errors import NinferError
from ninfer.core.errors import EngineStopped, QueueFull, RequestError

_RETRY_AFTER_S: Final = 2
"""What clients are told to wait. Official SDKs back off by themselves; this is a lower bound."""

_TYPE_BY_STATUS: Final = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class ModelNotFound(RequestError):
    """The request names a model that is not served."""

    code = "model_not_found"


class UnsupportedField(RequestError):
    """The request uses a field, or a value of one, that ninfer does not support."""

    code = "unsupported_parameter"


class BodyTooLarge(RequestError):
    """The request body is longer than allowed."""

    code = "request_too_large"


class InvalidApiKey(RequestError):
    """No API key, or a wrong one."""

    code = "invalid_api_key"


class QueueTimeout(NinferError):
    """The request waited too long before it could start."""

    code = "queue_timeout"
    retryable = True


class GenerationFailed(NinferError):
    """The engine gave up a request."""

    code = "generation_failed"


class ClientGone(NinferError):
    """The client closed the connection; nobody reads the answer."""

    code = "client_disconnected"


_STATUS_BY_ERROR: Final[dict[type[NinferError], int]] = {
    ModelNotFound: 404,
    BodyTooLarge: 413,
    InvalidApiKey: 401,
    RequestError: 400,
    QueueFull: 429,
    QueueTimeout: 503,
    EngineStopped: 503,
    ClientGone: 499,
    NinferError: 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An error as a client sees it.

    Attributes:
        status: HTTP status code.
        message: for people.
        kind: OpenAI's error `type`.
        param: the field at fault.
        code: safe to match on.
        allow: methods that work, of a 405.
    """

    status: int
    message: str
    kind: str
    param: str | None = None
    code: str | None = None
    allow: str | None = None

    @property
    def body(self) -> dict[str, object]:
        """The OpenAI-shaped error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with the status."""
        headers: dict[str, str] = {}
        if self.status in {429, 503}:
            headers["retry-after"] = str(_RETRY_AFTER_S)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.allow is not None:
            headers["allow"] = self.allow
        return headers

    def to_response(self) -> Response:
        """Return it as a JSON response."""
        return Response(
            orjson.dumps(self.body),
            self.status,
            headers=self.headers,
            media_type="application/json",
        )


def answer_for(error: Exception) -> ErrorAnswer:
    """Map an error to what the client is told.

    Args:
        error: a `NinferError`, a Starlette `HTTPException`, or a defect. Of a defect, nothing is told.
    """
    if isinstance(error, NinferError):
        status = next(
            _STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _STATUS_BY_ERROR
        )
        return ErrorAnswer(
            status=status,
            message=str(error),
            kind=_kind_of(status),
            param=error.param if isinstance(error, RequestError) else None,
            code=error.code,
        )
    if isinstance(error, HTTPException):
        return _answer_for_http(error)
    return ErrorAnswer(
        status=500,
        message="Internal error; the server's log has the details.",
        kind="server_error",
        code="internal_error",
    )


def _kind_of(status: int) -> str:
    return _TYPE_BY_STATUS.get(status, "invalid_request_error")


def _answer_for_http(error: HTTPException) -> ErrorAnswer:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    message = {
        404: "Unknown URL. See docs/api.md for the endpoints.",
        405: "Method not allowed for this URL.",
    }.get(error.status_code, str(error.detail))
    allow = error.headers.get("Allow") if error.headers else None
    return ErrorAnswer(
        status=error.status_code,
        message=message,
        kind=_kind_of(error.status_code),
        code=code or HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"),
        allow=allow,
    )


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer known errors through `answer_for`; `RequestScope` does it for defects."""
    for kind in (NinferError, HTTPException):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    return note_error(error, path=request.url.path).to_response()


def note_error(error: Exception, *, path: str) -> ErrorAnswer:
    """Map an error, put it into the request's log line, and log the traceback of a defect."""
    answer = answer_for(error)
    structlog.contextvars.bind_contextvars(error_code=answer.code, error=answer.message)
    if not isinstance(error, NinferError | HTTPException):
        structlog.get_logger("ninfer.server").error("request_failed", path=path, exc_info=error)
    return answer
