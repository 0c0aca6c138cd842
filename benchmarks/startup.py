"""Seconds from starting `ninfer serve` to a healthy answer, with the model installed and calibration kept."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.served import THREADS, Bench, default_policy
from benchmarks.table import Row, median


class Server:
    """A running `ninfer serve`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def is_healthy(self) -> bool:
        try:
            return self.request("GET", "/health")[0] == 200
        except OSError:
            return False

    def wait(self, deadline_s: float = 120.0) -> None:
        until_s = time.perf_counter() + deadline_s
        while not self.is_healthy():
            if self.process.poll() is not None or time.perf_counter() > until_s:
                raise RuntimeError("the server did not become healthy")
            time.sleep(0.02)


@contextmanager
def serving(bench: Bench, *sets: str) -> Iterator[Server]:
    """Start a server on a free port; stop it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    always = (
        f"server.port={port}",
        f"model.threads={THREADS}",
        f"cache.dir={bench.folder / 'cache'}",
        f"cache.policy={default_policy()}",
        "log.level=warning",
    )
    command = [sys.executable, "-m", "ninfer", "serve"]
    for item in (*always, *sets):
        command += ["--set", item]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=bench.folder)
    try:
        yield Server(process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(bench: Bench) -> list[Row]:
    seconds = []
    for _ in range(bench.pick(4, 2)):
        start_s = time.perf_counter()
        with serving(bench) as server:
            server.wait()
            seconds.append(time.perf_counter() - start_s)
    return [
        Row(
            figure="start of `ninfer serve` to healthy",
            measured=median(seconds[1:]),
            unit="s",
            bound=10.0,
            sense="at most",
            judged="measured",
            note="default settings, two threads; the first start, which may calibrate, is left out",
            raw={"first_s": seconds[0], "seconds": seconds[1:]},
        )
    ]
