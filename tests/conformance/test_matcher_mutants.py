"""Each requirement of matchers has a matcher that fails it and no other, so each test can fail.

A mutant's suite names its requirement as a known failure: strict, so it has to fail there, and passes elsewhere.
"""

import re
from pathlib import Path

import pytest

from ninfer.testing.matcher import CheckpointMatcherSuite
from ninfer.testing.mutants.matcher import MATCHER_MUTANTS, SoundMatcher

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "requirements" / "matcher.md").read_text(
    "utf-8"
)


def suite_of(matcher, known_failures):
    return CheckpointMatcherSuite.derived(
        f"Test{matcher.__name__}",
        {"open_matcher": lambda self, context: matcher(), "known_failures": known_failures},
    )


TestSoundMatcher = suite_of(SoundMatcher, {})

for requirement_id, mutant in MATCHER_MUTANTS.items():
    globals()[f"Test{mutant.__name__}"] = suite_of(mutant, {requirement_id: "broken on purpose"})


def test_every_requirement_has_its_own_mutant():
    assert list(MATCHER_MUTANTS) == list(CheckpointMatcherSuite.requirements)
    assert len(set(MATCHER_MUTANTS.values())) == len(MATCHER_MUTANTS)


@pytest.mark.parametrize("mutant", MATCHER_MUTANTS.values(), ids=lambda each: each.__name__)
def test_every_mutant_says_what_is_wrong_with_it(mutant):
    assert mutant.__doc__


def test_every_requirement_is_documented_in_the_same_words():
    headings = re.findall(r"^## (MATCHER-\d\d): (.+)$", PAGE, re.MULTILINE)
    known = CheckpointMatcherSuite.requirements.values()
    assert headings == [(each.requirement_id, each.sentence) for each in known]
    sections = PAGE.split("\n## ")[1:]
    assert [part[:12] for part in sections if "\n**If this fails:** " not in part] == []
