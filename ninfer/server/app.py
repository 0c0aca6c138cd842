"""The ASGI application: endpoints, middleware, error mapping. Knows nothing about sockets or processes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

import ninfer
from ninfer.api.clock import Clock
from ninfer.config.sections import ServerSection
from ninfer.obs.clock import SystemClock
from ninfer.obs.request_log import RequestLog
from ninfer.server.admin.router import admin_router
from ninfer.server.admin.service import AdminService
from ninfer.server.chat.router import chat_router
from ninfer.server.chat.service import ChatService
from ninfer.server.completions.router import completion_router
from ninfer.server.completions.service import CompletionService
from ninfer.server.context import ServerContext
from ninfer.server.engine_port import EnginePort
from ninfer.server.errors import install_error_handlers
from ninfer.server.metrics import ServerMetrics
from ninfer.server.middleware.api_key import ApiKeyGuard
from ninfer.server.middleware.body_limit import BodyLimit
from ninfer.server.middleware.request_scope import RequestScope
from ninfer.server.models.router import model_router
from ninfer.server.models.service import ModelService
from ninfer.server.page_digests import PageDigests
from ninfer.server.text_port import TextPort
from ninfer.server.tokens.router import token_router
from ninfer.server.tokens.service import TokenService


def create_app(
    engine: EnginePort,
    text: TextPort,
    settings: ServerSection,
    *,
    clock: Clock | None = None,
    keep_alive_s: float = 5.0,
    plugins: Sequence[Mapping[str, Any]] = (),
) -> FastAPI:
    """Build the application around an engine that runs.

    The application owns the request log; it is complete when the application's lifespan has ended. The engine stays
    the caller's.

    Args:
        engine: makes tokens.
        text: tokenizer and chat template of the same model.
        settings: `[server]`.
        clock: source of time, None for the system's.
        keep_alive_s: a stream that has nothing to say for so long sends a comment.
        plugins: the installed plugins as `ninfer plugins --json` lists them.

    Raises:
        ConfigError: the request log cannot be written.
    """
    used_clock = clock if clock is not None else SystemClock()
    metrics = ServerMetrics(engine)
    request_log = RequestLog(Path(settings.request_log)) if settings.request_log else None
    has_digests = settings.request_log and settings.request_log_digests
    context = ServerContext(
        engine=engine,
        text=text,
        clock=used_clock,
        metrics=metrics,
        request_log=request_log,
        page_digests=PageDigests.open(_salt_path(settings)) if has_digests else None,
        keep_alive_s=keep_alive_s,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
        yield
        if request_log is not None:
            request_log.close()

    app = FastAPI(title="ninfer", version=ninfer.__version__, openapi_url=None, lifespan=lifespan)
    app.include_router(chat_router(ChatService(context)))
    app.include_router(completion_router(CompletionService(context)))
    app.include_router(model_router(ModelService(context)))
    app.include_router(token_router(TokenService(context)))
    app.include_router(admin_router(AdminService(context, plugins)))
    install_error_handlers(app)
    _install_middleware(app, settings, used_clock, metrics)
    return app


def _install_middleware(
    app: FastAPI, settings: ServerSection, clock: Clock, metrics: ServerMetrics
) -> None:
    """Wrap the application; what is added last is outermost."""
    app.add_middleware(BodyLimit, max_body_bytes=settings.max_body)
    if settings.api_keys:
        app.add_middleware(ApiKeyGuard, api_keys=settings.api_keys)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )
    app.add_middleware(RequestScope, clock=clock, metrics=metrics)


def _salt_path(settings: ServerSection) -> Path:
    """Return the file of the salt that digests in the request log are made with."""
    return Path(settings.request_log).with_name(Path(settings.request_log).name + ".salt")
