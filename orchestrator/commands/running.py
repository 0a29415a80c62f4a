"""`qualgate run`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import (
    DEFAULT_NUMERICS,
    RUNS_DIR,
    CaseOption,
    CbwrOption,
    ConfigOption,
    DeviceOption,
    IdxOption,
    IsaOption,
    JsonOption,
    NumericsOption,
    PassOption,
    PythonOption,
    QuietOption,
    RepeatsOption,
    RunsOption,
    ThreadsOption,
    TimeoutOption,
    TrialsOption,
    VectorOption,
    WorkspaceOption,
    case_of,
    check_choice,
    run_options,
    settings_of,
)


def run(
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = DEFAULT_NUMERICS,
    device: DeviceOption = "cpu",
    workspace: WorkspaceOption = ":16:8",
    threads: ThreadsOption = None,
    vector: VectorOption = None,
    onednn_isa: IsaOption = None,
    mkl_cbwr: CbwrOption = None,
    mode: Annotated[str, typer.Option(help="measure or profile.")] = "measure",
    scope: Annotated[str, typer.Option(help="task or training.")] = "task",
    repeats: RepeatsOption = 3,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy per task.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Record every training step.")] = False,
    trials: TrialsOption = 3,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case in one fresh process and leave a run record; judge nothing."""
    from orchestrator.render import costs
    from orchestrator.runner import new_run_folder, run_case

    check_choice("--mode", mode, ("measure", "profile"))
    check_choice("--scope", scope, ("task", "training"))
    chosen = case_of(case, config, numerics)
    settings = settings_of(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
    options = run_options(
        repeats=repeats,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=not quiet,
        mode=mode,
        scope=scope,
        energy=energy,
        trials=trials,
        trace=trace,
    )
    done = run_case(chosen, settings, options, new_run_folder(runs_dir, chosen.name))
    if as_json:
        print_json(done.record.model_dump())
    else:
        print_parts(
            f"{chosen.name}: {costs(done.result, done.record)}",
            f"record: {done.folder / 'record.json'}",
        )
