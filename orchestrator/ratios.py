"""Ratios of two samples' means, with a confidence interval and a verdict that may be "ambiguous".

The samples are costs (times, energies): positive in the mean, few, independent, roughly normal, and of
unequal scatter. The interval is Fieller's with Satterthwaite's degrees of freedom:

    E. C. Fieller, Some problems in interval estimation, J. R. Stat. Soc. B 16 (1954) 175-185
    A. C. Tamhane, B. R. Logan, Finding the maximum safe dose level for heteroscedastic data,
        J. Biopharm. Stat. 14 (2004) 843-856: the degrees of freedom, taken at the estimated ratio

It holds every ratio r for which (x - r y)^2 <= t^2 (u + r^2 v): x, y the means, u, v the squared
standard errors, t Student's quantile. With the squared relative errors a = u / x^2 and b = v / y^2,

    low / estimate  = (1 - t^2 a) / (1 + w)    w = t sqrt(a + b - t^2 a b)
    high / estimate = (1 + w) / (1 - t^2 b)    degrees of freedom = (a + b)^2 / (a^2/(m-1) + b^2/(n-1))

so scaling a side scales the interval, and exchanging the sides inverts it. Where the scatter leaves a
mean indistinguishable from zero the set is unbounded on that side: low is then 0, or high is none, which
is all that is known of a positive ratio. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from orchestrator.models import CostRatio, CostVerdict, Unavailable

CONFIDENCE = 0.95


def ratio_of_means(found: Sequence[float], baseline: Sequence[float]) -> CostRatio | Unavailable:
    """The mean of `found` over the mean of `baseline`, with its 95 % confidence interval.

    Each sample's values must be independent of each other; repeats inside one process are not, and their
    interval says nothing of what differs between processes. An interval that holds 1 is ambiguous.
    """
    fewest = min(len(found), len(baseline))
    if fewest < 2:
        return Unavailable(
            unavailable=f"{fewest} value(s) on one side: at least 2 are needed, for one has no spread",
            remedy="measure more often",
        )
    found_mean, baseline_mean = statistics.fmean(found), statistics.fmean(baseline)
    if not min(found_mean, baseline_mean) > 0:
        return Unavailable(
            unavailable=f"the means are {found_mean:g} and {baseline_mean:g}: a ratio needs both above zero",
            remedy="measure a longer task: more epochs, more data or a deeper model",
        )
    found_error = _squared_relative_error(found, found_mean)
    baseline_error = _squared_relative_error(baseline, baseline_mean)
    if found_error + baseline_error == 0:
        return Unavailable(
            unavailable="no value differs from its mean: the clock or counter is too coarse to show a spread",
            remedy="measure a longer task: more epochs, more data or a deeper model",
        )
    degrees_of_freedom = (found_error + baseline_error) ** 2 / (
        found_error**2 / (len(found) - 1) + baseline_error**2 / (len(baseline) - 1)
    )
    low, high = _fieller_factors(found_error, baseline_error, student_t(CONFIDENCE, degrees_of_freedom))
    estimate = found_mean / baseline_mean
    return CostRatio(
        estimate=estimate,
        lower_95=estimate * low,
        upper_95=None if high is None else estimate * high,
        degrees_of_freedom=degrees_of_freedom,
        verdict=_verdict(estimate * low, None if high is None else estimate * high),
    )


def _squared_relative_error(values: Sequence[float], mean: float) -> float:
    """The squared standard error of the mean over the squared mean; divided first, so that none overflows."""
    return statistics.variance([value / mean for value in values], 1.0) / len(values)


def _fieller_factors(
    found_error: float, baseline_error: float, quantile: float
) -> tuple[float, float | None]:
    """The interval's ends over the estimate; 0 and None stand for no lower and no upper bound."""
    squared = quantile**2
    a, b = squared * found_error, squared * baseline_error
    if a >= 1 and b >= 1:
        return 0.0, None
    width = math.sqrt(a + b - a * b)
    return max(0.0, (1 - a) / (1 + width)), (1 + width) / (1 - b) if b < 1 else None


def _verdict(low: float, high: float | None) -> CostVerdict:
    if low > 1:
        return "higher"
    if high is not None and high < 1:
        return "lower"
    return "ambiguous"


# --- Student's t ----------------------------------------------------------------------------------


def student_t(central_probability: float, degrees_of_freedom: float) -> float:
    """The t that Student's variable stays within, on both sides of zero, with that probability.

    `student_t(0.95, df)` is the 0.975 quantile. P(|T| <= t) = I_y(1/2, df/2) with y = t^2 / (df + t^2)
    (NIST Digital Library of Mathematical Functions, 8.17; Abramowitz and Stegun 26.7.1), solved for y by
    bisection down to neighbouring floats. `degrees_of_freedom` is 1 or more, whole or not.
    """
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if regularised_beta(middle, 0.5, degrees_of_freedom / 2) < central_probability:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees_of_freedom * middle / (1 - middle))


def regularised_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 < x < 1 and positive a and b."""
    # The fraction converges fast below the mean of the distribution only: DLMF 8.17.4 gives the rest.
    if x > (a + 1) / (a + b + 2):
        return 1 - regularised_beta(1 - x, b, a)
    log_factor = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(log_factor) / a / _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22, by Lentz's forward recurrence."""
    value, above, below, correction, step = 1.0, 1.0, 0.0, 0.0, 0
    while abs(correction - 1) > 1e-15:
        step += 1
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        above, below = 1 + term / above, 1 / (1 + term * below)
        correction = above * below
        value *= correction
    return value
