"""`qualgate validate`: the task as it is executed here, against ordinary autograd."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    RUNS_DIR,
    CbwrOption,
    DeviceOption,
    IsaOption,
    JsonOption,
    PassOption,
    PythonOption,
    RunsOption,
    ThreadsOption,
    TimeoutOption,
    VectorOption,
    WorkspaceOption,
    run_options,
    settings_of,
)
from orchestrator.errors import ExitCode


def validate(
    device: DeviceOption = "cpu",
    workspace: WorkspaceOption = ":16:8",
    threads: ThreadsOption = None,
    vector: VectorOption = None,
    onednn_isa: IsaOption = None,
    mkl_cbwr: CbwrOption = None,
    timeout: TimeoutOption = 600.0,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the output as it comes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare every gradient, velocity and update of the task with ordinary autograd's, on this device."""
    from orchestrator.render_validation import validation_line, validation_table
    from orchestrator.runner import new_run_folder
    from orchestrator.validation_run import run_validation

    settings = settings_of(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
    options = run_options(
        repeats=1, timeout=timeout, idx_dir=None, python=python, pass_env=pass_env, echo=verbose
    )
    folder = new_run_folder(runs_dir, f"validation-{settings.device}")
    report = run_validation(settings, options, folder)
    line = validation_line(report)
    if as_json:
        print_json(report.model_dump())
    else:
        print_parts(line, validation_table(report), f"report: {folder / 'result.json'}")
    if not report.passed:
        finish(ExitCode.DISQUALIFIED, line)
