"""What is refused for its size, its key, or the state of the engine."""

import pytest

from ninfer.core.errors import EngineStopped, QueueFull, RequestInfeasible
from ninfer.core.request import FinishReason
from tests.integration.server.chat_client import check_error

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_names_both_numbers(shared, stream):
    response = shared.chat("x" * 5000, stream=stream, max_tokens=None)
    error = check_error(response, 400, "messages", "context_length_exceeded")
    assert "2048" in error["message"]
    assert "5019" in error["message"]
    check_error(shared.complete("x" * 5000), 400, "prompt", "context_length_exceeded")


def test_a_prompt_as_long_as_the_context_can_only_be_computed(shared):
    check_error(shared.complete("x" * 2048), 400, "prompt", "context_length_exceeded")
    answer = shared.complete("x" * 2048, max_tokens=0).json()
    assert answer["usage"]["prompt_tokens"] == 2048
    assert answer["choices"][0]["finish_reason"] == "length"


def test_max_tokens_beyond_the_context_is_clamped(shared):
    for fields in ({"max_tokens": 1_000_000}, {"max_completion_tokens": 1_000_000}, {}):
        assert shared.chat(**fields).status_code == 200
        request = shared.engine.submitted[-1]
        assert request.max_tokens == 2048 - len(request.prompt_token_ids)


@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_submission_have_their_status(live, stream):
    live.engine.submit_error = RequestInfeasible(
        "needs 5000 tokens, 4096 are available", param="max_tokens"
    )
    error = check_error(live.chat(stream=stream), 400, "max_tokens", "request_infeasible")
    assert "5000" in error["message"]
    live.engine.submit_error = QueueFull("256 requests wait already")
    response = live.chat(stream=stream)
    check_error(response, 429, None, "queue_full")
    assert int(response.headers["retry-after"]) > 0
    live.engine.submit_error = EngineStopped("draining")
    response = live.chat(stream=stream)
    check_error(response, 503, None, "engine_stopped")
    assert int(response.headers["retry-after"]) > 0


def test_a_queue_that_fills_up_between_choices_takes_the_first_ones_back(live):
    live.engine.max_live = 2
    live.engine.step_gate.clear()
    check_error(live.chat(n=3), 429, None, "queue_full")
    live.wait_until(lambda: not live.engine.live, "all choices are aborted")


@pytest.mark.parametrize("stream", [False, True])
def test_a_queue_timeout_is_503(live, stream):
    live.engine.finish_with = (FinishReason.TIMEOUT, "waited 300 s in the queue")
    live.engine.finish_before_start = True
    response = live.chat(stream=stream)
    error = check_error(response, 503, None, "queue_timeout")
    assert "300 s" in error["message"]
    assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_error_is_500_and_openai_shaped(live, stream):
    live.engine.finish_with = (FinishReason.ERROR, "a step failed")
    live.engine.finish_before_start = True
    check_error(live.chat(stream=stream), 500, None, "generation_failed")


def test_defects_tell_nothing_about_the_server(live):
    live.engine.submit_error = ZeroDivisionError("secret detail")
    error = check_error(live.chat(), 500, None, "internal_error")
    assert "secret" not in error["message"]
    live.engine.submit_error = None
    assert live.chat().status_code == 200


@pytest.mark.parametrize("live", [{"max_body": 1024 * 1024}], indirect=True)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_8_mb_body_over_the_limit_is_413(live, is_chunked):
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * 8_000_000 + b'"}]}'
    content = (
        (body[start : start + 65536] for start in range(0, len(body), 65536))
        if is_chunked
        else body
    )
    check_error(live.http.post(CHAT, content=content), 413, None, "request_too_large")
    assert live.chat().status_code == 200
    assert len(live.engine.submitted) == 1


@pytest.mark.parametrize("live", [{"api_keys": ("one", "two")}], indirect=True)
def test_only_known_api_keys_are_let_in(live):
    for headers in (
        {},
        {"authorization": "Bearer three"},
        {"authorization": "one"},
        {"authorization": "Basic one"},
    ):
        for path in (CHAT, "/v1/models", "/metrics", "/nowhere"):
            check_error(live.http.get(path, headers=headers), 401, None, "invalid_api_key")
    for key in ("one", "two"):
        response = live.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert response.status_code == 200
    assert live.http.get("/health").status_code == 200
