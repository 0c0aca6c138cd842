"""Errors of requests. Knows nothing about HTTP status codes."""

from ninfer.api.errors import NinferError


class RequestError(NinferError):
    """The request itself is wrong; nothing was changed.

    Attributes:
        param: the field at fault, None if none.
    """

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        """Keep the text for people and the field at fault."""
        super().__init__(message)
        self.param = param


class ContextLengthExceeded(RequestError):
    """The prompt is longer than the served context."""

    code = "context_length_exceeded"


class RequestInfeasible(RequestError):
    """The request could not fit even on an empty device."""

    code = "request_infeasible"


class QueueFull(NinferError):
    """Too many requests wait already."""

    code = "queue_full"
    retryable = True


class EngineStopped(NinferError):
    """The engine is shutting down or has stopped."""

    code = "engine_stopped"
    retryable = True
