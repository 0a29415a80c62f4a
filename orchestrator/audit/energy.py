"""Energy: every number computed again from the stamps of its counter. Pure.

The arithmetic is float64 in the order of the writer (`fixture/energy.py`, and the seed's tool before it),
so derived numbers are compared exactly: the seed's come out to the last digit. `statistics.mean` and
`stdev` round once, from exact fractions, and so agree across Python versions as well. Only one
comparison has a tolerance, and it is between two clocks.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from orchestrator.audit.energy_quality import audit_quality
from orchestrator.audit.findings import Findings, fields
from orchestrator.models import (
    ActiveInterval,
    Energy,
    EnergyTrialV1,
    EnergyV1,
    FixtureResult,
    FixtureResultV1,
    IdleInterval,
    NvmlHardware,
    RaplHardware,
    Unavailable,
)
from orchestrator.verdict import COMPUTATION_ORDER

SETTLE_S = 3
IDLE_S = 3
TARGET_S = 5
MAXIMUM_REPEATS = 1000

CLOCK_TOLERANCE = 0.01
"""CUDA events lie inside the stamps, whose clock is another: both are good to far less than 1 % over
seconds, and the readings of the counter around them take milliseconds."""

_RESULTS = (
    "idle_adjusted_mj_per_task",
    "unadjusted_mj_per_task",
    "cuda_ms_per_task",
    "wall_ms_per_task",
)
_PCI_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
_GPU_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def audit_energy(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """The whole energy part, where there is one; what could not be measured is not audited."""
    energy, place = result.energy, f"{path}.energy"
    if energy is None or isinstance(energy, Unavailable):
        return
    found.derived(
        "energy.repeats",
        f"{place}.repeats_per_trial",
        energy.repeats_per_trial,
        lambda: min(max(math.ceil(TARGET_S * 1000 / energy.calibration_ms), 1), MAXIMUM_REPEATS),
    )
    count = len(energy.trials)
    found.require("energy.trial-count", f"{place}.trials", count >= 2, count, "2 or more: one has no spread")
    for index, trial in enumerate(energy.trials):
        at = f"{place}.trials[{index}]"
        found.equal("energy.trial-numbers", f"{at}.trial", trial.trial, index)
        found.equal("energy.invocations", f"{at}.invocations", trial.invocations, energy.repeats_per_trial)
        _audit_trial(trial, at, found)
    _audit_order(energy, place, found)
    _audit_summary(energy, place, found)
    _audit_equality_claims(energy, place, found)
    _audit_hardware(result, energy, place, found)
    if isinstance(energy, Energy):
        audit_quality(energy, place, found)


# --- trials -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Derived:
    """An interval's numbers from its two stamps: a lie further down stays one finding."""

    duration_s: float
    energy_j: float
    power_w: float


def _derive(interval: ActiveInterval) -> _Derived:
    duration_s = interval.end.time_s - interval.start.time_s
    energy_j = (interval.end.energy_mj - interval.start.energy_mj) / 1000
    return _Derived(duration_s, energy_j, energy_j / duration_s if duration_s else math.nan)


def _audit_trial(trial: EnergyTrialV1, path: str, found: Findings) -> None:
    for name in ("idle_before", "active", "idle_after"):
        _audit_interval(getattr(trial, name), f"{path}.{name}", found)
    for name in ("idle_before", "idle_after"):
        idle: IdleInterval = getattr(trial, name)
        at = f"{path}.{name}"
        found.require(
            "energy.settle-length",
            f"{at}.settle_seconds",
            idle.settle_seconds >= SETTLE_S,
            idle.settle_seconds,
            f"{SETTLE_S} s or more",
        )
        found.require(
            "energy.idle-length",
            f"{at}.duration_s",
            _derive(idle).duration_s >= IDLE_S,
            idle.duration_s,
            f"{IDLE_S} s or more",
        )
    before, active, after = (_derive(part) for part in (trial.idle_before, trial.active, trial.idle_after))
    idle_w = (before.power_w + after.power_w) / 2
    adjusted_j = active.energy_j - idle_w * active.duration_s
    for rule, name, derived in (
        ("energy.paired-idle", "paired_idle_w", idle_w),
        ("energy.idle-adjusted", "idle_adjusted_mj_per_task", adjusted_j * 1000 / trial.invocations),
        ("energy.unadjusted", "unadjusted_mj_per_task", active.energy_j * 1000 / trial.invocations),
        ("energy.wall-time", "wall_ms_per_task", active.duration_s * 1000 / trial.invocations),
    ):
        found.equal(rule, f"{path}.{name}", getattr(trial, name), derived)
    device_ms, wall_ms = trial.cuda_ms_per_task, trial.wall_ms_per_task
    found.require(
        "energy.device-time-agrees",
        f"{path}.cuda_ms_per_task",
        abs(device_ms - wall_ms) <= CLOCK_TOLERANCE * wall_ms,
        device_ms,
        f"within {CLOCK_TOLERANCE:.0%} of the wall clock's {wall_ms}",
    )


def _audit_interval(interval: ActiveInterval, path: str, found: Findings) -> None:
    start, end, derived = interval.start, interval.end, _derive(interval)
    for rule, name, value in (
        ("energy.interval-duration", "duration_s", derived.duration_s),
        ("energy.interval-energy", "energy_j", derived.energy_j),
        ("energy.interval-power", "average_power_w", derived.power_w),
    ):
        found.equal(rule, f"{path}.{name}", getattr(interval, name), value)
    found.require(
        "energy.counter-moves",
        f"{path}.end.energy_mj",
        end.energy_mj > start.energy_mj,
        end.energy_mj,
        f"more than at the start, {start.energy_mj}",
    )
    for name, stamp in (("start", start), ("end", end)):
        found.require(
            "energy.query-latency",
            f"{path}.{name}.query_latency_s",
            stamp.query_latency_s <= derived.duration_s,
            stamp.query_latency_s,
            f"at most the interval's {derived.duration_s} s",
        )


# --- one clock and one counter through all trials -----------------------------------------------


def _sequence(energy: EnergyV1 | Energy, path: str) -> Iterator[tuple[str, ActiveInterval]]:
    for index, trial in enumerate(energy.trials):
        for name in ("idle_before", "active", "idle_after"):
            yield f"{path}.trials[{index}].{name}", getattr(trial, name)


def _audit_order(energy: EnergyV1 | Energy, path: str, found: Findings) -> None:
    """Intervals follow one another; between two of them the counter goes on and the settling happens."""
    sequence = list(_sequence(energy, path))
    for place, interval in sequence:
        found.require(
            "energy.intervals-in-order",
            f"{place}.end.time_s",
            interval.end.time_s > interval.start.time_s,
            interval.end.time_s,
            f"after the start, {interval.start.time_s}",
        )
    for (_, before), (place, interval) in pairwise(sequence):
        gap_s = interval.start.time_s - before.end.time_s
        found.require(
            "energy.intervals-in-order",
            f"{place}.start.time_s",
            gap_s > 0,
            interval.start.time_s,
            f"after the interval before it, {before.end.time_s}",
        )
        found.require(
            "energy.counter-never-back",
            f"{place}.start.energy_mj",
            interval.start.energy_mj >= before.end.energy_mj,
            interval.start.energy_mj,
            f"at least what it was before, {before.end.energy_mj}",
        )
        if isinstance(interval, IdleInterval):
            found.require(
                "energy.settled",
                f"{place}.settle_seconds",
                gap_s >= interval.settle_seconds,
                interval.settle_seconds,
                f"at most the {gap_s} s since the interval before it",
            )


# --- summary, claims, device --------------------------------------------------------------------


def _audit_summary(energy: EnergyV1 | Energy, path: str, found: Findings) -> None:
    for name in _RESULTS:
        at, statistic = f"{path}.summary.{name}", getattr(energy.summary, name)
        values = [getattr(trial, name) for trial in energy.trials]
        found.equal("energy.summary-values", f"{at}.values", statistic.values, values)
        found.derived("energy.summary-mean", f"{at}.mean", statistic.mean, partial(statistics.mean, values))
        if len(values) > 1:
            spread = partial(statistics.stdev, values)
            found.derived("energy.summary-sd", f"{at}.sample_sd", statistic.sample_sd, spread)


def _audit_equality_claims(energy: EnergyV1 | Energy, path: str, found: Findings) -> None:
    before, after = energy.before_metadata, energy.after_metadata
    equal = {group: getattr(before, group) == getattr(after, group) for group in COMPUTATION_ORDER}
    found.equal(
        "energy.repeat-predictions-equal",
        f"{path}.repeat_predictions_equal",
        energy.repeat_predictions_equal,
        equal["predictions_sha256"],
    )
    found.equal(
        "energy.repeat-state-hashes-equal",
        f"{path}.repeat_state_hashes_equal",
        energy.repeat_state_hashes_equal,
        all(equal.values()),
    )
    found.equal(
        "energy.state-hash-keys",
        f"{path}.state_hash_keys_checked",
        sorted(energy.state_hash_keys_checked),
        sorted(COMPUTATION_ORDER),
    )


def _audit_hardware(
    result: FixtureResultV1 | FixtureResult, energy: EnergyV1 | Energy, path: str, found: Findings
) -> None:
    """The counter's device and software are the task's."""
    versions = ("python", "torch", "cuda", "numpy")
    found.same_fields(
        "energy.software",
        f"{path}.software",
        fields(energy.software, *versions),
        fields(result.software, *versions),
    )
    at = f"{path}.hardware"
    match energy.hardware:
        case NvmlHardware() as hardware:
            found.equal("energy.gpu", f"{at}.gpu", hardware.gpu, result.gpu)
            _audit_gpu(hardware, at, found)
        case RaplHardware() as hardware:
            names = [domain.name for domain in hardware.domains]
            packages = [
                name for name in dict.fromkeys(names) if re.fullmatch(r"package-\d+(-die-\d+)?", name)
            ]
            found.equal("energy.packages-once", f"{at}.domains", names, packages)
    if isinstance(energy, Energy):
        meter = "nvml" if isinstance(energy.hardware, NvmlHardware) else "rapl"
        found.equal("energy.meter", f"{path}.meter", energy.meter, meter)


def _audit_gpu(hardware: NvmlHardware, path: str, found: Findings) -> None:
    cuda, nvml = (_pci_address(text) for text in (hardware.cuda_pci_bus_id, hardware.nvml_pci_bus_id))
    for name, address in (("cuda_pci_bus_id", cuda), ("nvml_pci_bus_id", nvml)):
        text = getattr(hardware, name)
        found.require(
            "energy.pci-bus-id", f"{path}.{name}", address is not None, text, "DOMAIN:BUS:DEVICE.FUNCTION"
        )
    # NVML writes the domain with 8 digits and CUDA with 4, so numbers are compared and not texts.
    found.require(
        "energy.pci-address",
        f"{path}.nvml_pci_bus_id",
        cuda == nvml,
        hardware.nvml_pci_bus_id,
        f"the address of {hardware.cuda_pci_bus_id}",
    )
    found.equal(
        "energy.handle-by-pci",
        f"{path}.nvml_handle_selected_by_cuda_pci_bus_id",
        hardware.nvml_handle_selected_by_cuda_pci_bus_id,
        cuda is not None and cuda == nvml,
    )
    found.require(
        "energy.gpu-uuid",
        f"{path}.uuid",
        _GPU_UUID.fullmatch(hardware.uuid) is not None,
        hardware.uuid,
        "the UUID of a whole GPU, GPU-...",
    )


def _pci_address(text: str) -> tuple[int, ...] | None:
    parts = _PCI_BUS_ID.fullmatch(text)
    return None if parts is None else tuple(int(part, 16) for part in parts.groups())
