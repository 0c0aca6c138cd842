"""Numbered requirements: one sentence, one test. Knows nothing about what is tested."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final, TypeVar

TEST_PREFIX: Final = "test_"
_ID_PATTERN: Final = re.compile(r"[A-Z]+-\d\d")
_ids: Final = "ninfer_requirement_id"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One numbered sentence of a contract, and the test that holds it.

    Attributes:
        requirement_id: for example "TIER-07".
        test_name: name of the test method.
        sentence: first line of the method's docstring.
    """

    requirement_id: str
    test_name: str
    sentence: str


def requirement(requirement_id: str) -> Callable[[F], F]:
    """Mark a test method as the test of a requirement.

    Args:
        requirement_id: capital letters, a hyphen, two digits. Once per suite.

    Raises:
        TypeError: another form of id.
    """
    if not _ID_PATTERN.fullmatch(requirement_id):
        raise TypeError(f"{requirement_id!r} is no requirement id; write it as TIER-07")

    def mark(function: F) -> F:
        vars(function)[_ids] = requirement_id
        return function

    return mark


def requirement_id_of(function: object) -> str:
    """Return the id that `requirement` gave to a function, empty without one."""
    return str(vars(function).get(_ids, "")) if isinstance(function, FunctionType) else ""


def requirements_of(suite: type) -> dict[str, Requirement]:
    """Return all requirements of a suite by id, in the order of ids.

    Args:
        suite: a class whose own and inherited methods are marked with `requirement`.

    Raises:
        TypeError: an id has two tests, a test has no sentence, or a test of a suite is overridden.
    """
    found: dict[str, Requirement] = {}
    for owner in reversed(suite.__mro__):
        for name, member in vars(owner).items():
            requirement_id = requirement_id_of(member)
            if not requirement_id:
                continue
            _refuse_override(suite, owner, name)
            if requirement_id in found:
                other = found[requirement_id].test_name
                raise TypeError(
                    f"{suite.__name__}: {requirement_id} has two tests, {other} and {name}"
                )
            sentence = (member.__doc__ or "").strip().partition("\n")[0]
            if not sentence or not name.startswith(TEST_PREFIX):
                raise TypeError(
                    f"{suite.__name__}.{name}: the test of {requirement_id} needs a name that starts with "
                    f"{TEST_PREFIX!r} and a docstring whose first line is the requirement"
                )
            found[requirement_id] = Requirement(
                requirement_id=requirement_id, test_name=name, sentence=sentence
            )
    return dict(sorted(found.items()))


def _refuse_override(suite: type, owner: type, name: str) -> None:
    """Hold rule: what a suite tests cannot be changed by whoever is tested."""
    winner = next(cls for cls in suite.__mro__ if name in vars(cls))
    if winner is not owner:
        raise TypeError(
            f"{winner.__name__}.{name} overrides a test of {owner.__name__}; a conformance test cannot be "
            f"replaced. Name it in known_failures with a reason: it then must fail until it is fixed"
        )
