"""A folder and an environment of its own for the command line."""

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ninfer.cli.main import app

RunNinfer = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `ninfer` runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ninfer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunNinfer:
    """Run a command in its own folder and with a clean environment; logging of the process stays as it is."""
    for name in [name for name in os.environ if name.startswith("NINFER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("ninfer.cli.serve.configure_logging", lambda **options: None)
    return lambda *arguments, **environ: CliRunner().invoke(app, arguments, env=environ)


@pytest.fixture
def fake_server(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[tuple[object, object]]]:
    """Put a server in place that only notes how it was started."""

    def install(exit_code: int) -> list[tuple[object, object]]:
        calls: list[tuple[object, object]] = []
        module = types.ModuleType("ninfer.server.run")
        vars(module)["serve"] = lambda loaded, catalog: calls.append((loaded, catalog)) or exit_code
        monkeypatch.setitem(sys.modules, "ninfer.server.run", module)
        return calls

    return install
