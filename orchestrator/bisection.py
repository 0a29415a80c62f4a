"""Finds the first training step at which two records part; runs both again where more is asked.

Traces that are there are compared as they are. A rerun takes each record's own case, settings and, for a run
that kept its folder, its own snapshot of the fixture's sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.comparison import load_side
from orchestrator.environment import NumericSettings
from orchestrator.errors import InputError, UsageError
from orchestrator.models import Bisection, Case, Divergence, RunRecord, TensorDifference
from orchestrator.runner import Run, RunOptions, new_run_folder, run_case
from orchestrator.trace import can_compare, first_divergence
from orchestrator.verdict import Evidence, compare_groups


@dataclass(frozen=True)
class _Side:
    """One of the two records: its evidence, and what it takes to run it again."""

    evidence: Evidence
    case: Case
    settings: NumericSettings
    sources: Path | None


def bisect(first: Path, second: Path) -> Bisection:
    """Compare the traces of two records: run records, or frozen records of one case.

    Raises:
        InputError, EvidenceError: when a record or its trace cannot be read.
        UsageError: when a record has no trace.
    """
    sides = [load_side(path).evidence for path in (first, second)]
    for path, side in zip((first, second), sides, strict=True):
        if side.trace is None:
            remedy = "run it with --trace, or bisect with --rerun"
            raise UsageError("has no trace", where=str(path), remedy=remedy)
    first_trace, second_trace = (side.trace for side in sides)
    if not can_compare(first_trace, second_trace):
        raise UsageError(
            "the traces are of trainings of other lengths, and a sidecar is missing",
            where=f"{first}, {second}",
            remedy="restore the sidecar, or bisect with --rerun",
        )
    return _bisection(sides, first_divergence(first_trace, second_trace))


def bisect_again(first: Path, second: Path, options: RunOptions, runs_dir: Path) -> Bisection:
    """Run both records' cases again, traced, and compare the tensors of the first step that differs.

    Raises:
        InputError, EvidenceError: when a record cannot be read, or has no form that can be run again.
        RunError, Interrupted: when a run fails.
    """
    import numpy as np

    from orchestrator.tensor_difference import tensor_difference

    sides = [_side(path) for path in (first, second)]
    evidence = [side.evidence for side in sides]
    options = replace(options, repeats=1, trace=True)
    parted = stored = first_divergence(evidence[0].trace, evidence[1].trace)
    if _tensor_of(parted) is None:
        runs = [_run(side, options, runs_dir) for side in sides]
        parted = _divergence_of(runs)
        if _tensor_of(parted) is None:
            notes = _notes(sides, runs)
            if parted is None and stored is not None:
                notes.append("the reruns do not part, and the records do")
            return _bisection(evidence, parted or stored, notes=notes)
    assert parted is not None and parted.step is not None  # noqa: S101  it has a tensor
    runs = [_run(side, replace(options, keep_step=(parted.epoch, parted.step)), runs_dir) for side in sides]
    notes, again = _notes(sides, runs), _divergence_of(runs)
    tensor = _tensor_of(again)
    if again is None or tensor is None or (again.epoch, again.step) != (parted.epoch, parted.step):
        notes.append("the reruns do not part at the step at which the records did")
        return _bisection(evidence, parted, notes=notes)
    kept = [_kept_file(run) for run in runs]
    first_tensor, second_tensor = (np.load(path, allow_pickle=False)[tensor] for path in kept)
    if first_tensor.shape != second_tensor.shape:
        notes.append(f"{tensor} has the shapes {first_tensor.shape} and {second_tensor.shape}")
        return _bisection(evidence, again, None, kept, notes)
    difference = tensor_difference(tensor, first_tensor, second_tensor)
    return _bisection(evidence, again, difference, kept, notes)


def _tensor_of(parted: Divergence | None) -> str | None:
    return None if parted is None else parted.tensor


def _divergence_of(runs: Sequence[Run]) -> Divergence | None:
    first, second = (run.evidence.trace for run in runs)
    return first_divergence(first, second)


def _bisection(
    sides: Sequence[Evidence],
    parted: Divergence | None,
    difference: TensorDifference | None = None,
    kept: Sequence[Path] = (),
    notes: Sequence[str] = (),
) -> Bisection:
    said = list(notes)
    traced = all(side.trace is not None for side in sides)
    if parted is None and traced and any(group.differences for group in compare_groups(*sides)):
        said.append("no training step differs, and hashes do: the difference arose before or after training")
    return Bisection(
        kind="bisection",
        schema_version=1,
        first=sides[0].label,
        second=sides[1].label,
        divergence=parted,
        difference=difference,
        kept_files=[str(path) for path in kept],
        notes=said,
    )


def _side(path: Path) -> _Side:
    side = load_side(path)
    record = side.run if isinstance(side.run, RunRecord) else side.frozen
    if record is None:
        raise InputError("found a version 1 run record, expected one that can be run again", where=str(path))
    sources = path.resolve().parent / "fixture"
    return _Side(
        side.evidence,
        record.case,
        NumericSettings(**record.settings.model_dump()),
        sources if side.run is not None and sources.is_dir() else None,
    )


def _run(side: _Side, options: RunOptions, runs_dir: Path) -> Run:
    folder = new_run_folder(runs_dir, f"{side.case.name}-bisect")
    return run_case(side.case, side.settings, replace(options, sources=side.sources), folder)


def _notes(sides: Sequence[_Side], runs: Sequence[Run]) -> list[str]:
    """What makes a rerun another computation than the record's."""
    notes = []
    for side, run in zip(sides, runs, strict=True):
        if any(group.differences for group in compare_groups(side.evidence, run.evidence)):
            notes.append(f"{side.evidence.label} run again gave other bits than its record")
        if dict(side.evidence.sources) != dict(run.evidence.sources):
            notes.append(f"{side.evidence.label} was run again with other sources than its own")
    return notes


def _kept_file(run: Run) -> Path:
    assert run.result.trace is not None and run.result.trace.kept_step is not None  # noqa: S101  asked for
    return run.folder / run.result.trace.kept_step.file
