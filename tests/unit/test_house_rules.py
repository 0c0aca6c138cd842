"""Rules of the house that no linter knows. CONTRIBUTING.md says why."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = [ROOT / "plugins", ROOT / "examples" / "plugins"]
PACKAGES = [ROOT / "ninfer", *sorted(path for at in PLUGINS for path in at.glob("*/ninfer_*"))]
TESTS = [ROOT / "tests", *sorted(path for at in PLUGINS for path in at.glob("*/tests"))]
MAX_LINES = 400
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}

CLOCKS = {
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "sleep",
}
CLOCK_EXCEPTIONS: dict[str, str] = {
    "ninfer/obs/clock.py": "is the clock",
    "plugins/storage_disk/ninfer_storage_disk/filelock.py": "waits for another process, not for time to pass",
}
"""Files that may read a clock, with the reason. Benchmarks are not looked at."""


def modules(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def places(path: Path, found: Iterator[ast.AST]) -> list[str]:
    return [f"{name_of(path)}:{node.lineno}" for node in found]


def calls(path: Path, *names: str) -> Iterator[ast.Call]:
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def attributes(path: Path, module: str, names: set[str]) -> Iterator[ast.AST]:
    """Uses of `module.name` and imports of such names from the module."""
    for node in nodes(path):
        is_use = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_use and node.value.id == module and node.attr in names:
            yield node
        is_import = isinstance(node, ast.ImportFrom) and node.module == module
        if is_import and any(alias.name in names for alias in node.names):
            yield node


def test_files_are_short():
    long = [
        f"{name_of(path)}: {count} lines"
        for path in modules(*PACKAGES, *TESTS, ROOT / "benchmarks", ROOT / "tools")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    ]
    assert long == []


def test_file_names_say_what_is_inside():
    assert [name_of(path) for path in modules(*PACKAGES, *TESTS) if path.stem in BANNED_NAMES] == []
    assert [
        name_of(path)
        for path in modules(*PACKAGES)
        if path.stem.endswith(("_v1", "_v2", "_new", "_old"))
    ] == []


def test_modules_say_what_they_are():
    silent = [
        name_of(path)
        for path in modules(*PACKAGES)
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_names_are_not_looked_up_by_literal():
    """`os` is excepted: some of its flags do not exist on every platform."""
    found = []
    for path in modules(*PACKAGES):
        for call in calls(path, "hasattr", "getattr"):
            is_platform_flag = isinstance(call.args[0], ast.Name) and call.args[0].id == "os"
            if isinstance(call.args[1], ast.Constant) and not is_platform_flag:
                found += places(path, iter([call]))
    assert found == []


def test_environment_is_read_in_config_only():
    found = []
    for path in modules(*PACKAGES):
        if not name_of(path).startswith("ninfer/config/"):
            found += places(path, attributes(path, "os", {"environ", "getenv", "environb"}))
    assert found == []


def test_only_the_command_line_prints():
    found = []
    for path in modules(*PACKAGES):
        if not name_of(path).startswith("ninfer/cli/"):
            found += places(path, calls(path, "print"))
    assert found == []


def test_clocks_are_read_in_one_place_only():
    found = []
    for path in modules(*PACKAGES):
        if name_of(path) not in CLOCK_EXCEPTIONS:
            found += places(path, attributes(path, "time", CLOCKS))
            found += places(path, attributes(path, "datetime", {"now", "utcnow", "today"}))
    assert found == []


@pytest.mark.parametrize("path", sorted(CLOCK_EXCEPTIONS))
def test_clock_exceptions_are_still_needed(path):
    assert list(attributes(ROOT / path, "time", CLOCKS))


def test_contract_loads_nothing_else():
    code = (
        "import sys, ninfer.api\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "parts = {name for name in sys.modules if name.startswith('ninfer.') and not name.startswith('ninfer.api')}\n"
        "print(sorted(names & {'torch', 'fastapi', 'numpy', 'structlog', 'transformers'}), sorted(parts))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[] []"


def test_package_root_loads_nothing():
    code = "import sys, ninfer\nprint(sorted(name for name in sys.modules if name.startswith(('ninfer.', 'torch'))))\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
