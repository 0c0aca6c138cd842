"""What all conformance suites have in common. Knows nothing about tiers, matchers, policies or decoders."""

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType, new_class
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast

import hypothesis
import pytest
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy
from typing_extensions import override

from ninfer.testing.clock import FakeClock
from ninfer.testing.effort import EFFORTS, Effort, hypothesis_settings
from ninfer.testing.requirement import TEST_PREFIX, Requirement, requirements_of

PROFILE_OPTION = "--conformance-profile"
SEED_OPTION = "--conformance-seed"

E = TypeVar("E", bound=BaseException)


class RequirementFailed(AssertionError):
    """An implementation does not keep a requirement; the text has its id, what was got and what was expected."""


class ConformanceSuite(ABC):
    """Numbered tests of one contract. Subclass the suite of a contract, fill in its abstract methods, done.

    Every test runs. A capability that an implementation does not promise makes a test not applicable, with a
    printed reason. A test cannot be overridden; what is known to fail is named in `known_failures` and must then
    fail until the entry is removed.

    Attributes:
        kind: what is tested: "tier", "matcher", "policy" or "decoder".
        profile: how hard to try, a name of `EFFORTS`; the option --conformance-profile of pytest wins.
        seed: of random inputs, None derives it from the test; the option --conformance-seed of pytest wins.
        known_failures: requirement id or test name -> why it fails.
        requirements: all requirements by id; filled in when the class is created.
    """

    kind: ClassVar[str]
    profile: ClassVar[str] = "quick"
    seed: ClassVar[int | None] = None
    known_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    requirements: ClassVar[Mapping[str, Requirement]] = MappingProxyType({})

    folder: Path
    """Empty folder of the test that runs."""
    clock: FakeClock
    """Time of the test that runs."""
    requirement_id: str
    """Requirement of the test that runs; the name of the test if it has none."""
    effort: Effort
    """How hard the test that runs should try."""

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Collect requirements; refuse overridden tests, stale known failures and unfinished test classes.

        Raises:
            TypeError: names the method or the entry.
        """
        super().__init_subclass__(**kwargs)
        cls.requirements = MappingProxyType(requirements_of(cls))
        missing = _missing_methods(cls)
        if missing and cls.__name__.startswith("Test"):  # pytest would skip it without a word
            raise TypeError(f"{cls.__name__} does not implement {', '.join(missing)}")
        names = {name for name in dir(cls) if name.startswith(TEST_PREFIX)}
        for key in cls.known_failures:
            if key not in cls.requirements and key not in names:
                raise TypeError(
                    f"{cls.__name__}.known_failures names {key!r}, which is neither a requirement nor a test"
                )

    @classmethod
    @abstractmethod
    def bound_to(cls, provider: Any) -> type[Self]:  # noqa: ANN401 - providers of any kind
        """Return a complete subclass that tests what an installed provider opens with its sample configuration.

        Args:
            provider: TierProvider, MatcherProvider, PolicyProvider or DecoderProvider, as `kind` says.
        """

    @classmethod
    def derived(cls, name: str, members: Mapping[str, object]) -> type[Self]:
        """Return a subclass made on the fly: for `bound_to` and for runs without a test file."""
        made = new_class(name, (cls,), exec_body=lambda namespace: namespace.update(members))
        made.__module__ = cls.__module__
        return cast(type[Self], made)

    @pytest.fixture(autouse=True)
    def _around_each_test(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.clock = FakeClock()
        test_name = request.function.__name__
        self.requirement_id = next(
            (
                known.requirement_id
                for known in self.requirements.values()
                if known.test_name == test_name
            ),
            test_name,
        )
        profile = request.config.getoption(PROFILE_OPTION, None) or self.profile
        if profile not in EFFORTS:
            pytest.fail(f"there is no profile {profile!r}; there is {', '.join(EFFORTS)}")
        self.effort = EFFORTS[profile]
        seed = request.config.getoption(SEED_OPTION, None)
        self._seed = self.seed if seed is None else seed
        self._at_end: list[Callable[[], object]] = []
        reason = self.known_failures.get(self.requirement_id) or self.known_failures.get(test_name)
        if reason:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        yield
        while self._at_end:
            self._at_end.pop()()

    def at_end(self, action: Callable[[], object]) -> None:
        """Call an action when the test that runs is over; the last one given is called first."""
        self._at_end.append(action)

    def not_applicable(self, reason: str) -> NoReturn:
        """End the test that runs: the requirement says nothing about this implementation.

        Args:
            reason: printed beside the requirement.
        """
        pytest.skip(reason)

    def requires(self, what: str, *, holds: bool) -> None:
        """End the test that runs as not applicable unless `holds`.

        Args:
            what: a noun phrase, printed as "needs <what>".
            holds: whether it is there.
        """
        if not holds:
            self.not_applicable(f"needs {what}")

    def expect(self, what: str, *, got: object, wanted: object, unit: str = "") -> None:
        """Fail the requirement unless `got == wanted`.

        Args:
            what: the thing looked at and when, for example "payload read back after reopening".
            got: what the implementation gave.
            wanted: what the contract asks for.
            unit: of both values.
        """
        if got != wanted:
            self.fail(what, got=got, wanted=wanted, unit=unit)

    def expect_that(
        self, what: str, *, holds: bool, got: object, wanted: str, unit: str = ""
    ) -> None:
        """Fail the requirement unless `holds`; `wanted` says in words what would have been right."""
        if not holds:
            raise RequirementFailed(self._sentence(what, shown(got), wanted, unit))

    def expect_raises(self, what: str, error: type[E], call: Callable[[], object]) -> E:
        """Fail the requirement unless a call raises an error of a class; return the error."""
        try:
            got = call()
        except error as raised:
            return raised
        except Exception as other:  # noqa: BLE001 - reported as the wrong error
            got = other
        return self.fail(what, got=got, wanted=error)

    def fail(self, what: str, *, got: object, wanted: object, unit: str = "") -> NoReturn:
        """Fail the requirement; see `expect`."""
        raise RequirementFailed(self._sentence(what, shown(got), shown(wanted), unit))

    def explore(self, check: Callable[..., None], **strategies: SearchStrategy[Any]) -> None:
        """Call `check` with random inputs; on failure the smallest failing input is reported.

        Args:
            check: takes the strategies' values by name. Must not keep state between calls.
            strategies: one per parameter.
        """
        configured = hypothesis_settings(
            self.effort.num_examples, 1, is_seeded=self._seed is not None
        )
        test = configured(hypothesis.given(**strategies)(check))
        self._seeded(test)()

    def explore_machine(self, machine: Callable[[], RuleBasedStateMachine]) -> None:
        """Run a state machine; on failure the shortest failing sequence of operations is reported.

        Args:
            machine: makes a new machine on a new implementation; called for every run.
        """
        factory = cast("type[RuleBasedStateMachine]", self._seeded(machine))  # a function will do
        run_state_machine_as_test(
            factory,
            settings=hypothesis_settings(
                self.effort.num_machine_runs,
                self.effort.num_machine_steps,
                is_seeded=self._seed is not None,
            ),
        )

    def _seeded(self, test: Callable[..., Any]) -> Callable[..., Any]:
        return test if self._seed is None else hypothesis.seed(self._seed)(test)

    def _sentence(self, what: str, got: str, wanted: str, unit: str) -> str:
        suffix = f" {unit}" if unit else ""
        return f"{self.requirement_id}: {what}: got {got}{suffix}, expected {wanted}{suffix}"


def _missing_methods(suite: type) -> list[str]:
    """Return the abstract methods that a class has not filled in; for use before Python knows."""
    bases = [base for base in suite.__mro__[1:] if isinstance(base, ABCMeta)]
    names = {name for base in bases for name in base.__abstractmethods__}
    winners = {name: next(cls for cls in suite.__mro__ if name in vars(cls)) for name in names}
    return sorted(
        name
        for name, cls in winners.items()
        if cls is not suite and isinstance(cls, ABCMeta) and name in cls.__abstractmethods__
    )


def shown(value: object) -> str:
    """Return a value as one short line: long bytes by their beginning and length, errors with their class."""
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 24:
        return f"{bytes(value[:16]).hex()}... ({len(value)} bytes)"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Enum):
        return value.name
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
