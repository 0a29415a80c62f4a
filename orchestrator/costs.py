"""What a run cost, time and energy per task, and two runs' costs side by side. Pure.

The repeats of one process share its memory layout, its clocks and its neighbours: they are not independent
processes, and an interval from them leaves out what differs between processes. The study has one value a
process; `compare` has two processes alone, so that its verdict is always `ambiguous`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.models import (
    CostRatio,
    Energy,
    EnergyV1,
    FixtureResult,
    NvmlHardware,
    RunRecord,
    RunRecordV1,
    Unavailable,
)
from orchestrator.ratios import ratio_of_means

NO_RESULT = Unavailable(unavailable="the run failed and left no result", remedy="")


@dataclass(frozen=True)
class Sample:
    """Values of one cost, and what they were measured as: only equal kinds can be compared."""

    values: tuple[float, ...]
    measured_as: str


@dataclass(frozen=True)
class CostComparison:
    """One cost of two runs; `ratio` is the second over the first."""

    what: str
    first: Sample | Unavailable
    second: Sample | Unavailable
    ratio: CostRatio | Unavailable


def times_ms(record: RunRecord | RunRecordV1) -> Sample | Unavailable:
    """The repeats' times in ms; a version 1 record has those of its energy trials alone, per task."""
    result = record.result
    if result is None:
        return NO_RESULT
    timing = result.timing if isinstance(result, FixtureResult) else None
    if timing is not None:
        return Sample(tuple(timing.repeat_ms), timing.scope)
    if isinstance(result.energy, EnergyV1 | Energy):
        return Sample(tuple(result.energy.summary.cuda_ms_per_task.values), "task")
    if isinstance(result.energy, Unavailable):
        return Unavailable(
            unavailable="with --energy the trials are what is timed, and energy was unavailable",
            remedy="run without --energy",
        )
    return Unavailable(unavailable="the run timed nothing", remedy="use --mode measure")


def energies_mj(record: RunRecord | RunRecordV1) -> Sample | Unavailable:
    """The trials' energies per task above idle, in mJ."""
    if record.result is None:
        return NO_RESULT
    match record.result.energy:
        case EnergyV1() | Energy() as energy:
            meter = "nvml" if isinstance(energy.hardware, NvmlHardware) else "rapl"
            return Sample(tuple(energy.summary.idle_adjusted_mj_per_task.values), f"energy by {meter}")
        case Unavailable() as reason:
            return reason
        case None:
            return Unavailable(unavailable="not asked for", remedy="run with --energy")


def compare_costs(first: RunRecord | RunRecordV1, second: RunRecord | RunRecordV1) -> list[CostComparison]:
    """The costs that both runs measured, or that one did and the other says why it did not."""
    measures: tuple[tuple[str, Callable[[RunRecord | RunRecordV1], Sample | Unavailable]], ...] = (
        ("ms", times_ms),
        ("mJ per task above idle", energies_mj),
    )
    rows = []
    for what, measure in measures:
        before, after = measure(first), measure(second)
        if isinstance(before, Sample) or isinstance(after, Sample):
            ratio = sample_ratio(after, before)
            if _task(first) != _task(second):
                ratio = Unavailable(unavailable="the two runs computed other tasks", remedy="")
            elif isinstance(ratio, CostRatio):
                # From one process a side no winner follows, however narrow the interval of its repeats.
                ratio = ratio.model_copy(update={"verdict": "ambiguous"})
            rows.append(CostComparison(what, before, after, ratio))
    return rows


def _task(record: RunRecord | RunRecordV1) -> tuple[object, ...]:
    """What was computed: a cost beside another task's says nothing."""
    result = record.result
    if result is None:
        return ()
    counts = (result.metadata.train_count, result.metadata.test_count)
    return (result.config, *counts, record.input_sha256.train_labels)


def sample_ratio(found: Sample | Unavailable, baseline: Sample | Unavailable) -> CostRatio | Unavailable:
    """The ratio of two costs' means, where both were measured, and as the same thing."""
    if isinstance(baseline, Unavailable):
        return baseline
    if isinstance(found, Unavailable):
        return found
    if found.measured_as != baseline.measured_as:
        return Unavailable(
            unavailable=f"one is of {found.measured_as}, the other of {baseline.measured_as}",
            remedy="measure both the same way",
        )
    return ratio_of_means(found.values, baseline.values)
