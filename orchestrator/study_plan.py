"""Which settings a study runs, by name, and which it leaves out and why. Pure.

On CUDA a setting is a workspace (`:4096:8`). On a CPU it is threads and MKL's code path
(`2/AVX2`: two threads, `MKL_CBWR=AVX2`); all else is as in the frozen records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.environment import NumericSettings, default_settings, mkl_branches, validate
from orchestrator.errors import UsageError

# The order of the published comparison: its baseline is torch's documented default.
CUDA_WORKSPACES = (":4096:8", ":16:8", ":0:0")
CPU_THREADS = (1, 2, 4)


@dataclass(frozen=True)
class StudyPlan:
    """The settings to run, by name, in order; those left out, with the reason; and the baseline's name."""

    settings: dict[str, NumericSettings]
    left_out: dict[str, str]
    baseline: str


def plan_study(
    device: str,
    machine: str,
    *,
    cpus: int,
    vector_units: Sequence[str],
    asked: Sequence[str] = (),
    baseline: str | None = None,
) -> StudyPlan:
    """The settings of a study.

    Args:
        device: `cpu` or `cuda`.
        machine: `platform.machine()`.
        cpus: How many CPUs the task process may use.
        vector_units: The CPU's, in `probe`'s names.
        asked: Names of settings; the device's usual ones when there are none.
        baseline: The name of the setting that the others are compared with; the first when None.

    Raises:
        UsageError: for a name that means no setting, a baseline that is not run, or fewer than two settings.
    """
    names = list(dict.fromkeys(asked or usual_settings(device, machine)))
    settings = {name: _settings_named(name, device, machine) for name in names}
    left_out: dict[str, str] = {}
    if device == "cpu":
        reasons = {name: _unfit(settings[name], cpus, vector_units) for name in names}
        left_out = {name: reason for name, reason in reasons.items() if reason}
    run = {name: value for name, value in settings.items() if name not in left_out}
    said = "".join(f"; {name} is left out: {reason}" for name, reason in left_out.items())
    if len(run) < 2:
        raise UsageError(f"--setting: found {len(run)} to run, expected at least 2{said}")
    chosen = baseline if baseline is not None else next(iter(run))
    if chosen not in run:
        raise UsageError(f"--baseline: found {chosen!r}, expected one of {', '.join(run)}{said}")
    return StudyPlan(run, left_out, chosen)


def usual_settings(device: str, machine: str) -> list[str]:
    """What a study runs when nobody asks for less: each thread count, then each code path of MKL."""
    if device == "cuda":
        return list(CUDA_WORKSPACES)
    default = default_settings(machine)
    by_threads = [f"{threads}/{default.mkl_cbwr}" for threads in CPU_THREADS]
    return [*by_threads, *(f"{default.threads}/{branch}" for branch in mkl_branches(machine))]


def _settings_named(name: str, device: str, machine: str) -> NumericSettings:
    default = default_settings(machine, device)
    if device == "cuda":
        settings = replace(default, workspace=name)
    else:
        threads, _, branch = name.partition("/")
        if not (threads.isascii() and threads.isdecimal() and branch):
            raise UsageError(f"--setting: found {name!r}, expected THREADS/MKL_CBWR such as 2/AVX2")
        settings = replace(default, threads=int(threads), mkl_cbwr=branch)
    validate(settings, machine)
    return settings


def _unfit(settings: NumericSettings, cpus: int, vector_units: Sequence[str]) -> str:
    """Why this CPU cannot run a setting; empty when it can."""
    if settings.threads > cpus:
        return f"{settings.threads} threads on {cpus} CPU(s)"
    # MKL falls back in silence where the CPU lacks a unit: the row would name what was not in force.
    unit = {"AVX512": "avx512f", "AVX2": "avx2"}.get(settings.mkl_cbwr.partition(",")[0].partition("_")[0])
    if unit is not None and unit not in vector_units:
        return f"the CPU has no {unit}"
    return ""
