"""Server-sent events: framing, keep-alive comments, errors after the headers. Knows nothing about what is streamed."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from enum import Enum
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from ninfer.server.errors import ClientGone, note_error


class Comment(Enum):
    """Something to send that clients ignore."""

    KEEP_ALIVE = b": keep-alive\n\n"


SseItem = Mapping[str, object] | Comment
"""A payload to be sent as JSON, or a comment."""

SseItems = AsyncGenerator[SseItem, None]
"""What a service streams. Closing it ends the work behind it."""

_DONE: Final = b"data: [DONE]\n\n"


def frame(payload: Mapping[str, object]) -> bytes:
    """Return one event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


async def framed(items: SseItems, *, path: str) -> AsyncIterator[bytes]:
    """Frame items, and end with `[DONE]`, after an error event if the items end with an error."""
    async with aclosing(items):
        try:
            async for item in items:
                yield item.value if isinstance(item, Comment) else frame(item)
        except ClientGone as error:
            note_error(error, path=path)
            return
        except Exception as error:  # noqa: BLE001 - the server's error mapping
            yield frame(note_error(error, path=path).body)
        yield _DONE


class EventStreamResponse(Response):
    """Streams items as server-sent events.

    When the client is gone, items are still taken to their end: the service behind them notices by itself, and
    has something left to do, such as the request log.

    Args:
        items: what to send; the response ends with them.
    """

    media_type = "text/event-stream"

    def __init__(self, items: SseItems) -> None:
        """Keep `items`."""
        super().__init__(
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        del self.headers["content-length"]
        self._items = items

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send headers and all items."""
        is_gone = not await _try_send(
            send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        )
        async for chunk in framed(self._items, path=scope["path"]):
            if not is_gone:
                is_gone = not await _try_send(send, _body(chunk, more=True))
        if not is_gone:
            await _try_send(send, _body(b"", more=False))


def _body(chunk: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


async def _try_send(send: Send, message: Message) -> bool:
    try:
        await send(message)
    except OSError:
        return False
    return True
