"""What an energy number is worth, judged again: counter, spread, cross-check, throttling. Pure.

Version 2 alone says it. As in `energy`, float64 in the writer's order, compared exactly.
"""

from __future__ import annotations

import math

from orchestrator.audit.findings import Findings
from orchestrator.models import CrossCheck, Energy

REQUIRED_UPDATES = 20
ALLOWED_RELATIVE_SPREAD = 0.05
CROSS_CHECK_TOLERANCE = 0.25

_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t, 0.975 quantile, 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook, 1.3.6.7.2."""


def audit_quality(energy: Energy, path: str, found: Findings) -> None:
    """Every judgement beside the numbers, from the numbers."""
    place = f"{path}.quality"
    _audit_counter(energy, place, found)
    _audit_spread(energy, place, found)
    _audit_cross_check(energy, place, found)
    numbers = [item.trial for item in energy.quality.throttle_reasons]
    wanted = [trial.trial for trial in energy.trials]
    found.equal("energy.throttle-trials", f"{place}.throttle_reasons", numbers, wanted)


def _audit_counter(energy: Energy, path: str, found: Findings) -> None:
    counter, place = energy.quality.counter, f"{path}.counter"
    shortest_s = min(
        interval.duration_s
        for trial in energy.trials
        for interval in (trial.idle_before, trial.active, trial.idle_after)
    )
    at = f"{place}.fewest_updates_in_an_interval"
    found.derived(
        "energy.counter-updates",
        at,
        counter.fewest_updates_in_an_interval,
        lambda: math.floor(shortest_s / counter.update_period_s),
    )
    found.require(
        "energy.enough-updates",
        at,
        counter.fewest_updates_in_an_interval >= REQUIRED_UPDATES,
        counter.fewest_updates_in_an_interval,
        f"{REQUIRED_UPDATES} or more",
    )
    found.equal(
        "energy.required-updates", f"{place}.required_updates", counter.required_updates, REQUIRED_UPDATES
    )


def _audit_spread(energy: Energy, path: str, found: Findings) -> None:
    summary = energy.summary.idle_adjusted_mj_per_task
    spread, place = energy.quality.idle_adjusted_mj_per_task, f"{path}.idle_adjusted_mj_per_task"
    count = len(summary.values)
    if count > 1:
        quantile = _T_975[min(count - 1, len(_T_975)) - 1]
        half_width = quantile * summary.sample_sd / math.sqrt(count)
        for name, derived in (
            ("confidence_95_low", summary.mean - half_width),
            ("confidence_95_high", summary.mean + half_width),
        ):
            found.equal("energy.confidence", f"{place}.{name}", getattr(spread, name), derived)
    relative = summary.sample_sd / summary.mean if summary.mean > 0 else None
    found.equal("energy.relative-spread", f"{place}.relative_spread", spread.relative_spread, relative)
    allowed = spread.allowed_relative_spread
    found.equal("energy.allowed-spread", f"{place}.allowed_relative_spread", allowed, ALLOWED_RELATIVE_SPREAD)
    found.equal(
        "energy.needs-more-trials",
        f"{path}.needs_more_trials",
        energy.quality.needs_more_trials,
        relative is None or relative > ALLOWED_RELATIVE_SPREAD,
    )


def _audit_cross_check(energy: Energy, path: str, found: Findings) -> None:
    derived, claimed = _cross_check(energy), energy.quality.cross_check
    place = f"{path}.cross_check"
    if derived is None or not isinstance(claimed, CrossCheck):
        found.require(
            "energy.cross-check",
            place,
            derived is None and not isinstance(claimed, CrossCheck),
            claimed,
            "unavailable: a trial has no sampled power" if derived is None else derived,
        )
        return
    found.same_fields("energy.cross-check", place, claimed.model_dump(), derived)


def _cross_check(energy: Energy) -> dict[str, object] | None:
    """Sampled power over the counter's, beside the interval that each sample ends."""
    ratios = []
    for trial in energy.trials:
        before, after = trial.telemetry_before.power_w, trial.telemetry_after.power_w
        if before is None or after is None:
            return None
        idle_w, active_w = trial.idle_before.average_power_w, trial.active.average_power_w
        if idle_w == 0 or active_w == 0:
            return None
        ratios.append(
            {
                "trial": trial.trial,
                "idle_sampled_over_counter": before / idle_w,
                "active_sampled_over_counter": after / active_w,
            }
        )
    worst = max(abs(ratio - 1) for row in ratios for name, ratio in row.items() if name != "trial")
    return {
        "trials": ratios,
        "largest_relative_difference": worst,
        "tolerance": CROSS_CHECK_TOLERANCE,
        "agrees": worst <= CROSS_CHECK_TOLERANCE,
    }
