"""A client that goes away ends its request within a step: in queue, in prefill and in decode."""

import json
import socket

import pytest

from tests.integration.server.conftest import LiveServer


def send(live: LiveServer, path: str, body: dict) -> socket.socket:
    host, _, port = live.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw)
    return connection


BODIES = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hi"}],
        "ignore_eos": True,
        "n": 2,
    },
    "/v1/completions": {"prompt": ["hi", "ho"], "ignore_eos": True, "max_tokens": 1500},
}


@pytest.mark.parametrize("path", list(BODIES))
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
def test_a_client_that_leaves_is_noticed(live, path, stream, phase):
    engine = live.engine
    if phase == "queue":
        engine.queue_gate.clear()
    elif phase == "prefill":
        engine.step_gate.clear()
    else:
        engine.step_s = 0.005
    connection = send(live, path, {**BODIES[path], "stream": stream})
    live.wait_until(lambda: len(engine.submitted) == 2, "both are submitted")
    if phase == "decode":
        live.wait_until(lambda: engine.num_steps >= 5, "tokens are made")
    num_steps = engine.num_steps
    connection.close()
    live.wait_until(lambda: not engine.live, "nothing is live any more")
    assert {request.request_id for request in engine.submitted} == set(engine.aborted)
    assert engine.num_steps - num_steps < 60, "it ended soon"


def test_a_client_that_leaves_does_not_disturb_others(live):
    live.engine.step_s = 0.005
    gone = send(live, "/v1/chat/completions", {**BODIES["/v1/chat/completions"], "stream": True})
    live.wait_until(lambda: live.engine.num_steps > 3, "tokens are made")
    gone.close()
    answer = live.chat().json()
    assert answer["choices"][0]["message"]["content"] == "Hello world"
    live.wait_until(lambda: not live.engine.live, "nothing is live any more")


def test_a_client_that_leaves_while_it_sends_its_body_leaves_nothing(live):
    host, _, port = live.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    )
    connection.close()
    assert live.chat().status_code == 200
    assert len(live.engine.submitted) == 1
