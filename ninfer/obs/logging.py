"""Structured logs: one function that sets them up for a process. Knows nothing about what is logged."""

import logging
import sys
from typing import Final, Literal, TextIO

import orjson
import structlog
from structlog.typing import Processor

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

_NOISY_LOGGERS: Final = ("uvicorn", "httpx", "httpcore", "asyncio")


def configure_logging(
    *, level: LogLevel = "info", form: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Set up structlog, and let lines of other libraries' loggers look the same.

    Args:
        level: least important level that is shown.
        form: "auto" is console on a terminal and JSON elsewhere.
        stream: where lines go; None is standard error, so that standard output stays free.

    Changes: process-wide logging. Call it once, at start.
    """
    target = stream if stream is not None else sys.stderr
    is_json = form == "json" or (form == "auto" and not target.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if is_json:
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, _renderer(is_json=is_json, target=target)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    _configure_foreign(shared, number, target, is_json=is_json)


def _renderer(*, is_json: bool, target: TextIO) -> Processor:
    if is_json:
        return structlog.processors.JSONRenderer(serializer=_dump)
    # Pretty tracebacks with locals take seconds, during which the event loop would stand still.
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def _dump(event: object, **_options: object) -> str:
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _configure_foreign(
    shared: list[Processor], level: int, target: TextIO, *, is_json: bool
) -> None:
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(is_json=is_json, target=target),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
