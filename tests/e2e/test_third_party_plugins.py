"""Plugins of third parties, as their users have them: wheels in a fresh environment, servers that share a Redis.

Everything heavy (torch, the model) is borrowed from the environment of the tests; ninfer and its plugins are not.
"""

import shutil
import site
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK, Client, cached, text, user, wait_for
from tools.local_server import LocalServer

pytestmark = [pytest.mark.model, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
THIRD_PARTY = sorted(
    path.parent for path in (ROOT / "examples" / "plugins").glob("*/pyproject.toml")
)
PROJECTS = [
    ROOT,
    *sorted(p.parent for p in (ROOT / "plugins").glob("*/pyproject.toml")),
    *THIRD_PARTY,
]
REDIS_BYTES = 1 << 30
DEVICE_TOKENS = 1024


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def borrowed(folder):
    """A folder with links to everything installed here but ninfer, its plugins and path files."""
    folder.mkdir()
    for packages in {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
    }:
        for path in Path(packages).iterdir():
            is_ours = path.name.lower().startswith(("ninfer", "_editable", "__editable"))
            if not is_ours and path.suffix != ".pth" and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def copied(project, target):
    """Copy what a wheel is built from: a build beside the sources would leave files there."""
    target.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (project / name).exists():
            shutil.copy(project / name, target)
    for package in project.glob("ninfer*/__init__.py"):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package.parent, target / package.parent.name, ignore=unwanted)
    return str(target)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Interpreter of an environment in which only wheels of ninfer and its plugins are installed."""
    root = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    sources = [copied(project, root / "sources" / project.name) for project in PROJECTS]
    run(
        *pip, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(root / "dist"), *sources
    )
    wheels = sorted(str(path) for path in (root / "dist").glob("*.whl"))
    assert len(wheels) == len(PROJECTS)
    run(sys.executable, "-m", "venv", "--without-pip", str(root / "venv"))
    fresh = str(root / "venv" / "bin" / "python")
    run(*pip, "--python", fresh, "install", "-q", "--no-deps", "--no-index", *wheels)
    packages = run(fresh, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(packages) / "borrowed.pth").write_text(str(borrowed(root / "borrowed")) + "\n")
    return fresh


class Redis:
    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)

    @property
    def tier(self):
        return (
            f'[[cache.tiers]]\nname = "fleet"\nkind = "redis"\nurl = "redis://127.0.0.1:{self.port}/0"\n'
            f"capacity = {REDIS_BYTES}\n"
        )

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self):
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    if shutil.which("redis-server") is None:
        pytest.skip(
            "the program redis-server is not installed (Debian, Ubuntu: apt-get install redis-server)"
        )
    server = Redis(tmp_path_factory.mktemp("redis"))
    wait_for(server.answers)
    yield server
    server.kill()


@pytest.fixture
def make_server(_model, python, redis_server, cache_dir, tmp_path):
    servers = []

    def make(name):
        server = LocalServer(
            tmp_path / name,
            device_tokens=DEVICE_TOKENS,
            cache_dir=cache_dir,
            settings=(
                *QUICK,
                "model.dtype=float32",
                "cache.policy=marconi",
                "cache.matcher=session",
            ),
            tiers=redis_server.tier,
            python=python,
        )
        server.start()
        servers.append(server)
        return Client(server)

    yield make
    for server in servers:
        server.kill()


def settled(client):
    """Wait until copies to Redis have ended; returns the bytes that are stored."""
    seen = []

    def is_quiet():
        metrics = client.metrics()
        seen.append((
            metrics['ninfer_tier_used_bytes{tier="fleet"}'],
            metrics['ninfer_tier_written_bytes_total{tier="fleet"}'],
        ))
        is_idle = metrics['ninfer_tier_reserved_bytes{tier="fleet"}'] == 0
        return is_idle and seen[-1][0] > 0 and len(seen) > 10 and len(set(seen[-10:])) == 1

    wait_for(is_quiet)
    return seen[-1][0]


def test_plugins_are_listed_from_their_wheels(python, tmp_path):
    where = run(
        python,
        "-c",
        "import ninfer, ninfer_tier_redis as r; print(ninfer.__file__, r.__file__)",
        cwd=tmp_path,
    )
    assert str(ROOT) not in where
    listed = run(python, "-m", "ninfer", "plugins", cwd=tmp_path)
    for project in THIRD_PARTY:
        assert f"ninfer-{project.name.replace('_', '-')} 0.1.0" in listed
    for provided in ("tier:redis", "policy:marconi", "matcher:session"):
        assert provided in listed
    assert "broken" not in listed


def test_conversation_survives_its_server_in_redis(make_server):
    first = make_server("first")
    messages = [user(text("quartz", 300))]
    for question in ("And then?", "Why?"):
        body, _ = first.chat(messages, max_tokens=6)
        messages += [body["choices"][0]["message"], user(question)]
    for name in ("basalt", "gneiss", "slate"):
        first.chat(text(name, 400))
    body, record = first.chat(messages, max_tokens=6)
    assert record["restored_bytes"]["fleet"] > 0, "pushed off the device and served through Redis"
    assert cached(body) > 250
    messages += [body["choices"][0]["message"], user("Go on.")]
    settled(first)
    first.server.kill()

    second = make_server("second")
    warm, record = second.chat(messages, max_tokens=8)
    assert cached(warm) > 250
    assert record["restored_bytes"]["fleet"] > 0
    cold, record = second.chat(messages, max_tokens=8, cache=False)
    assert cached(cold) == 0
    assert warm["choices"][0]["message"] == cold["choices"][0]["message"]


def test_servers_that_run_at_the_same_time_share_contexts(make_server):
    first, second = make_server("first"), make_server("second")
    messages = [user(text("garnet", 300))]
    body, _ = first.chat(messages, max_tokens=6)
    messages += [body["choices"][0]["message"], user("And then?")]
    stored = settled(first)
    wait_for(lambda: second.metrics()['ninfer_tier_used_bytes{tier="fleet"}'] == stored)
    warm, record = second.chat(messages, max_tokens=8)
    assert cached(warm) > 250
    assert record["restored_bytes"]["fleet"] > 0
    cold, _ = second.chat(messages, max_tokens=8, cache=False)
    assert warm["choices"][0]["message"] == cold["choices"][0]["message"]


def test_a_server_whose_redis_is_gone_serves_on(make_server, redis_server, tmp_path):
    """The last test of this module: Redis does not come back."""
    client = make_server("first")
    question = text("topaz", 300)
    before, _ = client.chat(question, max_tokens=6)
    settled(client)
    redis_server.kill()
    for name in ("opal", "jade", "onyx"):
        client.chat(text(name, 400))
    after, _ = client.chat(question, max_tokens=6)
    assert after["choices"][0]["message"] == before["choices"][0]["message"]
    assert client.http.get("/health").status_code == 200
    log = client.server.log_path.read_text(encoding="utf-8")
    assert log.count("redis_lost") == 1
    assert log.count("Traceback") == 0
