"""The chi-square test against tables, and on samples that do or do not fit."""

import math
from random import Random

import pytest

from ninfer.testing.chi_square import chi_square_limit, chi_square_of


def survival(limit, degrees):
    """Probability of more than a limit; exact for even degrees of freedom, where it is a Poisson sum."""
    return math.exp(-limit / 2) * math.fsum(
        (limit / 2) ** at / math.factorial(at) for at in range(degrees // 2)
    )


@pytest.mark.parametrize("degrees", [2, 4, 10, 50, 100])
def test_limit_is_exceeded_about_once_in_30_000_times(degrees):
    assert survival(chi_square_limit(degrees), degrees) == pytest.approx(1 / 31_574, rel=0.5)


def test_statistic_is_the_sum_of_squared_deviations():
    assert chi_square_of({"a": 12, "b": 8}, {"a": 10.0, "b": 10.0}) == (pytest.approx(0.8), 2)


def test_rare_outcomes_are_counted_together():
    expected = {"a": 90.0, **{f"rare-{at}": 1.0 for at in range(10)}}
    counts = {"a": 88, "rare-3": 12}
    statistic, num_cells = chi_square_of(counts, expected)
    assert num_cells == 2
    assert statistic == pytest.approx(4 / 90 + 4 / 10)


def test_many_impossible_outcomes_never_fit():
    statistic, _ = chi_square_of({"a": 100, "never": 50}, {"a": 150.0})
    assert statistic == math.inf


@pytest.mark.parametrize(("shift", "fits"), [(0.0, True), (0.05, False)])
def test_samples_fit_their_own_distribution_only(shift, fits):
    weights = [0.1, 0.2, 0.3, 0.4]
    drawn = [0.1 + shift, 0.2, 0.3, 0.4 - shift]
    counts = {}
    for each in Random(5).choices(range(4), drawn, k=20_000):
        counts[each] = counts.get(each, 0) + 1
    statistic, num_cells = chi_square_of(
        counts, {at: 20_000 * weight for at, weight in enumerate(weights)}
    )
    assert (statistic <= chi_square_limit(num_cells - 1)) is fits
