"""A validation: the task against ordinary autograd in one fresh process, and what that process says, checked.

Its folder holds, like a run's, the sources that ran (`fixture/`), `stdout.txt`, `stderr.txt` and
`result.json`, which is the validation report. The inputs are the fixture's own: a few random rows.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from orchestrator.audit.validation_report import may_pass
from orchestrator.codec import decode, kind_of_model, schema_validator
from orchestrator.environment import NumericSettings, build_environment
from orchestrator.errors import EvidenceError
from orchestrator.models import NumericsName, TensorKind, ValidationReport
from orchestrator.process import run_process
from orchestrator.runner import RunOptions, fixture_folder, process_failure, snapshot_sources

_DEPTHS = (1, 2)


def run_validation(settings: NumericSettings, options: RunOptions, folder: Path) -> ValidationReport:
    """Validate the task in one fresh process; `folder` is an empty one.

    Of the options, those of a process count: its time, interpreter, environment and sources.

    Raises:
        UsageError: for options or settings that are refused before any work.
        FixtureFailed, RunTimedOut, StorageError: when the process left no report.
        EvidenceError: when the report is not what it says, or leaves something out.
        Interrupted: after the process and its group are gone.
    """
    options.check()
    environment = build_environment(
        settings,
        inherited=options.inherited,
        machine=platform.machine(),
        pass_through=options.pass_through,
    )
    sources = snapshot_sources(options.sources or fixture_folder(), folder / "fixture")
    result = folder / "result.json"
    outcome = run_process(
        [
            *(options.python, "-I", "-B", str(folder / "fixture"), "validate"),
            *("--device", settings.device, "--output", str(result)),
        ],
        env=environment.variables,
        cwd=folder,
        stdout_path=folder / "stdout.txt",
        stderr_path=folder / "stderr.txt",
        timeout_s=options.timeout_s,
        echo=options.echo,
        meanwhile=lambda: schema_validator(kind_of_model(ValidationReport)),
    )
    failure = process_failure(outcome, options, folder)
    if failure is not None:
        raise failure
    report = decode(result.read_bytes(), str(result))
    if not isinstance(report, ValidationReport):
        raise EvidenceError("not a validation report", where=str(result))
    check_report(report, settings, environment.sha256, sources, str(result))
    return report


def check_report(
    report: ValidationReport,
    settings: NumericSettings,
    environment_sha256: str,
    sources: dict[str, str],
    where: str,
) -> None:
    """Compare every claim with what is known here, or follows from the report's own numbers.

    Raises:
        EvidenceError: for the first claim that does not hold; `where` names the report.
    """
    problem = next(_problems(report, settings, environment_sha256, sources), None)
    if problem is not None:
        raise EvidenceError(problem, where=where)


def _problems(
    report: ValidationReport,
    settings: NumericSettings,
    environment_sha256: str,
    sources: dict[str, str],
) -> Iterator[str]:
    if report.device != settings.device:
        yield f"at $.device: found {report.device}, expected {settings.device}"
    if report.source_sha256 != sources:
        yield "at $.source_sha256: not the sources that were started"
    if report.environment.sha256 != environment_sha256 or report.environment.changed_during_run:
        yield "at $.environment: not the environment that the process was started with"
    covered = {(case.numerics, case.config.depth) for case in report.cases}
    for numerics in get_args(NumericsName):
        for depth in _DEPTHS:
            if (numerics, depth) not in covered:
                yield f"at $.cases: no case of {numerics} numerics at depth {depth}"
    for index, case in enumerate(report.cases):
        missing = set(get_args(TensorKind)) - {check.kind for check in case.checks}
        if missing:
            yield f"at $.cases[{index}].checks: none of {', '.join(sorted(missing))}"
        for number, check in enumerate(case.checks):
            if check.passed and not may_pass(check):
                yield f"at $.cases[{index}].checks[{number}].passed: found true, its numbers say otherwise"
    if report.passed != all(check.passed for case in report.cases for check in case.checks):
        yield f"at $.passed: found {str(report.passed).lower()}, the checks say otherwise"
