"""`qualgate profile`: counters of a profiled range, and what they tell of one task."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import (
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
    RunsOption,
    ThreadsOption,
    TimeoutOption,
    VectorOption,
    WorkspaceOption,
    case_of,
    check_choice,
    run_options,
    settings_of,
)


def profile(
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = "native",
    device: DeviceOption = "cpu",
    workspace: WorkspaceOption = ":16:8",
    threads: ThreadsOption = None,
    vector: VectorOption = None,
    onednn_isa: IsaOption = None,
    mkl_cbwr: CbwrOption = None,
    scope: Annotated[
        str, typer.Option("--scope", help="task: complete tasks; training: all epochs of one.")
    ] = "task",
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", help="Tasks in the range.", show_default="16, or 1 for training"),
    ] = None,
    timeout: TimeoutOption = 3600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the output as it comes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Count a case's memory traffic with Nsight Compute on CUDA; time its operators on a CPU."""
    from orchestrator.profiling import profile_case
    from orchestrator.render_profile import profile_table
    from orchestrator.runner import new_run_folder

    check_choice("--scope", scope, ("task", "training"))
    chosen = case_of(case, config, numerics)
    settings = settings_of(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
    options = run_options(
        repeats=repeats if repeats is not None else 16 if scope == "task" else 1,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
        mode="profile",
        scope=scope,
    )
    what = f"{options.repeats} complete tasks" if scope == "task" else "one training"
    print(
        f"profiling {what}; the profiler's own work takes most of the time ...", file=sys.stderr, flush=True
    )
    folder = new_run_folder(runs_dir, chosen.name)
    done = profile_case(chosen, settings, options, folder, under_ncu=settings.device == "cuda")
    if as_json:
        print_json(done.record.model_dump())
    else:
        print_parts(profile_table(done.record), f"record: {done.folder / 'record.json'}")
