"""Rules of all suites: complete or refused, never overridden, nothing skipped without a reason."""

import subprocess
import sys
from abc import abstractmethod

import pytest
from hypothesis import strategies as st

from ninfer.testing import ConformanceSuite, RequirementFailed
from ninfer.testing.report import Verdict, is_conformant
from ninfer.testing.requirement import requirement
from ninfer.testing.runner import run_suites


class NumberSuite(ConformanceSuite):
    """A suite of its own: what it tests is a number."""

    kind = "number"

    @classmethod
    def bound_to(cls, provider):
        return cls.derived("Bound", {"number": lambda self: provider})

    @abstractmethod
    def number(self):
        """Return the number."""

    @requirement("NUMBER-02")
    def test_it_is_small(self):
        """The number is below 10.

        More text that is no part of the requirement.
        """
        self.expect_that(
            "size", holds=self.number() < 10, got=self.number(), wanted="below 10", unit="B"
        )

    @requirement("NUMBER-01")
    def test_it_is_even(self):
        """The number is even."""
        self.expect("rest", got=self.number() % 2, wanted=0)

    @requirement("NUMBER-03")
    def test_it_divides(self):
        """Zero has no divisor."""
        self.requires("a number that is not zero", holds=self.number() != 0)
        self.expect_raises("division", ZeroDivisionError, lambda: self.number() // 0)

    @requirement("NUMBER-04")
    def test_it_is_the_largest(self):
        """No random number is larger than a hundred times it."""

        def check(other):
            self.expect("larger", got=other > 100 * self.number(), wanted=False)

        self.explore(check, other=st.integers(0, 700))


def suite(value, /, **members):
    return NumberSuite.derived("Test", {"number": lambda self: value, **members})


def outcomes(made, **options):
    return run_suites({"it": made}, **options)["it"]


def verdicts(made, **options):
    return [outcome.verdict.value for outcome in outcomes(made, **options)]


def test_requirements_are_collected_in_order_with_their_sentences():
    found = {key: known.sentence for key, known in NumberSuite.requirements.items()}
    assert list(found) == ["NUMBER-01", "NUMBER-02", "NUMBER-03", "NUMBER-04"]
    assert found["NUMBER-02"] == "The number is below 10."


def test_a_test_cannot_be_overridden():
    with pytest.raises(TypeError, match=r"Test.test_it_is_even overrides a test of NumberSuite"):
        suite(3, test_it_is_even=lambda self: None)
    with pytest.raises(TypeError, match="test_it_is_small"):
        suite(3, test_it_is_small=None)


def test_a_test_cannot_be_overridden_by_another_base_either():
    class Lenient:
        def test_it_is_even(self):
            """The number is a number."""

    with pytest.raises(TypeError, match=r"Lenient.test_it_is_even overrides"):
        type("Test", (Lenient, NumberSuite), {})


def test_an_unfinished_test_class_is_refused_by_name():
    with pytest.raises(TypeError, match="TestUnfinished does not implement number"):
        type("TestUnfinished", (NumberSuite,), {})
    type("UnfinishedSuite", (NumberSuite,), {})  # a suite of a suite may be abstract


def test_an_id_has_one_test():
    with pytest.raises(TypeError, match="NUMBER-01 has two tests"):

        class Twice(NumberSuite):
            @requirement("NUMBER-01")
            def test_another(self):
                """Another sentence."""


def test_a_requirement_has_a_sentence_and_an_id_of_the_right_form():
    with pytest.raises(TypeError, match="docstring whose first line"):

        class Silent(NumberSuite):
            @requirement("NUMBER-09")
            def test_silent(self):
                pass

    with pytest.raises(TypeError, match="TIER-07"):
        requirement("number 7")


def test_known_failures_must_exist():
    with pytest.raises(TypeError, match="NUMBER-77"):
        suite(2, known_failures={"NUMBER-77": "no such thing"})


def test_verdicts_are_ok_fail_and_not_applicable():
    assert verdicts(suite(2)) == ["ok", "ok", "ok", "fail"]
    assert verdicts(suite(0)) == ["ok", "ok", "n/a", "fail"]
    assert verdicts(suite(13)) == ["fail", "fail", "ok", "ok"]
    assert is_conformant(outcomes(suite(8)))


def test_a_failure_names_requirement_got_expected_and_unit():
    odd, large, *_ = outcomes(suite(13))
    assert odd.reason == "NUMBER-01: rest: got 1, expected 0"
    assert large.reason == "NUMBER-02: size: got 13 B, expected below 10 B"


def test_a_test_that_does_not_apply_says_what_it_needs():
    assert outcomes(suite(0))[2].reason == "needs a number that is not zero"


def test_the_smallest_example_is_reported():
    failed = outcomes(suite(2))[3]
    assert any("other=201" in line for line in failed.example), failed.example


def test_a_known_failure_must_fail():
    found = outcomes(suite(13, known_failures={"NUMBER-01": "bug 1", "test_it_divides": "bug 2"}))
    assert [outcome.verdict.value for outcome in found] == ["known", "fail", "fail", "ok"]
    assert found[0].reason == "bug 1"
    assert "XPASS(strict)" in found[2].reason
    assert not is_conformant(found[:1])


def test_an_error_in_the_implementation_is_a_failure_with_its_place():
    def number(self):
        raise OSError("no number today")

    failed = outcomes(suite(0, number=number))[0]
    assert failed.verdict is Verdict.FAIL
    assert failed.reason.startswith("OSError: no number today\nraised at ")
    assert "test_suite_rules.py" in failed.reason


def test_an_error_while_cleaning_up_is_a_failure():
    def number(self):
        self.at_end(lambda: 1 / 0)
        return 8

    assert outcomes(suite(0, number=number))[0].verdict is Verdict.FAIL


def test_only_what_is_asked_for_is_run():
    found = outcomes(suite(2), only={"NUMBER-03"})
    assert [outcome.requirement_id for outcome in found] == ["NUMBER-03"]


def test_random_inputs_are_the_same_every_time_and_follow_a_seed():
    def inputs(**members):
        seen = []

        def number(self):
            return 8

        made = suite(8, number=number, **members)

        class Test(made):
            @requirement("NUMBER-05")
            def test_draws(self):
                """Random numbers are noted."""
                self.explore(lambda n: seen.append(n), n=st.integers(0, 1 << 60))

        run_suites({"it": Test}, only={"NUMBER-05"})
        return seen

    assert inputs() == inputs()
    assert inputs(seed=7) == inputs(seed=7) != inputs()
    assert len(inputs(profile="full")) > len(inputs())


def test_an_unknown_profile_is_refused():
    assert "no profile 'huge'" in outcomes(suite(8, profile="huge"))[0].reason


def test_folders_can_be_kept(tmp_path):
    def number(self):
        (self.folder / "trace").write_text("here")
        return 8

    outcomes(suite(8, number=number), folder=tmp_path / "kept")
    assert list((tmp_path / "kept").rglob("trace"))


def test_expectations_raise_an_assertion_error():
    class Plain(NumberSuite):
        def number(self):
            return 1

    made = Plain()
    made.requirement_id = "NUMBER-01"
    with pytest.raises(
        RequirementFailed, match=r"NUMBER-01: it: got 61616161616161616161616161616161"
    ):
        made.expect("it", got=b"a" * 50, wanted=b"")
    assert issubclass(RequirementFailed, AssertionError)


@pytest.mark.parametrize("module", ["pytest_plugin", "clock"])
def test_what_pytest_always_loads_costs_nothing(module):
    code = f"import sys, ninfer.testing.{module}; print(sorted({{'pytest', 'hypothesis', 'torch', 'pydantic'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("kind", ["tier", "matcher", "policy"])
def test_suites_need_no_torch_and_nothing_of_ninfer_but_the_contract(kind):
    code = (
        f"import sys; from ninfer.testing.kinds import suite_of; suite_of({kind!r})\n"
        "parts = {name.split('.')[1] for name in sys.modules if name.startswith('ninfer.')}\n"
        "print(sorted(parts), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['api', 'testing'] False", done.stderr


def test_a_missing_extra_is_named_with_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "try:\n    from ninfer.testing import StorageTierSuite\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "needs hypothesis: python -m pip install 'ninfer[testing]'" in done.stdout, done.stderr
