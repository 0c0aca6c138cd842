"""A `ninfer serve` process with small tiers, for tests and tools. Knows nothing about what is asked of it."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

PAGE_TOKENS = 64
SMOLLM2_PAGE_BYTES = 1_474_560
"""One page of SmolLM2 in bfloat16: 30 layers, keys and values, 64 tokens, 3 heads of 64."""

START_TIMEOUT_S = 120.0


class LocalServer:
    """Starts, stops and restarts a server on a free port; files live in one folder.

    Args:
        folder: for settings, disk tier, request log and log.
        device_tokens: KV on the device.
        host_tokens: KV in host memory; 0 is no host tier.
        disk_bytes: cap of the disk tier; 0 is no disk tier.
        cache_dir: for measurements of the machine, worth sharing between servers; None for one of its own.
        settings: more lines of `--set`, as "section.key=value".
        tiers: TOML of further tiers, behind host and disk.
        python: interpreter of the environment that ninfer is installed in.
        config: a settings file of one's own; the arguments on capacities and tiers do not count then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device_tokens: int = 0,
        host_tokens: int = 0,
        disk_bytes: int = 0,
        cache_dir: Path | None = None,
        settings: tuple[str, ...] = (),
        tiers: str = "",
        python: str = sys.executable,
        config: Path | None = None,
    ) -> None:
        self.folder = folder
        self.device_tokens = device_tokens
        self.host_tokens = host_tokens
        self.disk_bytes = disk_bytes
        self.cache_dir = cache_dir or folder / "cache"
        self.settings = settings
        self.tiers = tiers
        self.python = python
        self.config = config
        self.root_url = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def base_url(self) -> str:
        """Where OpenAI clients go."""
        return f"{self.root_url}/v1"

    @property
    def request_log(self) -> Path:
        return self.folder / "requests.jsonl"

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it serves; raises RuntimeError with its log if it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.config or self._write_config()
        command = [self.python, "-m", "ninfer", "serve", "--config", str(config)]
        for line in (*self._own_settings(), *self.settings):
            command += ["--set", line]
        with self.log_path.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder
            )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, lines), daemon=True).start()
        try:
            line = lines.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            line = ""
        if " at http" not in line:
            self.kill()
            tail = self.log_path.read_text(encoding="utf-8")[-3000:]
            raise RuntimeError(f"the server did not start: {line!r}\n{tail}")
        self.root_url = line.split(" at ")[1].strip().removesuffix("/v1")

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: "queue.Queue[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def _own_settings(self) -> list[str]:
        """What this class needs to know or share, whatever the settings file says."""
        return [
            "server.port=0",
            f"server.request_log={self.request_log}",
            "log.format=json",
            f"cache.dir={self.cache_dir}",
        ]

    def _write_config(self) -> Path:
        tiers = ""
        if self.host_tokens:
            capacity = self.host_tokens // PAGE_TOKENS * SMOLLM2_PAGE_BYTES
            tiers += f'[[cache.tiers]]\nname = "host"\nkind = "host"\ncapacity = {capacity}\n'
        if self.disk_bytes:
            path = json.dumps(str(self.folder / "disk"))
            tiers += '[[cache.tiers]]\nname = "disk"\nkind = "disk"\n'
            tiers += f"path = {path}\ncapacity = {self.disk_bytes}\n"
        tiers = tiers + self.tiers or "[cache]\ntiers = []\n"
        config = self.folder / "ninfer.toml"
        config.write_text(
            f"[engine]\nkv_capacity = {self.device_tokens}\n{tiers}", encoding="utf-8"
        )
        return config

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask the server to end; returns its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def requests(self) -> list[dict]:
        """Records of the request log, oldest first."""
        if not self.request_log.exists():
            return []
        lines = self.request_log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
