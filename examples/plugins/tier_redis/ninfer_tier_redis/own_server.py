"""A private `redis-server` for trials and tests. Nobody else shares it."""

import contextlib
import logging
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ninfer.api import TierUnavailable

_log = logging.getLogger(__name__)

_SOCKET_NOTE: Final = "socket"
_SOCKET_FOLDER: Final = "ninfer-redis-"
"""Beginning of a folder's name. Not below the data: paths of sockets may have 100 characters."""

_DATA: Final = "appendonlydir"
_STEP_S: Final = 0.02
_NUM_STEPS: Final = 500
_END_TIMEOUT_S: Final = 10.0


class OwnServer:
    """Runs a server that keeps its data in a folder and listens on a Unix socket that only its user may open.

    A server that an earlier process left running there is taken over.

    Args:
        folder: for its data; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        """Start the server and wait until it answers.

        Raises:
            TierUnavailable: there is no redis-server, or it does not start.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._end: weakref.finalize[..., OwnServer] = weakref.finalize(self, _nothing)
        note = folder / _SOCKET_NOTE
        self.socket = note.read_text(encoding="utf-8", errors="replace") if note.exists() else ""
        is_own_place = Path(self.socket).parent.name.startswith(_SOCKET_FOLDER)
        if is_own_place and self._answers():
            return
        program = shutil.which("redis-server")
        if program is None:
            msg = "own_server needs the program redis-server (Debian, Ubuntu: apt-get install redis-server)"
            raise TierUnavailable(msg)
        if not self._start(program) and not (self._put_data_aside() and self._start(program)):
            msg = f"redis-server did not start; see {folder / 'log'}"
            raise TierUnavailable(msg)

    def _start(self, program: str) -> bool:
        """Start the program; tell whether it answers. It does not start on damaged data."""
        self.socket = tempfile.mkdtemp(prefix=_SOCKET_FOLDER) + "/socket"
        (self._folder / _SOCKET_NOTE).write_text(self.socket, encoding="utf-8")
        command = [program, "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700"]
        command += ["--dir", str(self._folder), "--appendonly", "yes", "--appendfsync", "no"]
        command += ["--save", "", "--logfile", "log", "--daemonize", "no"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603
        self._end = weakref.finalize(self, _end, process, self.socket)
        for _ in range(_NUM_STEPS):
            if self._answers():
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STEP_S)
                break
        self._end()
        return False

    def _put_data_aside(self) -> bool:
        """Begin with an empty server instead of none: contexts can be computed again."""
        data = self._folder / _DATA
        if not data.exists():
            return False
        number = sum(1 for _ in self._folder.glob(f"{_DATA}.damaged*"))
        data.rename(self._folder / f"{_DATA}.damaged{number}")
        _log.warning("redis_data_damaged folder=%s", data)
        return True

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=self.socket,
            socket_timeout=_END_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )

    def _answers(self) -> bool:
        client = self._client()
        try:
            return bool(client.ping())
        except (redis.RedisError, OSError, ValueError):
            return False
        finally:
            client.close()

    def stop(self, client_name: str) -> None:
        """End the server unless another tier uses it; its data stay in the folder.

        Args:
            client_name: name of the connections that were just closed.
        """
        client = self._client()
        with contextlib.suppress(redis.RedisError):
            names = {str(other["name"]) for other in client.client_list()}
            if any(name.startswith("ninfer-") and name != client_name for name in names):
                self._end.detach()
                return
            client.execute_command("SHUTDOWN", "NOSAVE")  # type: ignore[no-untyped-call]
        client.close()
        self._end()
        _remove_socket(self.socket)


def _nothing() -> None:
    """End nothing: the server is not ours."""


def _end(process: "subprocess.Popen[bytes]", socket: str) -> None:
    """End a server that was started here."""
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _remove_socket(socket)


def _remove_socket(socket: str) -> None:
    """Remove what a server leaves behind that was killed, and its folder if nothing else is there."""
    with contextlib.suppress(OSError):
        Path(socket).unlink(missing_ok=True)
        Path(socket).parent.rmdir()
