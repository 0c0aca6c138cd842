"""Serves until told to stop: socket, engine, HTTP server, signals. Knows nothing about endpoints."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import structlog
import uvicorn
from typing_extensions import override

from ninfer.config.loading import LoadedSettings
from ninfer.config.settings import Settings
from ninfer.plugins import PluginCatalog, to_data, uses_of
from ninfer.server.app import create_app
from ninfer.server.engine_port import EnginePort
from ninfer.server.listener import Listener, bind_listener
from ninfer.server.served_text import ServedText
from ninfer.server.text_port import TextPort

_KEEP_ALIVE_S: Final = 75
"""Idle connections stay open longer than connection pools of clients keep them, which avoids resets."""
_ABORT_GRACE_S: Final = 10.0
"""After the drain time, aborted requests need a step to end and their answers to be sent."""
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngine:
    """What is served.

    Attributes:
        engine: makes tokens.
        text: makes tokens of text and back.
        plugins: the installed plugins as data.
    """

    engine: EnginePort
    text: TextPort
    plugins: Sequence[Mapping[str, Any]] = ()


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
        The exit status of the process: 0 after a stop signal, 1 if the server did not start.

    Raises:
        CannotListen: the address cannot be used, for example because it is in use.
        NinferError: the engine could not be built, or the request log cannot be written.
    """
    listener = bind_listener(settings.server.host, settings.server.port)
    with contextlib.closing(listener.socket):
        served = build()
        with contextlib.closing(served.engine):
            return _serve_http(served, settings, listener, announce or _write_line)


def serve(loaded: LoadedSettings, catalog: PluginCatalog) -> int:
    """Build the engine that settings describe and serve it; see `serve_engine`. Logging is set up already.

    Args:
        loaded: the settings.
        catalog: the installed plugins.

    Raises:
        NinferError: as `serve_engine` does.
    """
    from ninfer.engine.build import build_engine  # noqa: PLC0415 - imports torch

    def build() -> ServedEngine:
        built = build_engine(loaded, catalog)
        text = ServedText(built.tokenizer, built.template, built.sampling)
        plugins = to_data(catalog.records, uses_of(loaded))
        return ServedEngine(engine=built.engine, text=text, plugins=plugins)

    return serve_engine(build, loaded.settings)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _serve_http(
    served: ServedEngine, settings: Settings, listener: Listener, announce: Callable[[str], None]
) -> int:
    app = create_app(served.engine, served.text, settings.server, plugins=served.plugins)
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
    structlog.get_logger("ninfer.server").info("server_stopped")
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
