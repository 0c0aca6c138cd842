"""A real server killed with SIGKILL while it writes to its disk tier: the next one answers as without a cache."""

import random
import threading

import httpx
import pytest

from tests.e2e.conftest import Client, cached, text, wait_for
from tools.local_server import LocalServer

pytestmark = pytest.mark.slow

NAMES = ("oak", "elm", "ash", "fir", "yew", "ivy")
CAP_BYTES = 16 << 20
OWN_FILES = {"lock", "data", "journal", "about.json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory, cache_dir):
    server = LocalServer(
        tmp_path_factory.mktemp("killed"),
        device_tokens=2048,
        disk_bytes=CAP_BYTES,
        cache_dir=cache_dir,
        settings=(
            "model.name=tiny-hybrid",
            "model.dtype=float32",
            "model.threads=1",
            "server.served_name=smollm2",
            "engine.prefill_chunk_tokens=256",
            "engine.state_images=6",
            # What a busy disk costs would decide, and this is about what it holds.
            "cache.policy=lru",
        ),
    )
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cold(server):
    """Answers of a server that uses no cache."""
    client = Client(server)
    found = {}
    for name in NAMES:
        body, _ = client.chat(text(name, 400), max_tokens=6, cache=False)
        found[name] = body["choices"][0]["message"]
    client.close()
    return found


def disk_files(server):
    return [path for path in (server.folder / "disk").rglob("*") if path.is_file()]


def num_writes(server):
    """A number that grows with what the tier has written."""
    return sum(path.stat().st_size for path in disk_files(server) if path.name == "journal")


def keep_asking(server, rng, is_over):
    """Ask in a random order until the server is gone."""
    with httpx.Client(base_url=server.root_url, timeout=60) as http:
        while not is_over.is_set():
            name = rng.choice(NAMES)
            new = f" And {rng.randrange(10**6)}?" if rng.random() < 0.6 else ""
            message = {"role": "user", "content": text(name, 400) + new}
            body = {"model": "smollm2", "messages": [message], "max_tokens": 3, "temperature": 0}
            try:
                http.post("/v1/chat/completions", json=body)
            except httpx.HTTPError:
                return


def kill_while_it_writes(server, rng):
    is_over = threading.Event()
    asking = threading.Thread(target=keep_asking, args=(server, rng, is_over))
    before = num_writes(server)
    asking.start()
    target = before + rng.randrange(1, 12_000)
    wait_for(lambda: num_writes(server) >= target or num_writes(server) < before, timeout_s=60)
    server.kill()
    is_over.set()
    asking.join(60)


def require_answers(server, cold):
    """A server on the same files, started if it is gone, answers like one without a cache; returns the tokens it had from disk."""
    if not server.is_running:
        server.start()
    client = Client(server)
    assert client.http.get("/health").json()["status"] == "ok"
    num_cached = 0
    for name in NAMES:
        body, record = client.chat(text(name, 400), max_tokens=6)
        assert body["choices"][0]["message"] == cold[name], name
        if record["restored_bytes"]["disk"]:
            num_cached += cached(body)
    client.close()
    files = disk_files(server)
    assert sum(path.stat().st_size for path in files) <= CAP_BYTES
    assert {path.name for path in files} <= OWN_FILES, "nothing half-made is left"
    return num_cached


def test_killed_while_it_writes(server, cold):
    rng = random.Random(1)
    require_answers(server, cold)
    kill_while_it_writes(server, rng)
    assert require_answers(server, cold) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 8))
def test_killed_again_and_again(server, cold, seed):
    rng = random.Random(seed)
    require_answers(server, cold)
    num_cached = 0
    for _ in range(3):
        kill_while_it_writes(server, rng)
        num_cached += require_answers(server, cold)
    assert num_cached > 3 * 300
