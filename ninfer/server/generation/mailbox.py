"""Carries engine events from the engine's thread to the event loop. Knows nothing about what they mean."""

import asyncio
from collections import deque

from ninfer.core.request import RequestEvent


class Mailbox:
    """A queue with one reading task, which any thread may write to.

    The loop is woken once for all events that arrive before it looks, so that a fast engine does not flood it.

    Args:
        loop: where the reader runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin empty."""
        self._loop = loop
        self._events: deque[RequestEvent] = deque()
        self._arrived = asyncio.Event()
        self._is_waking = False

    def put(self, event: RequestEvent) -> None:
        """Add an event. Does not block; with a closed loop, nobody will read it."""
        self._events.append(event)
        if not self._is_waking:
            self._is_waking = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                self._events.clear()

    def _wake(self) -> None:
        # The flag falls before the events are taken: an event that was added while it was up is among them.
        self._is_waking = False
        self._arrived.set()

    async def take(self, timeout_s: float) -> list[RequestEvent]:
        """Wait for events and take all of them.

        Args:
            timeout_s: seconds to wait.

        Returns:
            Events in order, none if the time is over.
        """
        try:
            async with asyncio.timeout(timeout_s):
                # Events may have been taken before the wake-up that announced them: look again.
                while not self._events:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken
