"""What survives the end of a server: clean stop, crash, other dtype, smaller disk."""

import pytest

from tests.e2e.conftest import Client, cached, make_server, text
from tools.local_server import SMOLLM2_PAGE_BYTES

pytestmark = [pytest.mark.model, pytest.mark.slow]

CONTEXTS = [text(name, 250) for name in ("rose", "lily", "iris", "fern")]


@pytest.fixture
def server(_model, cache_dir, tmp_path):
    server = make_server(tmp_path, cache_dir)
    server.start()
    yield server
    server.kill()


def ask_all(client):
    return [client.chat(context, max_tokens=4) for context in CONTEXTS]


def assert_cached(body):
    assert cached(body) >= body["usage"]["prompt_tokens"] - 64


def test_life_of_a_server(server):
    """One test, because each part continues from the last one."""
    client = Client(server)
    cold = [body["choices"][0]["message"] for body, _ in ask_all(client)]
    assert server.stop() == 0

    server.start()
    client = Client(server)
    for (body, record), message in zip(ask_all(client), cold, strict=True):
        assert_cached(body)
        assert record["restored_bytes"]["disk"] > 0
        assert body["choices"][0]["message"] == message
    client.chat(text("moss", 250))
    server.kill()

    # Another number format on the same folder: cold, and no error.
    server.settings = (*server.settings, "model.dtype=bfloat16")
    server.start()
    client = Client(server)
    assert client.http.get("/health").json()["status"] == "ok"
    body, record = client.chat(CONTEXTS[-1], max_tokens=4)
    assert cached(body) == 0
    assert record["restored_bytes"]["disk"] == 0
    assert server.stop() == 0

    # As before the crash.
    server.settings = server.settings[:-1]
    server.start()
    client = Client(server)
    for (body, record), message in zip(ask_all(client), cold, strict=True):
        assert_cached(body)
        assert record["restored_bytes"]["disk"] > 0
        assert body["choices"][0]["message"] == message
    assert server.stop() == 0


def test_a_smaller_disk_keeps_the_most_recent(server):
    client = Client(server)
    body = ask_all(client)[-1][0]
    assert server.stop() == 0
    num_pages = -(-body["usage"]["total_tokens"] // 64)
    server.disk_bytes = int((2 * num_pages + 1) * 2 * SMOLLM2_PAGE_BYTES * 1.1)
    server.start()
    client = Client(server)
    body, record = client.chat(CONTEXTS[-1], max_tokens=4)
    assert_cached(body)
    assert record["restored_bytes"]["disk"] > 0
    # Of the oldest context at most the first page is left: its opening tokens were reused by all others.
    body, _ = client.chat(CONTEXTS[0], max_tokens=4)
    assert cached(body) <= 64
