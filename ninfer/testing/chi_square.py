"""Whether counts may come from a distribution: Pearson's chi-square test. Knows nothing about tokens."""

import math
from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

_LEAST_EXPECTED: Final = 5.0
"""Rarer outcomes are counted together; the approximation is poor below (Cochran's rule)."""
_DEVIATIONS: Final = 4.0
"""Standard deviations: a right distribution fails once in 30,000 draws of the counts."""

K = TypeVar("K", bound=Hashable)


def chi_square_of(counts: Mapping[K, int], expected: Mapping[K, float]) -> tuple[float, int]:
    """Return the statistic and the number of cells.

    Args:
        counts: how often each outcome came.
        expected: how often it should come on average; outcomes that are missing should never come.
    """
    cells = [
        (counts.get(key, 0), mean) for key, mean in expected.items() if mean >= _LEAST_EXPECTED
    ]
    num_seen, num_expected = sum(counts.values()), math.fsum(expected.values())
    rare_mean = num_expected - math.fsum(mean for _, mean in cells)
    rare_count = num_seen - sum(count for count, _ in cells)
    if rare_mean >= _LEAST_EXPECTED:
        cells.append((rare_count, rare_mean))
    elif rare_count > 4 * _LEAST_EXPECTED:
        return math.inf, len(cells)
    return math.fsum((count - mean) ** 2 / mean for count, mean in cells), len(cells)


def chi_square_limit(degrees_of_freedom: int) -> float:
    """Return what a right distribution exceeds once in 30,000 times.

    Source: Wilson and Hilferty 1931, the cube-root approximation.

    Args:
        degrees_of_freedom: cells minus one, at least 1.
    """
    part = 2 / (9 * degrees_of_freedom)
    return degrees_of_freedom * (1 - part + _DEVIATIONS * math.sqrt(part)) ** 3
