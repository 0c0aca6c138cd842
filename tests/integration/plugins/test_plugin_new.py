"""`ninfer plugin new`: what it writes passes its own tests, installs as a wheel and is conformant, untouched."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ninfer.plugins import Family
from tests.integration.plugins.wheels import build_wheel, install

KIND = "my-own"


def run(folder: Path, *command: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NINFER_")}
    if site is not None:
        environ["PYTHONPATH"] = str(site)
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module", params=[family.value for family in Family])
def written(request, tmp_path_factory):
    """A package of one family, as it was written: its family, its folder, what the command said."""
    folder = tmp_path_factory.mktemp(request.param)
    done = run(folder, "ninfer", "plugin", "new", request.param, KIND)
    assert done.returncode == 0, done.stderr
    return request.param, folder / f"ninfer-{request.param}-{KIND}", done.stdout


@pytest.fixture(scope="module")
def site(written, tmp_path_factory):
    """The package installed from a wheel."""
    family, folder, _ = written
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    package = folder / f"ninfer_{family}_my_own"
    files = {str(path.relative_to(folder)): path.read_text() for path in package.iterdir()}
    wheel = build_wheel(
        tmp_path_factory.mktemp("wheels"),
        project["name"],
        project["version"],
        files=files,
        entry_points=project["entry-points"]["ninfer"],
    )
    target = tmp_path_factory.mktemp("site")
    install([wheel], target)
    return target


@pytest.mark.slow
def test_its_own_tests_pass(written):
    _, folder, _ = written
    done = run(folder, "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_installed_from_a_wheel_it_is_conformant(written, site, tmp_path):
    family, _, _ = written
    done = run(tmp_path, "ninfer", "conformance", family, KIND, site=site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n  conformant: " in done.stdout


def test_installed_from_a_wheel_it_is_listed_and_every_option_has_a_meaning(
    written, site, tmp_path
):
    family, _, _ = written
    listed = run(tmp_path, "ninfer", "plugins", site=site)
    (row,) = [line for line in listed.stdout.splitlines() if line.startswith(f"{family}_my_own ")]
    assert f"ninfer-{family}-{KIND} 0.1.0" in row
    assert f"{family}:{KIND}" in row
    shown = run(tmp_path, "ninfer", "plugins", "show", f"{family}_my_own", site=site).stdout
    options = shown.partition("MEANING")[2].strip().splitlines()
    assert options
    assert all(len(line.split(maxsplit=3)) == 4 for line in options)


def test_the_example_of_its_readme_is_a_configuration_that_works(written, site, tmp_path):
    family, folder, _ = written
    toml = (folder / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "ninfer.toml").write_text(toml)
    done = run(tmp_path, "ninfer", "plugins", site=site)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"{family}_my_own ")]
    assert "  active  " in row


def test_the_command_says_what_to_do_next(written):
    family, folder, said = written
    assert said.splitlines() == [
        f"wrote ninfer-{family}-{KIND} to {folder.name}; next:",
        f"  cd {folder.name}",
        "  python -m pip install -e '.[testing]'",
        "  pytest",
        f"  ninfer conformance {family} {KIND}",
    ]


def test_it_imports_the_contract_only(written):
    _, folder, _ = written
    lines = [line for path in folder.rglob("*.py") for line in path.read_text().splitlines()]
    imported = {
        line.split()[1] for line in lines if line.startswith(("from ninfer.", "import ninfer"))
    }
    assert imported == {"ninfer.api", "ninfer.testing"}


def test_a_folder_that_is_not_empty_is_left_alone(written, tmp_path):
    family, _, _ = written
    (tmp_path / "mine.txt").write_text("keep")
    done = run(tmp_path, "ninfer", "plugin", "new", family, "other", "--path", ".")
    assert done.returncode == 2
    assert done.stderr == "ninfer: . exists and is not empty; choose another with --path\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
