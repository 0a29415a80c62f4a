"""The command line: every command in one list. Errors and exit codes meet in `main`, and only there."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from orchestrator import __version__
from orchestrator.commands import (
    auditing,
    bisecting,
    gating,
    inputs,
    lineage,
    machine,
    profiling,
    qualifying,
    records,
    running,
    signing,
    studying,
    validating,
)
from orchestrator.commands.console import complain
from orchestrator.errors import ExitCode, Interrupted, QualgateError

app = typer.Typer(
    name="qualgate",
    help="Proves that a training computation still produces the same bits.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _command in (
    running.run,
    profiling.profile,
    gating.gate,
    gating.freeze,
    lineage.supersede,
    lineage.retire,
    lineage.log,
    lineage.show,
    lineage.diff,
    qualifying.qualify,
    records.compare,
    bisecting.bisect,
    auditing.audit,
    validating.validate,
    inputs.data,
    records.schema,
    machine.doctor,
    signing.keygen,
    signing.verify,
):
    app.command()(_command)

_study = typer.Typer(help="Run a case under several settings: what moves its bits, and what it costs.")
_study.command()(studying.workspaces)
app.add_typer(_study, name="study")


def _version(asked: bool) -> None:
    if asked:
        print(f"qualgate {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Proves that a training computation still produces the same bits."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> NoReturn:
    """The console entry: run a command and exit with its code; every error becomes one line."""
    # Models and records are trees: the collector's rounds over them find nothing, and cost a short command a
    # tenth of its time.
    gc.set_threshold(100_000)
    # Records are read by our models alone: a search for other packages' pydantic plugins costs as much.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A cancelled CI job sends SIGTERM; while a fixture runs, `process` handles it and ends the fixture first.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        code = complain(ExitCode.USAGE, error.format_message())
    except QualgateError as error:
        code = complain(error.exit_code, str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = complain(ExitCode.INTERRUPTED, "interrupted; nothing was left running")
    except BrokenPipeError:
        # The reader of our stdout is gone (`qualgate ... | head`): nothing more can be said to it.
        sys.stdout = None
        code = ExitCode.USAGE
    # The interpreter's last collections would visit every model once more: a sixth of an audit's time.
    gc.freeze()
    sys.exit(int(code or 0))


def _interrupt(number: int, _: object) -> NoReturn:
    raise Interrupted(f"interrupted by {signal.Signals(number).name}; nothing was left running")
