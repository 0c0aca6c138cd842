"""A private `redis-server` for trials and tests. Nobody else shares it."""

import contextlib
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Final

import redis

from ninfer.api import TierUnavailable

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
        self._end = lambda: None
        note = folder / "socket"
        self.socket = note.read_text(encoding="utf-8") if note.exists() else ""
        if self.socket and self._answers():
            return
        program = shutil.which("redis-server")
        if program is None:
            msg = "own_server needs the program redis-server (Debian, Ubuntu: apt-get install redis-server)"
            raise TierUnavailable(msg)
        self.socket = tempfile.mkdtemp(prefix="ninfer-redis-") + "/socket"
        note.write_text(self.socket, encoding="utf-8")
        self._start(program, folder)

    def _start(self, program: str, folder: Path) -> None:
        command = [program, "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700"]
        command += ["--dir", str(folder), "--appendonly", "yes", "--appendfsync", "no"]
        command += ["--save", "", "--logfile", "log", "--daemonize", "no"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603
        self._end = weakref.finalize(self, _end, process, Path(self.socket).parent)
        for _ in range(_NUM_STEPS):
            if self._answers():
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STEP_S)
                break
        self._end()
        msg = f"redis-server did not start; see {folder / 'log'}"
        raise TierUnavailable(msg)

    def _answers(self) -> bool:
        client = redis.Redis(unix_socket_path=self.socket, socket_timeout=1.0)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def stop(self) -> None:
        """End the server; its data stay in the folder."""
        with (
            contextlib.suppress(redis.RedisError),
            redis.Redis(unix_socket_path=self.socket, socket_timeout=_END_TIMEOUT_S) as client,
        ):
            client.shutdown(nosave=True)
        self._end()


def _end(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End a server that was started here and remove the folder of its socket."""
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
