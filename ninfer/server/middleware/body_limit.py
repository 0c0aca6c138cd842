"""Refuses request bodies that are too long, with and without Content-Length. Knows nothing about their content."""

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ninfer.server.errors import BodyTooLarge

_DISCARDED_LIMITS: Final = 8
"""A body of up to so many limits is read to its end before it is refused, because a client that still sends when
the connection closes sees a reset instead of the answer."""


class BodyLimit:
    """Raises `BodyTooLarge` from `receive` when a body grows beyond the limit.

    Args:
        app: what it wraps.
        max_body_bytes: longest body that is let through.
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        """Wrap `app`."""
        self._app = app
        self._max_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_bytes:
            await self._discard(receive, 0)
            raise self._error()
        num_received = 0

        async def limited_receive() -> Message:
            nonlocal num_received
            message = await receive()
            if message["type"] == "http.request":
                num_received += len(message.get("body", b""))
                if num_received > self._max_bytes:
                    if message.get("more_body", False):
                        await self._discard(receive, num_received)
                    raise self._error()
            return message

        await self._app(scope, limited_receive, send)

    async def _discard(self, receive: Receive, num_received: int) -> None:
        while num_received <= self._max_bytes * _DISCARDED_LIMITS:
            message = await receive()
            num_received += len(message.get("body", b""))
            if not message.get("more_body", False):
                break

    def _error(self) -> BodyTooLarge:
        return BodyTooLarge(f"The request body is longer than {self._max_bytes} bytes.")
