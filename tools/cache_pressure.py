"""The public `cache-pressure` tools: installs them and runs them, unmodified, against a server.

They need Python 3.12 (a nested f-string); ninfer runs on 3.11, so they get a virtual environment of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.local_server import LocalServer

VERSION = "0.6.3"
MAX_ABORT_TRIES = 4
"""Runs of abort-sim with other prompts, where the model ended its answer before the point of the abort."""


def find_python() -> str:
    """An interpreter of at least 3.12: this one, PUBLIC_TOOLS_PYTHON, on the path, or of pyenv."""
    if sys.version_info >= (3, 12):
        return sys.executable
    named = [f"python3.{minor}" for minor in (13, 12, 14)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [os.environ.get("PUBLIC_TOOLS_PYTHON"), *map(shutil.which, named)]
    candidates += [str(path) for path in sorted(pyenv.glob("3.1[2-9]*/bin/python"), reverse=True)]
    check = "import sys; raise SystemExit(sys.version_info < (3, 12))"
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", check], check=False).returncode == 0:
            return candidate
    raise SystemExit(
        "cache-pressure needs Python 3.12 or newer; set PUBLIC_TOOLS_PYTHON to such an interpreter"
    )


def install_tools(folder: Path) -> Path:
    """Install the tools into a virtual environment, once; returns the folder of their scripts."""
    scripts = folder / "bin"
    if not (scripts / "abort-sim").exists():
        subprocess.run([find_python(), "-m", "venv", str(folder)], check=True)
        pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"cache-pressure=={VERSION}"], check=True)
    return scripts


def has_stopped_early(found: dict) -> bool:
    """Whether abort-sim had nothing to abort in one of its runs: what it found says nothing about the server then."""
    return any(not record.get("aborted") for record in found.get("records") or [])


class ToolRunner:
    """Runs the tools against one server, one at a time."""

    def __init__(self, server: LocalServer, scripts: Path, folder: Path) -> None:
        """Args: a running server, the folder of the tools, and one for what they write."""
        self._server, self._scripts, self._folder = server, scripts, folder
        self._num_runs = 0

    def run(self, name: str, *arguments: str) -> tuple[int, dict]:
        """Run one tool; returns its exit status and what it wrote, {} if nothing."""
        self._num_runs += 1
        output = self._folder / f"{name}-{self._num_runs}.json"
        command = [str(self._scripts / name), "--base-url", self._server.base_url, *arguments]
        print(f"\n$ {name} {' '.join(arguments)}", flush=True)
        status = subprocess.run([*command, "--output", str(output)], check=False).returncode
        found = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
        return status, found
