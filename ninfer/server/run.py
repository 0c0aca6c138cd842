"""Serves until told to stop: socket, engine, HTTP server, signals. Knows nothing about endpoints."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Final, Protocol

import structlog
import uvicorn
from typing_extensions import override

from ninfer.api.errors import NinferError
from ninfer.config.loading import LoadedSettings
from ninfer.config.settings import Settings
from ninfer.obs.logging import configure_logging
from ninfer.server.app import create_app
from ninfer.server.engine_port import EnginePort
from ninfer.server.listener import Listener, bind_listener
from ninfer.server.text_port import TextPort

_KEEP_ALIVE_S: Final = 75
"""Idle connections stay open longer than connection pools of clients keep them, which avoids resets."""
_ABORT_GRACE_S: Final = 10.0
"""After the drain time, aborted requests need a step to end and their answers to be sent."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class ServedEngine(Protocol):
    """What is served: an engine and the text side of its model."""

    @property
    def engine(self) -> EnginePort:
        """Makes tokens."""
        ...

    @property
    def text(self) -> TextPort:
        """Makes tokens of text and back."""
        ...


def serve_engine(
    build: Callable[[], ServedEngine],
    settings: Settings,
    *,
    announce: Callable[[str], None] | None = None,
) -> int:
    """Bind the address, build the engine, and serve until SIGTERM or SIGINT.

    A stop signal lets running requests end for `server.drain_timeout`, aborts what is left, and writes out the
    request log.

    Args:
        build: makes the engine; called once the address is bound.
        settings: all of them.
        announce: takes one line for people when the server is ready; None writes it to standard output.

    Returns:
        The exit status of the process: 0 after a stop signal, 1 if it could not start.
    """
    log = structlog.get_logger("ninfer.server")
    try:
        listener = bind_listener(settings.server.host, settings.server.port)
    except NinferError as error:
        log.error("server_start_failed", code=error.code, error=str(error))
        return 1
    with contextlib.closing(listener.socket):
        try:
            served = build()
        except NinferError as error:
            log.error("server_start_failed", code=error.code, error=str(error))
            return 1
        with contextlib.closing(served.engine):
            return _serve_http(served, settings, listener, announce or _write_line)


def serve(loaded: LoadedSettings, build: Callable[[], ServedEngine]) -> int:
    """Set up logging and serve; see `serve_engine`.

    Args:
        loaded: the settings.
        build: makes the engine.
    """
    settings = loaded.settings
    configure_logging(level=settings.log.level, form=settings.log.format)
    return serve_engine(build, settings)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _serve_http(
    served: ServedEngine, settings: Settings, listener: Listener, announce: Callable[[str], None]
) -> int:
    log = structlog.get_logger("ninfer.server")
    try:
        app = create_app(served.engine, served.text, settings.server)
    except NinferError as error:
        log.error("server_start_failed", code=error.code, error=str(error))
        return 1
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.server.drain_timeout + _ABORT_GRACE_S),
    )
    model = served.engine.model_info.name
    server = _DrainingServer(
        config,
        engine=served.engine,
        drain_timeout_s=settings.server.drain_timeout,
        on_ready=lambda: announce(f"ninfer serves {model} at {listener.url}/v1"),
    )
    with _quiet_signals():
        server.run(sockets=[listener.socket])
    log.info("server_stopped")
    return 0 if server.started else 1


class _DrainingServer(uvicorn.Server):
    """Drains the engine while it waits for connections to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        engine: EnginePort,
        drain_timeout_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._engine = engine
        self._drain_timeout_s = drain_timeout_s
        self._on_ready = on_ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.create_task(self._engine.drain(self._drain_timeout_s))
        # Requests that were being read get the loop once, and are refused by the engine that drains.
        await asyncio.sleep(0)
        await super().shutdown(sockets=sockets)
        await draining


@contextlib.contextmanager
def _quiet_signals() -> Generator[None, None, None]:
    """Take stop signals that uvicorn raises again after it has stopped: they have done their work."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _ignore) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""
