"""A server as a process: ready line, SIGTERM, port in use."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from ninfer.api.errors import NinferError
from ninfer.server.listener import CannotListen, bind_listener

SCRIPT = """
import sys
from ninfer.config.settings import Settings
from ninfer.obs.logging import configure_logging
from ninfer.server.run import ServedEngine, serve_engine
from tests.integration.server.fake_model import serve_fake

configure_logging()
served = serve_fake()
served.engine.step_s = float(sys.argv[3])
settings = Settings.model_validate(
    {"server": {"port": int(sys.argv[1]), "request_log": sys.argv[2], "drain_timeout": float(sys.argv[4])}}
)
sys.exit(serve_engine(lambda: ServedEngine(engine=served.engine, text=served.text), settings))
"""
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class Process:
    def __init__(self, path, *, step_s: float = 0.0, drain_s: float = 5.0) -> None:
        root = str(Path.cwd())
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "0", str(path), str(step_s), str(drain_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": root},
        )
        self.line = self.process.stdout.readline()
        self.url = self.line.split()[-1].removesuffix("/v1")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "requests.jsonl"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_lets_running_requests_end_and_exits_0(path, number):
    server = Process(path, step_s=0.05)
    assert server.line.startswith("ninfer serves fake-model at http://127.0.0.1:")
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(
            httpx.post(f"{server.url}/v1/chat/completions", json=CHAT, timeout=20)
        )
    )
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json={**CHAT, "stream": True}
    ) as stream:
        lines = stream.iter_lines()
        next(lines)
        thread.start()
        time.sleep(0.15)
        server.process.send_signal(number)
        rest = list(lines)
    thread.join()
    _, errors = server.process.communicate(timeout=30)
    assert server.process.returncode == 0, errors
    assert rest[-2:] == ["data: [DONE]", ""] or rest[-1] == "data: [DONE]"
    assert "error" not in "".join(rest)
    assert answers[0].json()["choices"][0]["message"]["content"] == "Hello world"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["result"]["finish_reason"] for record in records] == ["stop", "stop"]
    assert "Traceback" not in errors
    for line in errors.splitlines():
        json.loads(line)


def test_requests_that_outlive_the_drain_time_end_with_an_error(path):
    server = Process(path, step_s=0.5, drain_s=0.3)
    body = {**CHAT, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=20) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = "".join(lines)
    code, errors = server.process.wait(30), server.process.stderr.read()
    assert code == 0, errors
    assert '"code":"engine_stopped"' in rest
    [record] = [json.loads(line) for line in path.read_text().splitlines()]
    assert record["result"]["finish_reason"] == "aborted"


def test_a_port_in_use_is_a_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}.*in use") as caught:
            bind_listener("127.0.0.1", port)
    assert isinstance(caught.value, NinferError)
    with pytest.raises(CannotListen, match=r"no\.such\.host\.invalid"):
        bind_listener("no.such.host.invalid", 0)
