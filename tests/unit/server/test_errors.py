import pytest
from starlette.exceptions import HTTPException

from ninfer.api.errors import ConfigError, InvariantBroken, NinferError
from ninfer.core import errors as core
from ninfer.server import errors as ours
from ninfer.server.errors import answer_for


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (core.RequestError("x", param="n"), 400, "invalid_request"),
        (core.ContextLengthExceeded("x"), 400, "context_length_exceeded"),
        (core.RequestInfeasible("x"), 400, "request_infeasible"),
        (core.QueueFull("x"), 429, "queue_full"),
        (core.EngineStopped("x"), 503, "engine_stopped"),
        (ours.ModelNotFound("x"), 404, "model_not_found"),
        (ours.UnsupportedField("x"), 400, "unsupported_parameter"),
        (ours.BodyTooLarge("x"), 413, "request_too_large"),
        (ours.InvalidApiKey("x"), 401, "invalid_api_key"),
        (ours.QueueTimeout("x"), 503, "queue_timeout"),
        (ours.GenerationFailed("x"), 500, "generation_failed"),
        (ours.ClientGone("x"), 499, "client_disconnected"),
        (InvariantBroken("x"), 500, "invariant_broken"),
        (ConfigError("x"), 500, "config"),
        (HTTPException(404), 404, "not_found"),
        (HTTPException(405, headers={"Allow": "GET"}), 405, "method_not_allowed"),
        (ZeroDivisionError("x"), 500, "internal_error"),
    ],
)
def test_each_error_has_one_answer(error, status, code):
    answer = answer_for(error)
    assert (answer.status, answer.code) == (status, code)
    assert answer.to_response().status_code == status
    assert ("retry-after" in answer.headers) == (status in {429, 503})


def test_every_error_of_ninfer_is_mapped():
    def subclasses(kind):
        return [kind, *(sub for child in kind.__subclasses__() for sub in subclasses(child))]

    for kind in subclasses(NinferError):
        if kind.__module__.startswith("ninfer."):
            try:
                error = kind("x")
            except TypeError:  # made of parts, not of a text
                error = kind.__new__(kind, "x")
            assert 400 <= answer_for(error).status < 600
