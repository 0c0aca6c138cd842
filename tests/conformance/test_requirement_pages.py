"""The pages of requirements and the suites say the same: ids, sentences, and what to do when one fails."""

import inspect
import re
from pathlib import Path

import pytest
from typer.main import get_command

from ninfer.cli.main import app
from ninfer.testing.kinds import SUITES, suite_of

PAGES = Path(__file__).resolve().parents[2] / "docs" / "requirements"
SECTION = re.compile(r"^## ([A-Z]+-\d\d): (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def sections(kind):
    return SECTION.findall((PAGES / f"{kind}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", SUITES)
def test_a_page_has_the_requirements_of_its_suite_and_no_other(kind):
    suite = suite_of(kind)
    assert suite.kind == kind
    known = [(key, requirement.sentence) for key, requirement in suite.requirements.items()]
    assert [(key, sentence) for key, sentence, _ in sections(kind)] == known


@pytest.mark.parametrize("kind", SUITES)
def test_every_requirement_says_what_to_do_if_it_fails(kind):
    silent = [
        key for key, _, text in sections(kind) if not re.search(r"\*\*If this fails:\*\* \w", text)
    ]
    assert silent == []


def test_every_suite_has_a_page_and_every_page_a_suite():
    assert {page.stem for page in PAGES.glob("*.md")} == set(SUITES)


CONFORMANCE = (PAGES.parent / "plugins" / "conformance.md").read_text(encoding="utf-8")
HOOKS = {
    "tier": ["open_tier", "open_tier_of", "open_tier_with_faults", "damage"],
    "matcher": ["open_matcher"],
    "policy": ["open_policy"],
    "decoder": ["open_decoder", "open_target", "model_access", "hidden_states"],
}


def signature(suite, name):
    """The method as it is written, with the names of types alone."""
    function = next(vars(cls)[name] for cls in suite.__mro__ if name in vars(cls))
    text = f"{name}{inspect.signature(function)}"
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", text).replace("|", "\\|")


@pytest.mark.parametrize("kind", SUITES)
def test_methods_of_a_suite_are_documented_with_their_exact_signatures(kind):
    suite = suite_of(kind)
    assert set(suite.__abstractmethods__) <= set(HOOKS[kind])
    for name in HOOKS[kind]:
        assert f"`{signature(suite, name)}`" in CONFORMANCE


def test_exit_statuses_and_options_of_the_command_are_documented():
    assert re.findall(r"^\| (\d) \|", CONFORMANCE, re.MULTILINE) == ["0", "1", "2", "3"]
    options = {
        option
        for parameter in get_command(app).commands["conformance"].params
        for option in parameter.opts
        if option.startswith("--")
    }
    documented = set(re.findall(r"^\| `(--[a-z]+)", CONFORMANCE, re.MULTILINE))
    assert documented == options - {"--help"}
