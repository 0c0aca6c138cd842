"""What all services of one server share, and who is asking. Knows nothing about endpoints."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Receive

from ninfer.api.clock import Clock
from ninfer.obs.request_log import RequestLog
from ninfer.server.engine_port import EnginePort
from ninfer.server.errors import ModelNotFound
from ninfer.server.metrics import ServerMetrics
from ninfer.server.middleware.request_scope import REQUEST_ID_KEY
from ninfer.server.page_digests import PageDigests
from ninfer.server.text_port import TextPort


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The parts of one server.

    Attributes:
        engine: makes tokens.
        text: makes tokens of text and back.
        clock: source of time.
        metrics: the server's own counters.
        request_log: gets one record per request, None for nowhere.
        page_digests: names the pages of prompts in those records, None for not at all.
        keep_alive_s: a stream that has nothing to say for so long sends a comment.
    """

    engine: EnginePort
    text: TextPort
    clock: Clock
    metrics: ServerMetrics
    request_log: RequestLog | None = None
    page_digests: PageDigests | None = None
    keep_alive_s: float = 5.0

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; no name is the served one.

        Raises:
            ModelNotFound: `name` is another model.
        """
        served = self.engine.model_info.name
        if name is not None and name != served:
            raise ModelNotFound(
                f"The model {name!r} does not exist; this server serves {served!r}.", param="model"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The HTTP client that waits for an answer.

    Attributes:
        http_request_id: id of the HTTP request.
        path: the endpoint.
        receive: ASGI receive; after the body, it returns when the client is gone.
    """

    http_request_id: str
    path: str
    receive: Receive


def client_of(request: Request) -> Client:
    """Return who sent `request`."""
    return Client(
        http_request_id=request.scope[REQUEST_ID_KEY],
        path=request.scope["path"],
        receive=request.receive,
    )


ClientDependency = Annotated[Client, Depends(client_of)]
"""A parameter type for routers."""
