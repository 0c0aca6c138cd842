"""Clients that go away in prefill, decode and queue; requests that wait too long."""

import json
import socket
import threading

import httpx
import pytest

from tests.e2e.conftest import cached, make_server, text, user, wait_for

pytestmark = [pytest.mark.model, pytest.mark.slow]

CHUNK = 128


@pytest.fixture(scope="module")
def server(_model, cache_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_lane")
    settings = ("engine.max_concurrency=1", "engine.queue_timeout=6s")
    server = make_server(folder, cache_dir, *settings, dtype="bfloat16")
    server.start()
    yield server
    server.kill()


class Call:
    """A streaming request on a socket of its own, so that it can be dropped at any moment."""

    def __init__(self, server, content, **more):
        body = {"model": "smollm2", "messages": [user(content)], "stream": True, **more}
        data = json.dumps(body).encode()
        host, port = server.root_url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        self.seen = b""

    def read_tokens(self, count):
        while self.seen.count(b"data: ") < count + 1:
            piece = self.socket.recv(65536)
            assert piece, self.seen
            self.seen += piece

    def drop(self):
        self.socket.close()


def is_idle(client):
    metrics = client.metrics()
    return not metrics["ninfer_running_requests"] + metrics["ninfer_waiting_requests"]


def is_running(client):
    return client.metrics()["ninfer_running_requests"] == 1


def test_client_gone_in_prefill(server, client):
    question = text("gold", 1000)
    before = client.metrics()["ninfer_computed_tokens_total"]
    call = Call(server, question)
    wait_for(lambda: client.metrics()["ninfer_computed_tokens_total"] >= before + 2 * CHUNK)
    call.drop()
    wait_for(lambda: is_idle(client), 10)
    computed = client.metrics()["ninfer_computed_tokens_total"] - before
    body, _ = client.chat(question)
    prompt = body["usage"]["prompt_tokens"]
    assert computed < prompt, "it went on to the end"
    assert cached(body) >= computed - 64
    assert wait_for(
        lambda: [r for r in server.requests() if r["result"]["finish_reason"] == "aborted"]
    )


def test_client_gone_in_decode(server, client):
    question = text("iron", 400)
    call = Call(server, question, max_tokens=1500, temperature=0, ignore_eos=True)
    call.read_tokens(20)
    call.drop()
    wait_for(lambda: is_idle(client), 10)
    record = wait_for(lambda: [r for r in server.requests() if r["request"]["max_tokens"] == 1500])[
        0
    ]
    assert record["result"]["finish_reason"] == "aborted"
    assert 18 <= record["result"]["completion_tokens"] < 200
    body, _ = client.chat(question)
    assert cached(body) >= body["usage"]["prompt_tokens"] - 64


def test_client_gone_in_queue(server, client):
    running = Call(server, text("zinc", 60), max_tokens=1200, ignore_eos=True)
    running.read_tokens(1)
    queued = Call(server, text("lead", 60), max_tokens=5)
    wait_for(lambda: client.metrics()["ninfer_waiting_requests"] == 1)
    queued.drop()
    wait_for(lambda: client.metrics()["ninfer_waiting_requests"] == 0, 10)
    assert is_running(client)
    running.drop()
    wait_for(lambda: is_idle(client), 10)
    assert client.chat("Hello")[0]["choices"]


def test_timeout_in_the_queue_is_an_error_that_the_client_sees(server, client):
    running = Call(server, "Count.", max_tokens=1900, ignore_eos=True)
    running.read_tokens(1)
    plain = []

    def ask():
        plain.append(client.post("/v1/chat/completions", messages=[user("Hi")], max_tokens=1))

    thread = threading.Thread(target=ask)
    thread.start()
    with httpx.stream(
        "POST",
        f"{server.base_url}/chat/completions",
        json={"model": "smollm2", "messages": [user("Hi")], "max_tokens": 1, "stream": True},
        timeout=60,
    ) as stream:
        seen = stream.read().decode()
        assert stream.status_code == 503 or '"error"' in seen
    assert "waited" in seen
    thread.join()
    assert plain[0].status_code == 503
    assert "waited" in plain[0].json()["error"]["message"]
    running.drop()
    wait_for(lambda: is_idle(client), 10)
    assert client.http.get("/health").json()["status"] == "ok"
