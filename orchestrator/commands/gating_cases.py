"""`qualgate gate --cases`: several cases, each judged as a gate of its own would, side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import case_of, check_choice
from orchestrator.errors import ExitCode, NoRecordError, QualgateError, UsageError, worst

if TYPE_CHECKING:
    from orchestrator.commands.reporting import Reports
    from orchestrator.environment import NumericSettings
    from orchestrator.gate import GateOutcome
    from orchestrator.models import Case
    from orchestrator.qualification import FrozenFile
    from orchestrator.reports import Report
    from orchestrator.runner import RunOptions
    from orchestrator.side_by_side import Finished, Job

CasesOption = Annotated[
    str | None,
    typer.Option("--cases", help="Several cases, by commas; all: every one that your records hold."),
]
CoresOption = Annotated[
    int | None,
    typer.Option("--cores", help="With --cases: threads that run at one time.", show_default="usable CPUs"),
]


def chosen_cases(names: str, numerics: str, files: Sequence[FrozenFile]) -> list[Case]:
    """The cases that `--cases` names, in its order; for `all`, those of the records, each once.

    Whoever has records of their own means those: the package's count only where there are no others.

    Raises:
        UsageError: for a name that is unknown or repeated.
        NoRecordError: when `all` is none; where a record is retired, with the reason.
    """
    from orchestrator.cases import same_computation
    from orchestrator.qualification import frozen_cases, shipped_records

    if names != "all":
        listed = names.split(",")
        if len(set(listed)) < len(listed):
            raise UsageError(f"--cases: found {names!r}, expected each case once")
        return [case_of(name, None, numerics) for name in listed]
    check_choice("--numerics", numerics, ("native", "portable"))
    files = [file for file in files if file.path.parent != shipped_records()] or files
    cases: list[Case] = []
    current = [file for file in files if file.retirement is None]
    for case in (frozen.case for file in current for frozen in file.record.cases):
        if case.numerics == numerics and not any(same_computation(case, other) for other in cases):
            cases.append(case)
    if not cases:
        for case in (frozen.case for file in files for frozen in file.record.cases):
            if case.numerics == numerics:
                frozen_cases(files, case)  # raises: every record of it is retired, and it says why
        raise NoRecordError(f"no frozen record holds a case with {numerics} numerics")
    return cases


def gate_cases(
    cases: Sequence[Case],
    cores: int | None,
    settings: NumericSettings,
    options: RunOptions,
    files_for: Callable[[Case], list[FrozenFile]],
    runs_dir: Path,
    as_json: bool,
    reports: Reports,
) -> None:
    """Gate the cases side by side and print a table of them, then whole tables of those that failed.

    `files_for` gives the records to judge a case by, or raises; that ends this case and no other.
    """
    from orchestrator.gate import GateOutcome, gate_case
    from orchestrator.render import verdict_table
    from orchestrator.render_cases import GatedCase, cases_json, cases_table
    from orchestrator.side_by_side import Job, run_side_by_side

    def act(job: Job) -> GateOutcome:
        return gate_case(job.case, job.settings, options, files_for(job.case), runs_dir)

    def gated(item: Finished[GateOutcome]) -> GatedCase:
        outcome = item.outcome
        judged = outcome.verdict if isinstance(outcome, GateOutcome) else outcome
        return GatedCase(item.job.case, judged, item.duration_s)

    if cores is not None and cores < 1:
        raise UsageError(f"--cores: found {cores}, expected at least 1")
    finished = run_side_by_side(
        [Job(case, settings) for case in cases],
        cores or len(os.sched_getaffinity(0)),
        act,
        lambda item: print(gated(item).line, file=sys.stderr, flush=True),
    )
    summary = [gated(item) for item in finished]
    reports.write(*(_report(item) for item in finished))
    if as_json:
        print_json(cases_json(summary))
    else:
        failed = [
            verdict_table(item.outcome.verdict, item.outcome.run.record)
            for item in finished
            if isinstance(item.outcome, GateOutcome) and not item.outcome.verdict.qualified
        ]
        print_parts(cases_table(summary), *failed)
    code = worst(item.exit_code for item in summary)
    if code is not ExitCode.QUALIFIED:
        bad = [item for item in summary if item.exit_code is not ExitCode.QUALIFIED]
        first = next(item for item in bad if item.exit_code is code)
        finish(code, f"{len(bad)} of {len(summary)} cases not qualified; {first.line}")


def _report(item: Finished[GateOutcome]) -> Report:
    from orchestrator.reports import error_report, verdict_report

    name = f"{item.job.case.name}.{item.job.case.numerics}"
    outcome = item.outcome
    if isinstance(outcome, QualgateError):
        return error_report(name, type(outcome).__name__, str(outcome))
    return verdict_report(name, outcome.verdict, outcome.run)
