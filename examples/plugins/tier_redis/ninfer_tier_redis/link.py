"""The connection to the server: round trips, time limits, pauses after failures. Knows nothing about images."""

import logging
import secrets
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ninfer.api import Clock, ConfigError
from ninfer_tier_redis.config import RedisConfig

_log = logging.getLogger(__name__)

FIRST_BACKOFF_S: Final = 0.1
_READ_BYTES: Final = 1 << 20
"""Asked of the socket at once: an image takes a few calls instead of dozens."""

Command = tuple[str | bytes | int, ...]


class Unreachable(Exception):
    """The server does not answer, or is not asked because it did not answer a moment ago."""


class Link:
    """Sends commands in one round trip each; used by any number of threads.

    After a failure the server is left alone for a pause that doubles up to a limit, and everything asked meanwhile
    fails at once: a server that is gone costs its users no time and the log two lines.

    Args:
        config: where the server is.
        clock: source of time.
        tier_name: for the log.
        socket: path of a Unix socket that replaces the configured place.
    """

    def __init__(
        self, config: RedisConfig, clock: Clock, *, tier_name: str, socket: str = ""
    ) -> None:
        """Connect nothing yet."""
        url = f"unix://{socket}" if socket else config.url
        self.place = _place(url)
        self.client_name = f"ninfer-{secrets.token_hex(4)}"
        self.num_failures = 0
        self._clock = clock
        self._tier_name = tier_name
        self._max_backoff_s = config.max_backoff_s
        self._lock = Lock()
        self._pause_s = 0.0
        self._until_s = 0.0
        self._problem = ""
        try:
            options = _options(config, url)
            self._client = redis.Redis.from_url(url, client_name=self.client_name, **options)
        except (ValueError, TypeError) as error:
            msg = f"redis tier {tier_name!r}: url: {error}"
            raise ConfigError(msg) from error

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip.

        Returns:
            One reply per command; an error that the server answered stands in place of its reply.

        Raises:
            Unreachable: the server did not answer all of them. What was sent may have been done.
        """
        self._refuse_during_pause()
        try:
            with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
                replies: list[Any] = pipeline.execute(raise_on_error=False)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise self._failed(error) from error
        for reply in replies:
            if isinstance(reply, redis.ConnectionError):
                raise self._failed(reply)
        self._answered()
        return replies

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _refuse_during_pause(self) -> None:
        with self._lock:
            left_s = self._until_s - self._clock.monotonic_s()
            if self._pause_s and left_s > 0:
                msg = f"{self.place} does not answer ({self._problem}); next try in {left_s:.1f} s"
                raise Unreachable(msg)

    def _failed(self, error: Exception) -> Unreachable:
        with self._lock:
            now_s = self._clock.monotonic_s()
            self.num_failures += 1
            if not self._pause_s:
                _log.warning(
                    "redis_lost tier=%s server=%s error=%s", self._tier_name, self.place, error
                )
            if now_s >= self._until_s:
                pause_s = max(2 * self._pause_s, FIRST_BACKOFF_S)
                self._pause_s = min(pause_s, self._max_backoff_s)
                self._until_s = now_s + self._pause_s
            self._problem = str(error)
        self._client.connection_pool.disconnect(inuse_connections=False)
        return Unreachable(f"{self.place} does not answer: {error}")

    def _answered(self) -> None:
        with self._lock:
            if self._pause_s:
                _log.warning("redis_back tier=%s server=%s", self._tier_name, self.place)
            self._pause_s = self._until_s = 0.0


def _place(url: str) -> str:
    """Return an address without credentials, for people."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix:{parts.path}"
    return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"


def _options(config: RedisConfig, url: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": config.username,
        "password": _password(config),
        "protocol": 2,
        "socket_timeout": config.timeout_s,
        "socket_connect_timeout": config.connect_timeout_s,
        "socket_read_size": _READ_BYTES,
        "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    }
    if url.startswith("unix://"):
        options.pop("socket_connect_timeout")
    if url.startswith("rediss://"):
        options["ssl_cert_reqs"] = "required" if config.tls_verify else "none"
        options["ssl_check_hostname"] = config.tls_verify
        for name, path in (
            ("ssl_ca_certs", config.tls_ca_file),
            ("ssl_certfile", config.tls_cert_file),
            ("ssl_keyfile", config.tls_key_file),
        ):
            if path is not None:
                options[name] = str(path)
    return {name: value for name, value in options.items() if value is not None}


def _password(config: RedisConfig) -> str | None:
    if config.password is not None:
        return config.password.get_secret_value()
    if config.password_file is None:
        return None
    try:
        lines = config.password_file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"password_file: {error}"
        raise ConfigError(msg) from error
    if not lines or not lines[0]:
        msg = f"password_file: {config.password_file} has no first line"
        raise ConfigError(msg)
    return lines[0]
