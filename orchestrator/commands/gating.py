"""`qualgate gate` and `qualgate freeze`: to judge bits, and to freeze them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.gating_cases import CasesOption, CoresOption, chosen_cases, gate_cases
from orchestrator.commands.options import (
    DEFAULT_NUMERICS,
    RECORDS_DIR,
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
    RecordsOption,
    RepeatsOption,
    RunsOption,
    ThreadsOption,
    TimeoutOption,
    VectorOption,
    WorkspaceOption,
    case_of,
    check_choice,
    records_folders,
    run_options,
    settings_of,
)
from orchestrator.commands.reporting import GithubOption, JunitOption, MarkdownOption, reporting
from orchestrator.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from orchestrator.commands.reporting import Reports
    from orchestrator.environment import NumericSettings
    from orchestrator.models import Case
    from orchestrator.qualification import FrozenFile
    from orchestrator.runner import RunOptions


def gate(
    case: CaseOption = "digits",
    cases: CasesOption = None,
    cores: CoresOption = None,
    config: ConfigOption = None,
    numerics: NumericsOption = DEFAULT_NUMERICS,
    records: RecordsOption = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Judge by this frozen record alone.")
    ] = None,
    published: Annotated[
        str | None,
        typer.Option(
            "--published", help="Reproduce a published table of MNIST draws: mnist-medium-a100, or a file."
        ),
    ] = None,
    draws: Annotated[list[int] | None, typer.Option("--draw", help="Only these draws of the table.")] = None,
    device: DeviceOption = "cpu",
    workspace: WorkspaceOption = ":16:8",
    threads: ThreadsOption = None,
    vector: VectorOption = None,
    onednn_isa: IsaOption = None,
    mkl_cbwr: CbwrOption = None,
    repeats: RepeatsOption = 3,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    trace: Annotated[
        bool, typer.Option("--trace/--no-trace", help="Name the first training step that differs.")
    ] = True,
    require_signature: Annotated[
        Path | None,
        typer.Option("--require-signature", help="Judge only by records that this public key signed."),
    ] = None,
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    github: GithubOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case and judge its bits by the frozen record of this platform."""
    name = f"{_subject(case, cases, published)}.{numerics}"
    with reporting(name, junit=junit, markdown=markdown, github=github) as reports:
        if cases is None and cores is not None:
            raise UsageError("--cores: belongs to --cases")
        if cases is not None and (published or config or verbose or case != "digits"):
            raise UsageError("--cases: goes with none of --case, --config, --published and --verbose")
        settings = settings_of(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
        options = run_options(
            repeats=repeats,
            timeout=timeout,
            idx_dir=idx_dir,
            python=python,
            pass_env=pass_env,
            echo=verbose,
            trace=trace and published is None,
        )
        if published is not None:
            check_choice("--numerics", numerics, ("native", "portable"))
            if require_signature is not None:
                raise UsageError(
                    "--require-signature: a published table has no signature; leave out one of the two"
                )
            _gate_published(published, draws or [], numerics, settings, options, runs_dir, as_json, reports)
            return
        from orchestrator.gate import check_signed, frozen_files, gate_case
        from orchestrator.render import headline, remedy, verdict_table
        from orchestrator.reports import verdict_report
        from orchestrator.signing import load_public_key

        key = None if require_signature is None else load_public_key(require_signature)
        files = frozen_files(records_folders(records), record, must_be_signed=key is not None)

        def files_for(chosen: Case) -> list[FrozenFile]:
            if key is not None:
                check_signed(files, chosen, key)
            return files

        if cases is not None:
            several = chosen_cases(cases, numerics, files)
            gate_cases(several, cores, settings, options, files_for, runs_dir, as_json, reports)
            return
        chosen = case_of(case, config, numerics)
        outcome = gate_case(chosen, settings, options, files_for(chosen), runs_dir)
        verdict = outcome.verdict
        reports.write(verdict_report(reports.name, verdict, outcome.run))
        if as_json:
            print_json(verdict.model_dump())
        else:
            print_parts(headline(verdict), verdict_table(verdict, outcome.run.record))
        if not verdict.qualified:
            line = f"{headline(verdict)}; {remedy(verdict, str(outcome.run.folder))}"
            finish(ExitCode.DISQUALIFIED, line)


def _subject(case: str, cases: str | None, published: str | None) -> str:
    """What the whole gate is called in its reports."""
    if published is not None:
        return "published"
    return case if cases is None else "cases"


def _gate_published(
    name_or_path: str,
    draws: list[int],
    numerics: str,
    settings: NumericSettings,
    options: RunOptions,
    runs_dir: Path,
    as_json: bool,
    reports: Reports,
) -> None:
    from dataclasses import asdict

    from orchestrator.published import DrawVerdict, load_table, reproduce_draws
    from orchestrator.render import draw_table
    from orchestrator.reports import draws_report

    def report(verdict: DrawVerdict) -> None:
        mark = "equal" if verdict.qualified else "differs"
        print(f"draw {verdict.draw}: {mark}", file=sys.stderr, flush=True)

    table = load_table(name_or_path)
    verdicts = reproduce_draws(table, draws, numerics, settings, options, runs_dir, report)
    reports.write(draws_report(reports.name, verdicts))
    if as_json:
        print_json([asdict(item) | {"qualified": item.qualified} for item in verdicts])
    else:
        print_parts(draw_table(verdicts), f"source: {table.note}")
    failed = [item for item in verdicts if not item.qualified]
    if failed:
        first = failed[0].differences[0]
        finish(
            ExitCode.DISQUALIFIED,
            f"disqualified: draw {failed[0].draw}: first difference in {first.field}: "
            f"published {first.expected}, found {first.found}",
        )


def freeze(
    reason: Annotated[str, typer.Option("--reason", help="Why these bits are the right ones.")],
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = DEFAULT_NUMERICS,
    records: Annotated[
        Path, typer.Option("--records", help="The folder that the record is written to.")
    ] = RECORDS_DIR,
    supersedes: Annotated[
        Path | None, typer.Option("--supersedes", help="The frozen record that this one replaces.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Fresh processes that must agree.")] = 2,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Sign the record with this private key.")
    ] = None,
    bitwise_only: Annotated[
        bool, typer.Option("--bitwise-only", help="Never judge other platforms by predictions.")
    ] = False,
    device: DeviceOption = "cpu",
    workspace: WorkspaceOption = ":16:8",
    threads: ThreadsOption = None,
    vector: VectorOption = None,
    onednn_isa: IsaOption = None,
    mkl_cbwr: CbwrOption = None,
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = RUNS_DIR,
    trace: Annotated[
        bool, typer.Option("--trace/--no-trace", help="Freeze a digest of every training step, too.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case in fresh processes and freeze its bits when they agree."""
    from orchestrator.gate import freeze_case
    from orchestrator.signing import load_private_key

    options = run_options(
        repeats=1,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
        trace=trace,
    )
    path, frozen = freeze_case(
        case_of(case, config, numerics),
        settings_of(device, workspace, threads, vector, onednn_isa, mkl_cbwr),
        options,
        reason=reason,
        levels=["bitwise"] if bitwise_only else ["bitwise", "predictions"],
        folder=records,
        supersedes=supersedes,
        runs=runs,
        runs_dir=runs_dir,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        # Read before anything runs: a wrong key should not cost the runs.
        signer=None if sign is None else load_private_key(sign),
    )
    if as_json:
        print_json(frozen.model_dump())
    else:
        print_parts(f"frozen: {path}")
