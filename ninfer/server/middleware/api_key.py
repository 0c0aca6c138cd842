"""Lets only clients in that send a known API key. Knows nothing about what they ask."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ninfer.server.errors import InvalidApiKey

_OPEN_PATHS: Final = frozenset({"/health"})
"""Probes of process supervisors carry no key."""


class ApiKeyGuard:
    """Refuses requests without a valid `Authorization: Bearer KEY`.

    Digests are compared, each in constant time, and all of them always: neither the length of a key nor the
    position of the matching one can be measured.

    Args:
        app: what it wraps.
        api_keys: at least one; without keys the guard is not installed.
    """

    def __init__(self, app: ASGIApp, *, api_keys: Sequence[str]) -> None:
        """Wrap `app`."""
        self._app = app
        self._digests = [_digest(key) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        is_guarded = scope["type"] == "http" and scope["path"] not in _OPEN_PATHS
        if is_guarded and not self._is_allowed(Headers(scope=scope).get("authorization", "")):
            raise InvalidApiKey(
                "Incorrect or missing API key. Send it as 'Authorization: Bearer KEY'."
            )
        await self._app(scope, receive, send)

    def _is_allowed(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        digest = _digest(token.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == "bearer"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
