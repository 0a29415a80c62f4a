"""Runs one case under several settings, each in fresh processes, and writes what was found.

A study owns one folder: `study.json`, written last, and one run folder a process (`16-8.1`, `16-8.2`).

The settings take turns: every setting's first process, then every setting's second. A machine that warms
up or gets busy meanwhile so burdens all of them, and not the last one alone. A setting whose process fails
is not run again; the others go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from orchestrator import __version__
from orchestrator.codec import encode
from orchestrator.errors import EvidenceError, FixtureFailed, QualgateError, RunTimedOut, UsageError
from orchestrator.hashing import file_sha256
from orchestrator.models import Case, LeftOutSetting, StudyReport, StudyRun
from orchestrator.runner import Run, RunOptions, load_dataset, new_run_folder, run_case
from orchestrator.store import make_folder, write_atomically
from orchestrator.study_plan import StudyPlan
from orchestrator.study_rows import SettingRuns, study_rows


@dataclass(frozen=True)
class Study:
    """A finished study: its report, its folder, and the first failure, if a setting failed."""

    report: StudyReport
    folder: Path
    failure: QualgateError | None


def run_study(
    case: Case,
    plan: StudyPlan,
    options: RunOptions,
    *,
    processes: int,
    runs_dir: Path,
    progress: Callable[[str], object],
) -> Study:
    """Run every setting of the plan in `processes` fresh processes; `progress` gets a line at a time.

    Raises:
        UsageError, InputError: for options or data that are refused before any work.
        StorageError: when evidence cannot be written.
        Interrupted: after the process that ran is gone; the finished runs' records stay.
    """
    if processes < 2:
        raise UsageError(f"--processes: found {processes}, expected at least 2: one shows no spread")
    options.check()
    started = _now()
    dataset = load_dataset(case.data, options)
    folder = new_run_folder(runs_dir, f"study-{case.name}")
    every = [SettingRuns(name, settings) for name, settings in plan.settings.items()]
    first_failure: QualgateError | None = None
    for process in range(1, processes + 1):
        for number, runs in enumerate(every, start=(process - 1) * len(every) + 1):
            if runs.failure is not None:
                continue
            place = f"[{number}/{processes * len(every)}] {runs.setting}"
            progress(f"{place}: process {process} of {processes} ...")
            run_folder = folder / f"{_folder_name(runs.setting)}.{process}"
            try:
                make_folder(run_folder, fresh=True)
                run = run_case(case, runs.settings, options, run_folder, dataset)
            except (FixtureFailed, RunTimedOut, EvidenceError) as error:
                runs.failure = str(error)
                first_failure = first_failure or error
                progress(f"{place}: failed: {error}")
            else:
                runs.records.append(run.record)
                progress(f"{place}: {_said_of(run)}")
            record = run_folder / "record.json"
            if record.is_file():
                name = record.relative_to(folder).as_posix()
                runs.files.append(StudyRun(file=name, file_sha256=file_sha256(record)))
    report = StudyReport(
        kind="study",
        schema_version=1,
        qualgate_version=__version__,
        case=case,
        started_at_utc=started,
        finished_at_utc=_now(),
        processes=processes,
        baseline=plan.baseline,
        rows=study_rows(every, plan.baseline),
        left_out=[LeftOutSetting(setting=name, reason=reason) for name, reason in plan.left_out.items()],
    )
    write_atomically(folder / "study.json", encode(report))
    return Study(report, folder, first_failure)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _folder_name(setting: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", setting).strip("-")


def _said_of(run: Run) -> str:
    timing = run.result.timing
    return "done" if timing is None else f"{median(timing.repeat_ms):.1f} ms per task"
