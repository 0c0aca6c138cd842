import io
import json
import logging

import pytest
import structlog

from ninfer.obs.logging import configure_logging


@pytest.fixture(autouse=True)
def _restore():
    root = logging.getLogger()
    before = (root.handlers[:], root.level, structlog.get_config())
    yield
    root.handlers[:], level, config = before
    root.setLevel(level)
    structlog.configure(**config)
    structlog.contextvars.clear_contextvars()


def test_lines_are_json_off_a_terminal_with_bound_context_and_traceback():
    stream = io.StringIO()
    configure_logging(stream=stream)
    structlog.contextvars.bind_contextvars(request_id="r1")
    log = structlog.get_logger("x")
    log.info("page_freed", num_pages=12, path=ValueError("odd"))
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("step_failed")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first["event"] == "page_freed"
    assert first["num_pages"] == 12
    assert first["request_id"] == "r1"
    assert first["level"] == "info"
    assert "ValueError: broken" in second["exception"]


def test_other_libraries_lines_look_the_same():
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("uvicorn.error").warning("odd %s", "thing")
    logging.getLogger("uvicorn.access").info("hidden")
    [line] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert line["event"] == "odd thing"
    assert line["logger"] == "uvicorn.error"


@pytest.mark.parametrize("form", ["console", "auto"])
def test_console_is_for_people(form):
    stream = io.StringIO()
    stream.isatty = lambda: form == "auto"
    configure_logging(form=form, stream=stream)
    structlog.get_logger().info("page_freed", num_pages=12)
    assert "page_freed" in stream.getvalue()
    with pytest.raises(ValueError):
        json.loads(stream.getvalue())


def test_levels_are_respected():
    stream = io.StringIO()
    configure_logging(level="warning", stream=stream)
    structlog.get_logger().info("hidden")
    structlog.get_logger().warning("shown")
    assert json.loads(stream.getvalue())["event"] == "shown"
