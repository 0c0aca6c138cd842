"""What a conformance run found: plain data, as text and as JSON. Knows nothing about pytest."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What became of one requirement."""

    OK = "ok"
    FAIL = "fail"
    NOT_APPLICABLE = "n/a"
    KNOWN = "known"
    """It fails, and the suite's `known_failures` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Verdict on one requirement.

    Attributes:
        requirement_id: for example "TIER-07".
        sentence: the requirement in one line.
        verdict: what became of it.
        reason: why it failed or does not apply; empty if ok.
        example: the smallest failing example, one line each; empty without one.
    """

    requirement_id: str
    sentence: str
    verdict: Verdict
    reason: str = ""
    example: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the outcome for people: one line, and indented ones below it if it failed."""
        verdict = "FAIL" if self.verdict is Verdict.FAIL else self.verdict.value
        line = f"  {self.requirement_id:<12}{verdict:<6}{self.sentence}"
        if self.verdict is not Verdict.FAIL:
            return [line + (f"  ({self.reason})" if self.reason else "")]
        indent = " " * 20
        return [line, *(indent + text for text in (*self.reason.splitlines(), *self.example))]

    def to_data(self) -> dict[str, object]:
        """Return the outcome as plain data for JSON."""
        return {
            "id": self.requirement_id,
            "sentence": self.sentence,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "example": list(self.example),
        }


def is_conformant(outcomes: Sequence[Outcome]) -> bool:
    """Tell whether something was looked at and nothing failed; what is known to fail counts as failed."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return bool(verdicts) and not verdicts & {Verdict.FAIL, Verdict.KNOWN}


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the number of outcomes of each verdict, for example "30 ok, 8 n/a"."""
    counts = {verdict: sum(o.verdict is verdict for o in outcomes) for verdict in Verdict}
    return (
        ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "nothing"
    )
