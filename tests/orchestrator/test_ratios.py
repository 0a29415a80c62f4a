"""Ratios of means: published quantiles, intervals from a second implementation, and what must always hold."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.models import CostRatio, Unavailable
from orchestrator.ratios import ratio_of_means, regularised_beta, student_t

samples = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6)


def ratio(found: list[float], baseline: list[float]) -> CostRatio:
    result = ratio_of_means(found, baseline)
    assert isinstance(result, CostRatio), result
    return result


def three(mean: float, sd: float) -> list[float]:
    """Three values with that mean and sample standard deviation."""
    return [mean - sd, mean, mean + sd]


# --- Student's t ----------------------------------------------------------------------------------

# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: degrees of freedom, then the critical values of
# the 0.90, 0.975 and 0.995 columns, that is of the central probabilities 0.80, 0.95 and 0.99.
NIST = [
    (1, 3.078, 12.706, 63.657),
    (2, 1.886, 4.303, 9.925),
    (3, 1.638, 3.182, 5.841),
    (4, 1.533, 2.776, 4.604),
    (10, 1.372, 2.228, 3.169),
    (30, 1.310, 2.042, 2.750),
    (100, 1.290, 1.984, 2.626),
]


@pytest.mark.parametrize("row", NIST, ids=lambda row: f"df{row[0]}")
def test_student_t_gives_the_published_table(row: tuple[int, float, float, float]) -> None:
    df, *published = row
    assert [round(student_t(p, df), 3) for p in (0.80, 0.95, 0.99)] == published


@given(st.floats(0.01, 0.999))
def test_student_t_has_its_closed_forms_at_one_and_two_degrees_of_freedom(central: float) -> None:
    assert student_t(central, 1) == pytest.approx(math.tan(math.pi * central / 2), rel=1e-9)
    assert student_t(central, 2) == pytest.approx(central * math.sqrt(2 / (1 - central**2)), rel=1e-9)


# scipy 1.17's stats.t.ppf(0.975, df): broken degrees of freedom, which no table has.
@pytest.mark.parametrize(
    ("df", "published"),
    [
        (1.3, 7.500529325562029),
        (2.0572, 4.190017234014784),
        (3.8808, 2.8104031678531722),
        (17.25, 2.1074887374283344),
        (250.5, 1.969479272051676),
    ],
)
def test_student_t_takes_broken_degrees_of_freedom(df: float, published: float) -> None:
    assert student_t(0.95, df) == pytest.approx(published, rel=1e-10)


@given(st.floats(0.001, 0.999), st.integers(1, 40), st.integers(1, 40))
def test_the_incomplete_beta_function_is_a_binomial_sum(x: float, a: int, b: int) -> None:
    n = a + b - 1
    # DLMF 8.17.5, for whole a and b.
    terms = (math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert regularised_beta(x, a, b) == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-12)


# --- intervals ------------------------------------------------------------------------------------

# Made with numpy 2 and scipy 1.17 from the definition: the ratios at which |x - r y| / sqrt(u + r^2 v) meets
# stats.t.ppf(0.975, df), found by optimize.brentq. The first three samples have the means and sample SDs of
# the published comparison on the A100 (mJ/task and ms/task of three trials).
KNOWN = [
    pytest.param(
        three(1018.42, 47.32), three(1002.98, 55.63),
        (1.0153941255059922, 0.9037034122987496, 1.1436670985753237, 3.880825087673711), "ambiguous",
        id="published-energy",
    ),
    pytest.param(
        three(994.92, 5.53), three(1018.42, 47.32),
        (0.976925040749396, 0.877430653108395, 1.1014198903604924, 2.0572281063026296), "ambiguous",
        id="published-energy-unequal-spread",
    ),
    pytest.param(
        three(38.859, 0.154), three(37.910, 0.2),
        (1.025032972830388, 1.0139285383966068, 1.0362933710792877, 3.712021750225894), "higher",
        id="published-times",
    ),
    pytest.param(
        [30.0, 34.0, 31.0, 29.0, 33.0], [60.0, 80.0, 64.0],
        (0.4617647058823529, 0.3400654936318844, 0.6938874628496934, 2.441232205725092), "lower",
        id="unequal-counts",
    ),
    pytest.param(
        [10.0, 11.0, 9.0, 10.5], [20.0, 24.0],
        (0.4602272727272727, 0.26545510046861154, 1.1020820113953984, 1.4541747012454773), "ambiguous",
        id="half-the-mean-and-still-ambiguous",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "baseline", "numbers", "verdict"), KNOWN)
def test_the_interval_is_that_of_a_second_implementation(
    found: list[float], baseline: list[float], numbers: tuple[float, ...], verdict: str
) -> None:
    result = ratio(found, baseline)
    computed = (
        result.estimate, result.lower_95, result.upper_95, result.degrees_of_freedom,
    )  # fmt: skip
    assert computed == pytest.approx(numbers, rel=1e-9)
    assert result.verdict == verdict


def test_a_mean_lost_in_its_scatter_leaves_its_side_unbounded() -> None:
    noisy, steady = [5.0, 9.0], [100.0, 101.0, 102.0, 103.0]
    below, above = ratio(noisy, steady), ratio(steady, noisy)
    assert below.lower_95 == 0
    assert below.upper_95 == pytest.approx(0.3200783670722915, rel=1e-9)
    assert above.upper_95 is None
    assert above.lower_95 == pytest.approx(3.1242348839343594, rel=1e-9)
    assert (below.verdict, above.verdict) == ("lower", "higher")


def test_two_means_lost_in_their_scatter_leave_everything_open() -> None:
    result = ratio([1.0, 9.0], [2.0, 18.0])
    assert (result.lower_95, result.upper_95) == (0, None)
    assert result.verdict == "ambiguous"


@pytest.mark.parametrize(
    ("found", "baseline", "said"),
    [
        pytest.param([1.0], [1.0, 2.0], "1 value(s)", id="one-found"),
        pytest.param([1.0, 2.0], [], "0 value(s)", id="no-baseline"),
        pytest.param([1.0, 2.0], [-1.0, 1.0], "both above zero", id="mean-of-zero"),
        pytest.param([-3.0, 1.0], [1.0, 2.0], "both above zero", id="energy-below-idle"),
        pytest.param([2.0, 2.0], [2.0, 2.0], "too coarse", id="no-spread"),
    ],
)
def test_what_has_no_interval_says_why(found: list[float], baseline: list[float], said: str) -> None:
    result = ratio_of_means(found, baseline)
    assert isinstance(result, Unavailable)
    assert said in result.unavailable


# --- what must always hold ------------------------------------------------------------------------


@given(samples, samples)
def test_exchanging_the_sides_inverts_the_interval(found: list[float], baseline: list[float]) -> None:
    assume(max(found) > min(found) or max(baseline) > min(baseline))
    one, other = ratio(found, baseline), ratio(baseline, found)
    assert one.estimate * other.estimate == pytest.approx(1)
    assert one.degrees_of_freedom == pytest.approx(other.degrees_of_freedom)
    for low, high in (
        (one.lower_95, other.upper_95),
        (other.lower_95, one.upper_95),
    ):
        if high is None:
            assert low == 0
        else:
            assert low * high == pytest.approx(1)
    swapped = {"lower": "higher", "higher": "lower", "ambiguous": "ambiguous"}
    assert other.verdict == swapped[one.verdict]


@given(samples, samples, st.integers(-40, 40))
def test_scaling_a_side_scales_the_interval(found: list[float], baseline: list[float], power: int) -> None:
    assume(max(found) > min(found) or max(baseline) > min(baseline))
    # A power of two, so that scaling rounds nothing and the interval must scale exactly.
    scale = 2.0**power
    plain, scaled = ratio(found, baseline), ratio([scale * value for value in found], baseline)
    assert scaled.estimate == scale * plain.estimate
    assert scaled.lower_95 == scale * plain.lower_95
    if plain.upper_95 is None:
        assert scaled.upper_95 is None
    else:
        assert scaled.upper_95 == scale * plain.upper_95


@given(samples, samples)
def test_the_estimate_lies_inside_and_the_verdict_is_the_interval_s(
    found: list[float], baseline: list[float]
) -> None:
    assume(max(found) > min(found) or max(baseline) > min(baseline))
    result = ratio(found, baseline)
    low, high = result.lower_95, result.upper_95
    assert low <= result.estimate
    assert high is None or result.estimate <= high
    assert (result.verdict == "ambiguous") == (low <= 1 and (high is None or high >= 1))


@pytest.mark.parametrize(
    ("found_sd", "baseline_sd"), [(0.05, 0.05), (0.1, 0.02)], ids=["equal-spread", "unequal-spread"]
)
def test_nineteen_intervals_in_twenty_hold_the_true_ratio(found_sd: float, baseline_sd: float) -> None:
    draw = random.Random(1954)
    held = 0
    for _ in range(2000):
        found = [draw.gauss(2, 2 * found_sd) for _ in range(3)]
        baseline = [draw.gauss(1, baseline_sd) for _ in range(3)]
        result = ratio(found, baseline)
        high = math.inf if result.upper_95 is None else result.upper_95
        held += result.lower_95 <= 2 <= high
    assert 0.92 <= held / 2000 <= 0.98
