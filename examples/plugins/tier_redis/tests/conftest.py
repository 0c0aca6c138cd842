"""A real redis-server per test on a free port, and tiers on it."""

import hashlib
import shutil
import signal
import socket
import subprocess

import pytest
import redis
from ninfer_tier_redis.config import RedisConfig
from ninfer_tier_redis.tier import RedisTier

from ninfer.api import ImageKey, ImageKind, PutItem, ReadItem, TierContext

FINGERPRINT = bytes(range(32))
MISSING = "the program redis-server is not installed (Debian, Ubuntu: apt-get install redis-server)"


class SetClock:
    """Stands still unless a test moves it."""

    def __init__(self):
        self.now_s = 1000.0

    def monotonic_s(self):
        return self.now_s

    def unix_s(self):
        return self.now_s


class NoAllocator:
    def allocate_host(self, num_bytes):
        raise AssertionError("a Redis tier needs no host memory")


class RedisServer:
    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.options = []
        self.process = None

    def start(self, *options):
        self.options = [*options] or self.options
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "no"]
        command += ["--save", "", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                if self.client().ping():
                    return
            except redis.ConnectionError:
                assert self.process.poll() is None, "redis-server ended"
                # Nothing announces a listening port: ask again soon.
                with pytest.raises(subprocess.TimeoutExpired):
                    self.process.wait(0.02)
        raise AssertionError("redis-server does not answer")

    def client(self):
        return redis.Redis(port=self.port, socket_timeout=5, protocol=2)

    def hang(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path):
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


class Opener:
    """Opens tiers on a server and closes them in the end."""

    def __init__(self, server):
        self.server = server
        self.clock = SetClock()
        self.tiers = []

    def __call__(
        self, capacity=4 << 20, *, fingerprint=FINGERPRINT, page=0, by_value=None, **options
    ):
        more = {"by_value": by_value} if by_value else {}
        context = TierContext(
            tier_name="fleet",
            fingerprint=fingerprint,
            clock=self.clock,
            host_allocator=NoAllocator(),
            model_name="tiny",
            page_image_bytes=page,
            **more,
        )
        options = {"url": self.server.url, "timeout_s": 2.0} | options
        tier = RedisTier.open(context, RedisConfig(capacity=capacity, **options))
        self.tiers.append(tier)
        return tier


@pytest.fixture
def opened(server):
    opener = Opener(server)
    yield opener
    for tier in opener.tiers:
        tier.close()


@pytest.fixture
def tier(opened):
    return opened()


class Kit:
    """Small images by name."""

    @staticmethod
    def key(name, kind=ImageKind.PAGE):
        return ImageKey(digest=hashlib.sha256(str(name).encode()).digest(), kind=kind)

    @staticmethod
    def item(name, payload, header=b"h"):
        return PutItem(key=Kit.key(name), header=header, payload=memoryview(payload))

    @staticmethod
    def put(tier, name, payload, header=b"h"):
        return tier.put([Kit.item(name, payload, header)])[0].status

    @staticmethod
    def read(tier, name, num_bytes):
        buffer = bytearray(num_bytes)
        result = tier.read_into([ReadItem(key=Kit.key(name), buffer=memoryview(buffer))])[0]
        return result.status, result.header, bytes(buffer)

    @staticmethod
    def pattern(name, num_bytes):
        return (hashlib.sha256(str(name).encode()).digest() * (num_bytes // 32 + 1))[:num_bytes]

    @staticmethod
    def names_on(server, part="image"):
        return sorted(key for key in server.client().scan_iter() if f":{part}:".encode() in key)


@pytest.fixture
def kit():
    return Kit
