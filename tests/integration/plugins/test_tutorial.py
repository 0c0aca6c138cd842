"""The tutorial, followed by a machine: its listings do what it says, before and after its patch."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.integration.plugins.test_plugin_new import run
from tests.integration.plugins.wheels import build_wheel, install

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
NAMED = ("TIER-10", "TIER-13", "TIER-31", "TIER-32")
"""Requirements that the first version of the tutorial's tier does not keep."""


def listing(language: str, start: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and text.startswith(start)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The package as it stands after step 3."""
    work = tmp_path_factory.mktemp("work")
    done = run(work, "ninfer", "plugin", "new", "tier", "attic")
    assert done.returncode == 0, done.stderr
    package = work / "ninfer-tier-attic" / "ninfer_tier_attic"
    (package / "config.py").write_text(listing("python", '"""Options of the tier `attic`.'))
    (package / "tier.py").write_text(listing("python", '"""Keeps one file per image.'))
    return package.parent


def installed(folder: Path, target: Path) -> Path:
    """Install the package as it stands."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    wheel = build_wheel(
        folder,
        project["name"],
        project["version"],
        files={
            str(path.relative_to(folder)): path.read_text()
            for path in (folder / "ninfer_tier_attic").glob("*.py")
        },
        entry_points=project["entry-points"]["ninfer"],
    )
    install([wheel], target)
    return target


def verdicts(folder: Path, site: Path) -> dict[str, str]:
    run(folder, "ninfer", "conformance", "tier", "attic", "--json", "attic.json", site=site)
    (plugin,) = json.loads((folder / "attic.json").read_text())["plugins"]
    return {item["id"]: item["verdict"] for item in plugin["requirements"]}


@pytest.mark.slow
def test_the_first_version_fails_what_the_page_says_and_the_patch_mends_it(folder, tmp_path):
    found = verdicts(folder, installed(folder, tmp_path / "first"))
    assert sorted(key for key, verdict in found.items() if verdict == "fail") == list(NAMED)
    (folder / "checks.patch").write_text(listing("diff", "--- a/ninfer_tier_attic"))
    subprocess.run(["git", "apply", "checks.patch"], cwd=folder, check=True, timeout=60)
    found = verdicts(folder, installed(folder, tmp_path / "second"))
    assert set(found.values()) <= {"ok", "n/a"}
    assert sum(verdict == "ok" for verdict in found.values()) > 25


def test_the_configuration_of_the_page_works(folder, tmp_path):
    site = installed(folder, tmp_path / "site")
    (tmp_path / "ninfer.toml").write_text(listing("toml", "[[cache.tiers]]"))
    done = run(tmp_path, "ninfer", "plugins", site=site)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("tier_attic ")]
    assert "  active  " in row
    assert row.rstrip().endswith("tier:attic (up)")


def test_commands_of_the_page_are_those_that_the_tool_suggests():
    for command in (
        "ninfer plugin new tier attic",
        "python -m pip install -e '.[testing]'",
        "ninfer conformance tier attic",
    ):
        assert f"$ {command}" in PAGE
