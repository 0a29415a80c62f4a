"""`qualgate study workspaces`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    RUNS_DIR,
    CaseOption,
    ConfigOption,
    DeviceOption,
    IdxOption,
    JsonOption,
    NumericsOption,
    PassOption,
    PythonOption,
    RepeatsOption,
    RunsOption,
    TimeoutOption,
    TrialsOption,
    case_of,
    check_choice,
    run_options,
)


def workspaces(
    case: CaseOption = "digits",
    config: ConfigOption = None,
    # Native, whatever the other commands take: portable bits do not move, and this is about what moves bits.
    numerics: NumericsOption = "native",
    device: DeviceOption = "cpu",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", help="Only this one, as in :16:8, or on a CPU THREADS/MKL_CBWR, as in 2/AVX2."
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The setting to compare with; the first when not given.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", help="Fresh processes a setting.")] = 2,
    repeats: RepeatsOption = 3,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy per task.")] = False,
    trials: TrialsOption = 3,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare bits, memory, time and energy across cuBLAS workspaces, or on a CPU threads and MKL modes."""
    import platform

    from orchestrator.probe import cpu_facts
    from orchestrator.render_costs import study_table
    from orchestrator.study import run_study
    from orchestrator.study_plan import plan_study

    check_choice("--device", device, ("cpu", "cuda"))
    chosen = case_of(case, config, numerics)
    cpu = cpu_facts()
    plan = plan_study(
        device,
        platform.machine(),
        cpus=cpu.affinity_cpus,
        vector_units=cpu.vector_units,
        asked=setting or (),
        baseline=baseline,
    )
    options = run_options(
        repeats=repeats,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
        energy=energy,
        trials=trials,
    )
    study = run_study(chosen, plan, options, processes=processes, runs_dir=runs_dir, progress=_say)
    if as_json:
        print_json(study.report.model_dump())
    else:
        print_parts(study_table(study.report), f"study: {study.folder / 'study.json'}")
    if study.failure is not None:
        failed = [row.setting for row in study.report.rows if row.failure is not None]
        counted = f"{len(failed)} of {len(study.report.rows)} settings failed ({', '.join(failed)})"
        finish(study.failure.exit_code, f"{counted}: {study.failure}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
