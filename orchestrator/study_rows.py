"""The rows of a study, from the run records of its settings. Pure: records in, rows out.

Bits are compared between the first process of a setting and the first of the baseline, and between the
processes of each setting. Memory is the most that any process took. A time is one process's median of its
repeats and an energy one process's mean of its trials: one value a process, so that the intervals hold what
differs between processes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from orchestrator.costs import NO_RESULT, Sample, energies_mj, sample_ratio, times_ms
from orchestrator.environment import NumericSettings
from orchestrator.models import (
    CudaMemory,
    ProcessMemory,
    RunRecord,
    StudyBits,
    StudyCost,
    StudyMemory,
    StudyRow,
    StudyRun,
    Unavailable,
)
from orchestrator.models import NumericSettings as SettingsModel
from orchestrator.verdict import compare_groups, evidence_of_run, level_reached

_Measure = Callable[[RunRecord], Sample | Unavailable]
_Summary = Callable[[Sequence[float]], float]


@dataclass
class SettingRuns:
    """What the processes of one setting left: every record's file, and the records that hold a result."""

    setting: str
    settings: NumericSettings
    files: list[StudyRun] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)
    failure: str | None = None


def study_rows(runs: Sequence[SettingRuns], baseline: str) -> list[StudyRow]:
    """One row a setting, each against the setting named `baseline`."""
    reference = next(item for item in runs if item.setting == baseline)
    return [_row(item, reference) for item in runs]


def _row(runs: SettingRuns, baseline: SettingRuns) -> StudyRow:
    return StudyRow(
        setting=runs.setting,
        settings=SettingsModel.model_validate(asdict(runs.settings)),
        records=runs.files,
        failure=runs.failure,
        bits=_bits(runs, baseline),
        memory=_memory(runs, baseline),
        ms_per_task=_cost(runs, baseline, times_ms, statistics.median),
        idle_adjusted_mj_per_task=_cost(runs, baseline, energies_mj, statistics.fmean),
    )


# --- bits -----------------------------------------------------------------------------------------


def _bits(runs: SettingRuns, baseline: SettingRuns) -> StudyBits | Unavailable:
    if not runs.records:
        return NO_RESULT
    if not baseline.records:
        return Unavailable(
            unavailable=f"the baseline {baseline.setting} left no result", remedy="choose another --baseline"
        )
    first, *others = [evidence_of_run(record, runs.setting) for record in runs.records]
    groups = compare_groups(evidence_of_run(baseline.records[0], baseline.setting), first)
    differences = [item for group in groups for item in group.differences]
    steady = not any(item.differences for other in others for item in compare_groups(first, other))
    return StudyBits(
        same_in_every_process=steady and not any(side.unstable_groups for side in (first, *others)),
        level_reached=level_reached(groups),
        compared_fields=sum(group.fields for group in groups),
        differing_fields=len(differences),
        first_difference=differences[0] if differences else None,
    )


# --- memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bytes:
    counted: Literal["allocated", "resident"]
    peak: int
    live: int


def _memory(runs: SettingRuns, baseline: SettingRuns) -> StudyMemory | Unavailable:
    own = _most_bytes(runs)
    if isinstance(own, Unavailable):
        return own
    reference = _most_bytes(baseline)
    return StudyMemory(
        counted=own.counted,
        peak_bytes=own.peak,
        live_bytes=own.live,
        peak_reduction=reference if isinstance(reference, Unavailable) else reference.peak / own.peak,
        live_reduction=reference if isinstance(reference, Unavailable) else reference.live / own.live,
    )


def _most_bytes(runs: SettingRuns) -> _Bytes | Unavailable:
    if not runs.records:
        return NO_RESULT
    counts = []
    for record in runs.records:
        found = _bytes_of(record)
        if isinstance(found, Unavailable):
            return found
        counts.append(found)
    return _Bytes(counts[0].counted, max(item.peak for item in counts), max(item.live for item in counts))


def _bytes_of(record: RunRecord) -> _Bytes | Unavailable:
    if record.result is None:
        return NO_RESULT
    match record.result.memory:
        case CudaMemory() as memory:
            peak, live = memory.prepare_and_invoke_peak_allocated_bytes, memory.allocated_after_invoke_bytes
            return _Bytes("allocated", peak, live)
        case ProcessMemory() as memory:
            peak, live = memory.prepare_and_invoke_peak_resident_bytes, memory.resident_after_invoke_bytes
            return _Bytes("resident", peak, live)
        case Unavailable() as reason:
            return reason


# --- time and energy ------------------------------------------------------------------------------


def _cost(
    runs: SettingRuns, baseline: SettingRuns, measure: _Measure, summary: _Summary
) -> StudyCost | Unavailable:
    own = _one_a_process(runs, measure, summary)
    if isinstance(own, Unavailable):
        return own
    reference = _one_a_process(baseline, measure, summary)
    return StudyCost(
        process_values=list(own.values),
        mean=statistics.fmean(own.values),
        ratio=None if runs is baseline else sample_ratio(own, reference),
    )


def _one_a_process(runs: SettingRuns, measure: _Measure, summary: _Summary) -> Sample | Unavailable:
    if not runs.records:
        return NO_RESULT
    samples = []
    for record in runs.records:
        sample = measure(record)
        if isinstance(sample, Unavailable):
            return sample
        samples.append(sample)
    return Sample(tuple(summary(sample.values) for sample in samples), samples[0].measured_as)
