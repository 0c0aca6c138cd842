"""Rows of the performance table: what was measured, against what, and whether it is enough."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        figure: what.
        measured: the number, in `unit`.
        unit: of `measured` and `reference`.
        reference: the number it is compared with, measured in the same run; None for none.
        against: what the reference is.
        bound: what the judged number may be at least or at most; None for a row that only informs.
        sense: which of the two.
        judged: "ratio" (measured / reference) or "measured".
        ratio_unit: how the ratio is written.
        note: how it was measured, for people.
        raw: every number.
    """

    figure: str
    measured: float
    unit: str
    reference: float | None = None
    against: str = ""
    bound: float | None = None
    sense: Literal["at least", "at most"] = "at least"
    judged: Literal["ratio", "measured"] = "ratio"
    ratio_unit: Literal["x", "%"] = "x"
    note: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    family: str = ""

    @property
    def ratio(self) -> float | None:
        return self.measured / self.reference if self.reference else None

    @property
    def verdict(self) -> str:
        value = self.ratio if self.judged == "ratio" else self.measured
        if self.bound is None or value is None:
            return ""
        is_ok = value >= self.bound if self.sense == "at least" else value <= self.bound
        return "ok" if is_ok else "MISS"

    def cells(self) -> list[str]:
        measured = f"{number(self.measured)} {self.unit}"
        if self.reference is not None:
            measured += f" (against {number(self.reference)})"
        ratio = "" if self.ratio is None else ratio_text(self.ratio, self.ratio_unit)
        bound = ""
        if self.bound is not None:
            sign = "≥" if self.sense == "at least" else "≤"
            is_ratio = self.judged == "ratio"
            value = (
                ratio_text(self.bound, self.ratio_unit)
                if is_ratio
                else f"{number(self.bound)} {self.unit}"
            )
            bound = f"{sign} {value}"
        return [self.figure, measured, ratio, bound, self.verdict]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "verdict": self.verdict}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Row":
        return cls(**{key: value for key, value in saved.items() if key not in DERIVED})


DERIVED = {"ratio", "verdict"}


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def ratio_text(value: float, unit: str) -> str:
    return f"{100 * value:.3g}%" if unit == "%" else f"{value:.2f}x"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = ["figure", "measured", "ratio", "bound", ""]
    lines = [head, *[row.cells() for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def text(cells: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([text(head), rule, *[text(line) for line in lines[1:]]])


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
