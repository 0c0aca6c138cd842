"""What the source files of a plugin import from ninfer. Reads files, imports nothing."""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ninfer.testing.report import Outcome, Verdict

REQUIREMENT_ID: Final = "PLUGIN-01"
SENTENCE: Final = "The plugin's files import nothing of ninfer but ninfer.api and ninfer.testing."
_ALLOWED: Final = ("ninfer.api", "ninfer.testing")


def judge_imports(entry_point: str) -> Outcome:
    """Look for imports of ninfer's inside in the package that an entry point leads to.

    Args:
        entry_point: the module that it names, for example "acme_tier.plugin".

    Returns:
        FAIL names the first file and line.
    """
    package = entry_point.rpartition(".")[0] or entry_point
    found = [
        f"{path}:{line} imports {name}"
        for path in _files(package)
        for line, name in _imports(path)
        if _is_inside(name, package)
    ]
    return Outcome(
        requirement_id=REQUIREMENT_ID,
        sentence=SENTENCE,
        verdict=Verdict.FAIL if found else Verdict.OK,
        reason="; ".join(found[:3]),
    )


def _files(package: str) -> list[Path]:
    spec = find_spec(package)
    if spec is None:
        return []
    folders = [Path(folder) for folder in spec.submodule_search_locations or []]
    if folders:
        return sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, say: what cannot be parsed imports nothing
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            is_root = node.module == "ninfer"
            names = [f"ninfer.{alias.name}" for alias in node.names] if is_root else [node.module]
            yield from ((node.lineno, name) for name in names)


def _is_inside(name: str, package: str) -> bool:
    if name != "ninfer" and not name.startswith("ninfer."):
        return False
    allowed = (*_ALLOWED, package)
    return not any(name == known or name.startswith(known + ".") for known in allowed)
