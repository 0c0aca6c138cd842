"""Notices that a client has gone, while something else is awaited. Knows nothing about requests."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Receive


class DisconnectWatch:
    """Calls back once when the client closes the connection; stops watching at the end of its `with` block.

    Args:
        receive: ASGI receive of a request whose body has been read.
        on_gone: called on the event loop.
    """

    def __init__(self, receive: Receive, on_gone: Callable[[], None]) -> None:
        """Watch nothing yet."""
        self._receive = receive
        self._on_gone = on_gone
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False

    @property
    def is_gone(self) -> bool:
        """True once the client has closed the connection."""
        return self._is_gone

    async def __aenter__(self) -> Self:
        """Start watching."""
        self._task = asyncio.create_task(self._watch(), name="ninfer-disconnect-watch")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            await asyncio.sleep(0)
        self._is_gone = True
        self._on_gone()
