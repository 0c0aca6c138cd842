"""Each requirement of a tier has a mutant that fails it and only it: no test of the suite is one that cannot fail."""

import pytest

from ninfer.testing.mutants.file_tier import FileTier
from ninfer.testing.mutants.shared_tier import SharedFileTier
from ninfer.testing.mutants.tiers import TIER_MUTANTS, suite_on
from ninfer.testing.report import Verdict
from ninfer.testing.runner import run_suites
from ninfer.testing.tier import StorageTierSuite

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes():
    """Verdicts on the correct tier and on all mutants, in one run of the suite in its quick profile."""
    tiers = [FileTier, SharedFileTier, *TIER_MUTANTS]
    return run_suites({tier.__name__: suite_on(tier) for tier in tiers})


def ids_of(outcomes, verdict):
    return [outcome.requirement_id for outcome in outcomes if outcome.verdict is verdict]


def test_every_requirement_has_a_mutant():
    assert sorted(set(TIER_MUTANTS.values())) == list(StorageTierSuite.requirements)


NOT_APPLICABLE = {
    FileTier: ["TIER-26", "TIER-39", "TIER-40", "TIER-41"],
    SharedFileTier: ["TIER-22", "TIER-23", "TIER-24", "TIER-26", "TIER-42"],
}


@pytest.mark.parametrize("tier", NOT_APPLICABLE, ids=lambda tier: tier.__name__)
def test_a_correct_tier_passes(outcomes, tier):
    found = outcomes[tier.__name__]
    assert [o.reason for o in found if o.verdict is Verdict.FAIL] == []
    assert ids_of(found, Verdict.NOT_APPLICABLE) == NOT_APPLICABLE[tier]
    assert len(found) == len(StorageTierSuite.requirements)


@pytest.mark.parametrize("mutant", TIER_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_fails_its_requirement_and_no_other(outcomes, mutant):
    assert mutant.__doc__
    found = outcomes[mutant.__name__]
    assert ids_of(found, Verdict.FAIL) == [TIER_MUTANTS[mutant]]
    (failed,) = [outcome for outcome in found if outcome.verdict is Verdict.FAIL]
    assert failed.reason.startswith(f"{TIER_MUTANTS[mutant]}: ")
    assert ", expected " in failed.reason
    assert len(found) == len(StorageTierSuite.requirements)
