"""`qualgate bisect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    RUNS_DIR,
    IdxOption,
    JsonOption,
    PassOption,
    PythonOption,
    RunsOption,
    TimeoutOption,
    run_options,
)
from orchestrator.errors import ExitCode


def bisect(
    first: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    second: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run both again and compare the tensors that differ first.")
    ] = False,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    as_json: JsonOption = False,
) -> None:
    """Name the first training step and tensor at which two records part."""
    from orchestrator import bisection
    from orchestrator.render import bisection_lines

    if rerun:
        options = run_options(
            repeats=1, timeout=timeout, idx_dir=idx_dir, python=python, pass_env=pass_env, echo=False
        )
        found = bisection.bisect_again(first, second, options, runs_dir)
    else:
        found = bisection.bisect(first, second)
    lines = bisection_lines(found)
    if as_json:
        print_json(found.model_dump())
    else:
        print_parts(*lines)
    if found.divergence is not None:
        finish(ExitCode.DISQUALIFIED, lines[0])
