"""The reference of hooks lists every method that a plugin implements, with its exact signature."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from ninfer.api import CheckpointMatcher, PlacementPolicy, SpeculativeDecoder, StorageTier

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "hooks.md").read_text("utf-8")
CONTRACTS = (StorageTier, CheckpointMatcher, PlacementPolicy, SpeculativeDecoder)


def signatures(contract: type) -> list[str]:
    """The public methods as they are written; optional ones end in `= optional`."""
    (tree,) = ast.parse(inspect.getsource(contract)).body
    lines = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        marks = {ast.unparse(mark) for mark in node.decorator_list}
        arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
        call = "" if "property" in marks else f"({arguments})"
        optional = "" if "abstractmethod" in marks else "   # optional"
        lines.append(f"{node.name}{call} -> {ast.unparse(node.returns)}{optional}")
    return lines


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_methods_are_listed_as_they_are_written(contract):
    section = PAGE.partition(f"\n### {contract.__name__}\n")[2]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    assert block[1].splitlines() == signatures(contract)
