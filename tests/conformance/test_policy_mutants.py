"""Each requirement of policies has a policy that fails it and no other, so each test can fail.

A mutant's suite names its requirement as a known failure: strict, so it has to fail there, and passes elsewhere.
"""

import pytest

from ninfer.testing.mutants.policy import POLICY_MUTANTS
from ninfer.testing.mutants.sound_policy import SoundPolicy
from ninfer.testing.policy import PlacementPolicySuite


def suite_of(policy, known_failures):
    return PlacementPolicySuite.derived(
        f"Test{policy.__name__}",
        {"open_policy": lambda self, context: policy(context), "known_failures": known_failures},
    )


TestSoundPolicy = suite_of(SoundPolicy, {})

for requirement_id, mutant in POLICY_MUTANTS.items():
    globals()[f"Test{mutant.__name__}"] = suite_of(mutant, {requirement_id: "broken on purpose"})


def test_every_requirement_has_its_own_mutant():
    assert list(POLICY_MUTANTS) == list(PlacementPolicySuite.requirements)
    assert len(set(POLICY_MUTANTS.values())) == len(POLICY_MUTANTS)


@pytest.mark.parametrize("mutant", POLICY_MUTANTS.values(), ids=lambda each: each.__name__)
def test_every_mutant_says_what_is_wrong_with_it(mutant):
    assert mutant.__doc__
