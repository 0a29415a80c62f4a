"""Qualifies a protocol in phases, over one evidence folder.

    plan.json            1. the plan, frozen before anything runs
    runs/CASE-PROCESS/   2. a run folder for every fresh process, without query labels
    frozen/              3. one frozen record of all cases, and their traces
    scores.json          4. the query labels are opened, and the frozen predictions counted
    verdict.json         5. the verdict
    failed/              runs that left no result, put aside when they were run again

Rules
- What has been done is told by what is in the folder, and by nothing else. Every file is written atomically,
  so a process that is killed leaves whole phases and whole runs; a run without its record is run again.
- Every file names the hash of the one before: the frozen record's reason has the plan's, its cases have
  the run records', the scores have the frozen record's, the verdict has the scores'. Each is checked
  whenever the folder is taken up again, and so is every file of every run.
- A file whose predecessor is missing is out of turn: the evidence is broken.
- `load_query_labels` is called by `score` alone, which takes a frozen record.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator import __version__, models
from orchestrator.accuracy import judge_scores
from orchestrator.audit.evidence import audit_path
from orchestrator.cases import cases_of_protocol
from orchestrator.codec import content_sha256, encode, load_as
from orchestrator.environment import NumericSettings, default_settings, validate
from orchestrator.errors import EvidenceError, StorageError, UsageError
from orchestrator.fingerprint import changes
from orchestrator.hashing import array_sha256, bytes_sha256, file_sha256
from orchestrator.locking import exclusive
from orchestrator.protocol import ProtocolFile
from orchestrator.qualification import (
    FrozenFile,
    freeze_cases,
    load_frozen,
    require_agreement,
    write_frozen,
    write_trace,
)
from orchestrator.runner import (
    Run,
    RunOptions,
    count_correct,
    load_inputs,
    load_query_labels,
    read_predictions,
    run_case,
    source_hashes,
)
from orchestrator.store import make_folder, remove_leftovers, write_atomically
from orchestrator.trace_file import load_trace

PLAN, RUNS, FROZEN, SCORES, VERDICT = "plan.json", "runs", "frozen", "scores.json", "verdict.json"
_FAILED, _LOCK, _RECORD = "failed", ".lock", "record.json"
_NO_HASH = "0" * 64
_CHANGES_SHOWN = 5

Say = Callable[[str], object]
"""Gets a line of progress at a time."""


@dataclass(frozen=True)
class Qualification:
    """A finished qualification: its verdict, the frozen record, and the folder of both."""

    verdict: models.QualificationVerdict
    frozen: FrozenFile
    folder: Path


def qualify(protocol: ProtocolFile, options: RunOptions, folder: Path, say: Say) -> Qualification:
    """Carry a protocol out, or on from where it was left; a finished one is checked and not repeated.

    Raises:
        UsageError: when another process is at work in the folder, or it has another plan.
        RunError, Interrupted: when a run gives nothing; the finished ones are kept.
        EvidenceError: when runs disagree, or the folder is not what it was left as.
    """
    make_folder(folder)
    folder = folder.resolve()
    with exclusive(folder / _LOCK, say, lambda: datetime.now(UTC)):
        remove_leftovers(folder)
        plan = freeze_plan(protocol, options, folder)
        runs = run_cases(plan, options, folder, say)
        frozen = freeze_predictions(plan, runs, folder)
        say(f"frozen: {frozen.path.relative_to(folder)}")
        scores = score(frozen, runs, options, folder)
        return Qualification(judge(plan, scores, folder), frozen, folder)


# --- plan -----------------------------------------------------------------------------------------


def freeze_plan(protocol: ProtocolFile, options: RunOptions, folder: Path) -> models.QualificationPlan:
    """The plan of a protocol: written where the folder is new, else compared with the one that is there.

    Raises:
        UsageError: naming what has changed since, or for a folder that holds something else.
        EvidenceError: when the plan was changed after it was frozen, or later phases have no plan.
    """
    plan = _plan_of(protocol, options)
    path = folder / PLAN
    if not path.is_file():
        _refuse_later(folder, PLAN, RUNS, FROZEN, SCORES, VERDICT)
        if any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise UsageError(
                "holds files and no plan", where=str(folder), remedy="name a new folder for the evidence"
            )
        write_atomically(path, encode(plan))
        return plan
    planned = load_as(path, models.QualificationPlan)
    derived = content_sha256(planned)
    if derived != planned.content_sha256:
        raise EvidenceError(
            f"at $.content_sha256: found {planned.content_sha256}, expected {derived}: the plan was changed "
            "after it was frozen",
            where=str(path),
            remedy="restore the file",
        )
    if plan.content_sha256 != planned.content_sha256:
        raise UsageError(
            f"not what was planned: {_changed(planned, plan)}",
            where=str(path),
            remedy="go back to what was planned, or qualify in a new folder",
        )
    return planned


def _plan_of(file: ProtocolFile, options: RunOptions) -> models.QualificationPlan:
    protocol = file.protocol
    machine = platform.machine()
    settings = replace(
        default_settings(machine, protocol.device), workspace=protocol.workspace, threads=protocol.threads
    )
    validate(settings, machine)
    draft = models.QualificationPlan(
        kind="qualification-plan",
        schema_version=1,
        qualgate_version=__version__,
        protocol=protocol,
        protocol_sha256=file.sha256,
        settings=models.NumericSettings.model_validate(asdict(settings)),
        cases=cases_of_protocol(protocol),
        source_sha256=source_hashes(options.sources),
        content_sha256=_NO_HASH,
    )
    return draft.model_copy(update={"content_sha256": content_sha256(draft)})


def _changed(planned: models.QualificationPlan, plan: models.QualificationPlan) -> str:
    # The cases follow from the protocol.
    old, new = (_flat("", side.model_dump(exclude={"cases", "content_sha256"})) for side in (planned, plan))
    found = [f"{item.what} {_short(item.frozen)} -> {_short(item.found)}" for item in changes(old, new)]
    more = f" and {len(found) - _CHANGES_SHOWN} more" if len(found) > _CHANGES_SHOWN else ""
    return ", ".join(found[:_CHANGES_SHOWN]) + more


def _short(value: str | None) -> str:
    """A planned value; of a hash its first twelve digits."""
    if value is None:
        return "absent"
    return f"{value[:12]}…" if re.fullmatch("[0-9a-f]{64}", value) else value


def _flat(prefix: str, value: Any) -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, object] = {}
    for key, item in value.items():
        flat |= _flat(f"{prefix}.{key}" if prefix else key, item)
    return flat


# --- runs -----------------------------------------------------------------------------------------


def run_cases(plan: models.QualificationPlan, options: RunOptions, folder: Path, say: Say) -> list[list[Run]]:
    """Every process of every case, in the plan's order: finished ones are checked and kept, others run.

    Raises:
        RunError, Interrupted: when a run gives nothing; the finished ones are kept.
        EvidenceError: when a finished run is not what it was, is missing although it is frozen, or the
            processes of a case disagree.
    """
    done = []
    processes = plan.protocol.processes
    for index, case in enumerate(plan.cases):
        runs = []
        for process in range(1, processes + 1):
            number = index * processes + process
            label = f"[{number}/{len(plan.cases) * processes}] {case.name}, process {process} of {processes}"
            place = folder / RUNS / f"{case.name}-{process}"
            run = _kept_run(place, folder)
            if run is None:
                _refuse_later(folder, str(place.relative_to(folder)), FROZEN, SCORES, VERDICT)
                say(f"{label} ...")
                run = _fresh_run(plan, case, options, place)
                say(f"{label}: {run.record.duration_s:.1f} s")
            else:
                say(f"{label}: kept")
            _require_planned(plan, case, run)
            runs.append(run)
        require_agreement(runs)
        done.append(runs)
    return done


def _kept_run(place: Path, folder: Path) -> Run | None:
    """The finished run in a folder; None where there is none, with what an unfinished one left removed."""
    path = place / _RECORD
    if not path.is_file():
        _remove_folder(place)
        return None
    record = load_as(path, models.RunRecord)
    if record.result is None:
        _put_aside(place, folder / _FAILED)
        return None
    for file in audit_path(place).files:
        for finding in file.findings:
            raise EvidenceError(
                f"at {finding.path}: found {finding.found}, expected {finding.expected} ({finding.rule})",
                where=str(path),
                remedy=f"restore the files, or remove {place} to run it again",
            )
    return Run(record, place, file_sha256(path))


def _fresh_run(plan: models.QualificationPlan, case: models.Case, options: RunOptions, place: Path) -> Run:
    make_folder(place, fresh=True)
    settings = NumericSettings(**plan.settings.model_dump())
    return run_case(case, settings, options, place, load_inputs(case.data, options))


def _require_planned(plan: models.QualificationPlan, case: models.Case, run: Run) -> None:
    facts = (
        ("case", run.record.case, case),
        ("settings", run.record.settings, plan.settings),
        ("result.source_sha256", run.result.source_sha256, plan.source_sha256),
    )
    for name, found, planned in facts:
        if found != planned:
            raise EvidenceError(
                f"at $.{name}: not what was planned",
                where=str(run.folder / _RECORD),
                remedy=f"go back to what was planned, and remove {run.folder}",
            )


def _remove_folder(place: Path) -> None:
    try:
        if place.exists():
            shutil.rmtree(place)
    except OSError as error:
        raise StorageError(f"cannot be removed: {error.strerror or error}", where=str(place)) from error


def _put_aside(place: Path, failed: Path) -> None:
    make_folder(failed)
    number = sum(1 for _ in failed.glob(f"{place.name}.*")) + 1
    try:
        place.rename(failed / f"{place.name}.{number}")
    except OSError as error:
        raise StorageError(f"cannot be moved: {error.strerror or error}", where=str(place)) from error


# --- freezing -------------------------------------------------------------------------------------


def freeze_predictions(
    plan: models.QualificationPlan, runs: Sequence[Sequence[Run]], folder: Path
) -> FrozenFile:
    """Freeze the bits of all runs, predictions among them; what is frozen already is compared with them.

    Raises:
        EvidenceError: when runs disagree, or what is frozen is not of this plan and these runs.
    """
    target = folder / FROZEN
    make_folder(target)
    remove_leftovers(target)
    present = sorted(target.glob("*.json"))
    if not present:
        _refuse_later(folder, FROZEN, SCORES, VERDICT)
        record = freeze_cases(
            runs, name=plan.protocol.name, reason=_reason(plan), levels=["bitwise", "predictions"]
        )
        for frozen, of_case in zip(record.cases, runs, strict=True):
            write_trace(frozen, of_case[0], target)
        present = [write_frozen(record, target)]
    file = load_frozen(present[0])
    claimed = file.record.reason, [[run.record_sha256 for run in case.runs] for case in file.record.cases]
    derived = _reason(plan), [[run.record_sha256 for run in of_case] for of_case in runs]
    if len(present) > 1 or claimed != derived:
        raise EvidenceError("does not hold one record, of this plan and these runs", where=str(target))
    for frozen in file.record.cases:
        load_trace(target, frozen.trace)
    return file


def _reason(plan: models.QualificationPlan) -> str:
    return f"qualification {plan.protocol.name}, plan {plan.content_sha256}"


# --- scores and verdict ---------------------------------------------------------------------------


def score(
    frozen: FrozenFile, runs: Sequence[Sequence[Run]], options: RunOptions, folder: Path
) -> tuple[models.QualificationScores, str]:
    """Open the query labels and count the frozen predictions; returns the scores with their file's hash.

    Raises:
        InputError: when the data cannot be read.
        EvidenceError: when predictions are not the frozen ones, or the scores that are there not theirs.
    """
    path = folder / SCORES
    if not path.is_file():
        _refuse_later(folder, SCORES, VERDICT)
        draws = [
            _score_draw(case, of_case[0], options)
            for case, of_case in zip(frozen.record.cases, runs, strict=True)
        ]
        scores = models.QualificationScores(
            kind="qualification-scores",
            schema_version=1,
            frozen_file=f"{FROZEN}/{frozen.path.name}",
            frozen_sha256=frozen.sha256,
            draws=draws,
        )
        write_atomically(path, encode(scores))
    scores = load_as(path, models.QualificationScores)
    claimed = scores.frozen_sha256, [(draw.case, draw.predictions_sha256) for draw in scores.draws]
    derived = (
        frozen.sha256,
        [(case.case.name, case.hashes.predictions_sha256) for case in frozen.record.cases],
    )
    if claimed != derived:
        raise EvidenceError("not the scores of the frozen record", where=str(path))
    return scores, file_sha256(path)


def _score_draw(frozen: models.FrozenCase, run: Run, options: RunOptions) -> models.ScoredDraw:
    path = run.folder / run.result.predictions_file
    predictions = read_predictions(path, run.result)
    if array_sha256(predictions) != frozen.hashes.predictions_sha256:
        raise EvidenceError("not the frozen predictions", where=str(path))
    labels = load_query_labels(frozen.case.data, options)
    return models.ScoredDraw(
        case=frozen.case.name,
        predictions_sha256=frozen.hashes.predictions_sha256,
        query_labels_sha256=array_sha256(labels),
        score=count_correct(predictions, labels),
    )


def judge(
    plan: models.QualificationPlan, scores: tuple[models.QualificationScores, str], folder: Path
) -> models.QualificationVerdict:
    """Derive the verdict, and write it or compare it with the one that is there.

    Raises:
        EvidenceError: when that is another one.
    """
    path = folder / VERDICT
    verdict = judge_scores(
        plan.protocol.name,
        plan.protocol.required_accuracy_percent,
        {draw.case: draw.score for draw in scores[0].draws},
        scores[1],
    )
    data = encode(verdict)
    if not path.is_file():
        write_atomically(path, data)
    elif file_sha256(path) != bytes_sha256(data):
        raise EvidenceError("not the verdict that follows from plan and scores", where=str(path))
    return verdict


def _refuse_later(folder: Path, missing: str, *later: str) -> None:
    """Refuse to do a phase when the traces of a later one are there."""
    for name in later:
        path = folder / name
        if path.is_file() or (path.is_dir() and any(path.rglob("*.json"))):
            raise EvidenceError(
                f"found {name} and no {missing}: out of turn",
                where=str(folder),
                remedy=f"restore {missing}, or qualify in a new folder",
            )
