"""The application over the fake engine, on a real socket."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import structlog
import uvicorn

from ninfer.server.listener import bind_listener
from tests.integration.server.fake_model import Served, serve_fake


@pytest.fixture(scope="session", autouse=True)
def _silent_logs() -> Iterator[None]:
    structlog.configure(
        processors=[structlog.processors.JSONRenderer(default=repr)],
        logger_factory=structlog.ReturnLoggerFactory(),
    )
    yield
    structlog.reset_defaults()


class LiveServer:
    """A server of the fake engine, and a client for it."""

    def __init__(self, served: Served, url: str) -> None:
        self.served = served
        self.engine = served.engine
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=20)

    def chat(self, content: object = "hi", **fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": content}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, prompt: object = "hi", **fields: object) -> httpx.Response:
        return self.http.post("/v1/completions", json={"prompt": prompt, **fields})

    def wait_until(self, condition, what: str) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, f"not within 10 s: {what}"
            time.sleep(0.002)


@contextlib.contextmanager
def running(served: Served) -> Iterator[LiveServer]:
    listener = bind_listener("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(served.app, log_config=None, access_log=False, lifespan="on")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.socket]}, daemon=True)
    thread.start()
    live = LiveServer(served, listener.url)
    live.wait_until(lambda: server.started, "server starts")
    try:
        yield live
    finally:
        live.http.close()
        served.engine.close()
        server.should_exit = True
        thread.join(10)
        listener.socket.close()


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[dict], LiveServer]]:
    """Servers by options, started when first asked for."""
    with contextlib.ExitStack() as stack:
        started: dict[str, LiveServer] = {}

        def get(options: dict) -> LiveServer:
            key = repr(options)
            if key not in started:
                started[key] = stack.enter_context(running(serve_fake(**options)))
            return started[key]

        yield get


@pytest.fixture
def shared(servers) -> LiveServer:
    """For tests that leave the engine as it was."""
    return servers({})


@pytest.fixture
def live(servers, request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """A server whose engine does what the test says; options by indirect parameters."""
    server = servers(getattr(request, "param", {}))
    server.engine.reset()
    yield server
    server.engine.queue_gate.set()
    server.engine.step_gate.set()
    for request_id in list(server.engine.live):
        server.engine.abort(request_id)
    server.wait_until(lambda: not server.engine.live, "nothing is live after a test")
    server.engine.reset()


def events_of(response: httpx.Response) -> list[object]:
    """Return the payloads of a stream, in order; the last is the string "[DONE]"."""
    import json

    events: list[object] = []
    for line in response.text.split("\n\n"):
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            events.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert line in {"", ": keep-alive"}
    return events
