"""`qualgate qualify`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    IdxOption,
    JsonOption,
    PassOption,
    PythonOption,
    TimeoutOption,
    run_options,
)
from orchestrator.errors import ExitCode


def qualify(
    protocol: Annotated[str, typer.Argument(help="A protocol (.toml), or the name of a shipped one.")],
    out: Annotated[Path, typer.Option("--out", help="The evidence folder: new, or one to go on with.")],
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Carry out a protocol: plan, run, freeze the predictions, only then score them."""
    from orchestrator import qualify as qualification
    from orchestrator.protocol import load_protocol
    from orchestrator.render_qualify import accuracy_table, spread_line, verdict_line

    options = run_options(
        repeats=1,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
        trace=True,
    )
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {line}", file=sys.stderr, flush=True)

    done = qualification.qualify(load_protocol(protocol), options, out, say)
    verdict, line = done.verdict, verdict_line(done.verdict)
    if as_json:
        print_json(verdict.model_dump())
    else:
        record = done.frozen.record
        print_parts(
            line, accuracy_table(verdict, record), spread_line(verdict), f"frozen: {done.frozen.path}"
        )
    if not verdict.passed:
        finish(ExitCode.DISQUALIFIED, f"{line}; evidence in {done.folder}")
