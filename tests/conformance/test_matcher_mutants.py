"""Each requirement of matchers has a matcher that fails it and no other, so each test can fail.

A mutant's suite names its requirement as a known failure: strict, so it has to fail there, and passes elsewhere.
"""

import pytest

from ninfer.testing.matcher import CheckpointMatcherSuite
from ninfer.testing.mutants.matcher import MATCHER_MUTANTS, SoundMatcher


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
