"""Fixture plugins: real distributions on `sys.path`, as pip would leave them, but made by hand."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

GOOD = """
from ninfer.api import PluginConfig, TierProvider, hookimpl
from typing import Literal
from pydantic import Field

NINFER_API = (1, 0)

class ToyConfig(PluginConfig):
    capacity: int
    mode: Literal["fast", "safe"] = Field(default="safe", description="How it writes.")

def open_toy(context, config):
    raise OSError("no such volume")

@hookimpl
def ninfer_storage_tiers():
    return [TierProvider(kind="{kind}", summary="A toy.", config=ToyConfig, open=open_toy,
                         sample_config=lambda root: ToyConfig(capacity=1))]
"""

InstallPlugin = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path` that holds nothing but fixture plugins."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("toy_"):
            del sys.modules[name]


@pytest.fixture
def install(site: Path) -> InstallPlugin:
    """Write one distribution with one plugin into the folder."""

    def write(
        name: str,
        source: str = "",
        *,
        distribution: str = "",
        version: str = "1.0",
        module: str = "",
        kind: str = "",
    ) -> Path:
        distribution = distribution or f"dist-{name.replace('_', '-')}"
        module = module or f"toy_{name}"
        text = textwrap.dedent(source) if source else GOOD.replace("{kind}", kind or name)
        (site / f"{module}.py").write_text(text)
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[ninfer]\n{name} = {module}\n")
        return info

    return write
