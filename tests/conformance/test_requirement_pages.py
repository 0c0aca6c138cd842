"""The pages of requirements and the suites say the same: ids, sentences, and what to do when one fails."""

import re
from pathlib import Path

import pytest

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
