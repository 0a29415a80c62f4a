"""The command line: parse, call, print, exit. Nothing else.

Every import of a command is inside the command, so that `--help` answers at once. Errors and exit codes
meet in `main`, and only there.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orchestrator import __version__
from orchestrator.errors import ExitCode, Interrupted, QualgateError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from orchestrator.environment import NumericSettings
    from orchestrator.models import Case
    from orchestrator.runner import RunOptions

app = typer.Typer(
    name="qualgate",
    help="Proves that a training computation still produces the same bits.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

# --- options that several commands share ----------------------------------------------------------

CaseOption = Annotated[str, typer.Option("--case", help="digits, mnist-DRAW or synthetic-N-M.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A configuration file instead of the case's own.")
]
NumericsOption = Annotated[
    str, typer.Option("--numerics", help="native: fast, this platform's bits; portable: every machine's.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
WorkspaceOption = Annotated[
    str, typer.Option("--workspace", help="CUBLAS_WORKSPACE_CONFIG: :16:8, :4096:8 or :0:0.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads; they change the bits.")]
VectorOption = Annotated[str | None, typer.Option("--vector", help="ATEN_CPU_CAPABILITY, e.g. avx2.")]
IsaOption = Annotated[str | None, typer.Option("--onednn-isa", help="ONEDNN_MAX_CPU_ISA, e.g. AVX2.")]
CbwrOption = Annotated[str | None, typer.Option("--mkl-cbwr", help="MKL_CBWR, e.g. AVX2.")]
RepeatsOption = Annotated[int, typer.Option("--repeats", help="Timed repeats of the task.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds for the whole process.")]
IdxOption = Annotated[Path | None, typer.Option("--idx-dir", help="A folder with MNIST's IDX files.")]
PythonOption = Annotated[
    str, typer.Option("--python", help="The interpreter that has torch.", show_default="this one")
]
PassOption = Annotated[
    list[str] | None,
    typer.Option("--pass-env", help="Pass one variable on, e.g. CUDA_VISIBLE_DEVICES."),
]
RunsOption = Annotated[Path, typer.Option("--runs-dir", help="Where run folders are made.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Do not show the fixture's output.")]
RecordsOption = Annotated[
    list[Path] | None,
    typer.Option("--records", help="More folders of frozen records; they come first."),
]

_RUNS = Path("qualgate-runs")


def _case(name: str, config: Path | None, numerics: str) -> Case:
    from orchestrator.cases import named_case, with_config

    _choice("--numerics", numerics, ("native", "portable"))
    case = named_case(name).model_copy(update={"numerics": numerics})
    return case if config is None else with_config(case, config)


def _settings(
    device: str,
    workspace: str,
    threads: int | None,
    vector: str | None,
    onednn_isa: str | None,
    mkl_cbwr: str | None,
) -> NumericSettings:
    import platform
    from dataclasses import replace

    from orchestrator.environment import default_settings, validate

    asked: dict[str, Any] = {
        "workspace": workspace,
        "threads": threads,
        "vector": vector,
        "onednn_isa": onednn_isa,
        "mkl_cbwr": mkl_cbwr,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device: found {device!r}, expected cpu or cuda")
    settings = replace(default_settings(platform.machine(), device), **given)
    validate(settings, platform.machine())
    return settings


def _options(
    *,
    repeats: int,
    timeout: float,
    idx_dir: Path | None,
    python: str,
    pass_env: list[str] | None,
    echo: bool,
    **more: Any,
) -> RunOptions:
    from orchestrator.runner import RunOptions

    options = RunOptions(
        repeats=repeats,
        timeout_s=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_through=tuple(pass_env or ()),
        echo=_echo if echo else None,
        progress=_download_progress,
        **more,
    )
    options.check()
    return options


def _echo(_: str, data: bytes) -> None:
    """The fixture's output goes to our stderr: stdout is for the verdict."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def _download_progress(received: int, total: int | None) -> None:
    """One line that overwrites itself, for a person at a terminal."""
    if sys.stderr.isatty():
        whole = "" if total is None else f" of {total / 2**20:.1f}"
        end = "\n" if received == total else ""
        print(f"\rdownloading MNIST: {received / 2**20:.1f}{whole} MiB", end=end, file=sys.stderr, flush=True)


def _print(*parts: RenderableType) -> None:
    from rich.console import Console

    # Lines stay whole for grep and logs; only tables follow the terminal's width.
    console = Console(highlight=False, markup=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def _print_json(value: Any) -> None:
    from orchestrator.json_text import canonical_text

    sys.stdout.write(canonical_text(value).decode())


def _finish(code: ExitCode, line: str) -> NoReturn:
    """End a command with a code and its line."""
    raise typer.Exit(_complain(code, line))


# --- commands -------------------------------------------------------------------------------------


@app.command()
def run(
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = "native",
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
    timeout: TimeoutOption = 600.0,
    idx_dir: IdxOption = None,
    python: PythonOption = sys.executable,
    pass_env: PassOption = None,
    runs_dir: RunsOption = _RUNS,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case in one fresh process and leave a run record; judge nothing."""
    from orchestrator.render import costs
    from orchestrator.runner import new_run_folder, run_case

    _choice("--mode", mode, ("measure", "profile"))
    _choice("--scope", scope, ("task", "training"))
    chosen = _case(case, config, numerics)
    settings = _settings(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
    options = _options(
        repeats=repeats,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=not quiet,
        mode=mode,
        scope=scope,
        energy=energy,
    )
    done = run_case(chosen, settings, options, new_run_folder(runs_dir, chosen.name))
    if as_json:
        _print_json(done.record.model_dump())
    else:
        _print(
            f"{chosen.name}: {costs(done.result, done.record)}",
            f"record: {done.folder / 'record.json'}",
        )


@app.command()
def gate(
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = "native",
    records: RecordsOption = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Judge by this frozen record alone.")
    ] = None,
    published: Annotated[
        Path | None, typer.Option("--published", help="Reproduce a published table of MNIST draws.")
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
    runs_dir: RunsOption = _RUNS,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case and judge its bits by the frozen record of this platform."""
    settings = _settings(device, workspace, threads, vector, onednn_isa, mkl_cbwr)
    options = _options(
        repeats=repeats,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
    )
    if published is not None:
        _choice("--numerics", numerics, ("native", "portable"))
        _gate_published(published, draws or [], numerics, settings, options, runs_dir, as_json)
        return
    from orchestrator.gate import frozen_files, gate_case
    from orchestrator.render import headline, remedy, verdict_table

    chosen = _case(case, config, numerics)
    outcome = gate_case(chosen, settings, options, frozen_files(records or [], record), runs_dir)
    verdict = outcome.verdict
    if as_json:
        _print_json(verdict.model_dump())
    else:
        _print(headline(verdict), verdict_table(verdict, outcome.run.record))
    if not verdict.qualified:
        line = f"{headline(verdict)}; {remedy(verdict, str(outcome.run.folder))}"
        _finish(ExitCode.DISQUALIFIED, line)


def _gate_published(
    path: Path,
    draws: list[int],
    numerics: str,
    settings: NumericSettings,
    options: RunOptions,
    runs_dir: Path,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from orchestrator.codec import load_as
    from orchestrator.models import PublishedDraws
    from orchestrator.published import DrawVerdict, reproduce_draws
    from orchestrator.render import draw_table

    def report(verdict: DrawVerdict) -> None:
        mark = "equal" if verdict.qualified else "differs"
        print(f"draw {verdict.draw}: {mark}", file=sys.stderr, flush=True)

    table = load_as(path, PublishedDraws)
    verdicts = reproduce_draws(table, draws, numerics, settings, options, runs_dir, report)
    if as_json:
        _print_json([asdict(item) | {"qualified": item.qualified} for item in verdicts])
    else:
        _print(draw_table(verdicts))
    failed = [item for item in verdicts if not item.qualified]
    if failed:
        first = failed[0].differences[0]
        _finish(
            ExitCode.DISQUALIFIED,
            f"disqualified: draw {failed[0].draw}: first difference in {first.field}: "
            f"published {first.expected}, found {first.found}",
        )


@app.command()
def freeze(
    reason: Annotated[str, typer.Option("--reason", help="Why these bits are the right ones.")],
    case: CaseOption = "digits",
    config: ConfigOption = None,
    numerics: NumericsOption = "native",
    records: Annotated[
        Path, typer.Option("--records", help="The folder that the record is written to.")
    ] = Path("qualification"),
    supersedes: Annotated[
        Path | None, typer.Option("--supersedes", help="The frozen record that this one replaces.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Fresh processes that must agree.")] = 2,
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
    runs_dir: RunsOption = _RUNS,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the fixture's output.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a case in fresh processes and freeze its bits when they agree."""
    from orchestrator.gate import freeze_case

    options = _options(
        repeats=1,
        timeout=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_env=pass_env,
        echo=verbose,
    )
    path, frozen = freeze_case(
        _case(case, config, numerics),
        _settings(device, workspace, threads, vector, onednn_isa, mkl_cbwr),
        options,
        reason=reason,
        levels=["bitwise"] if bitwise_only else ["bitwise", "predictions"],
        folder=records,
        supersedes=supersedes,
        runs=runs,
        runs_dir=runs_dir,
    )
    if as_json:
        _print_json(frozen.model_dump())
    else:
        _print(f"frozen: {path}")


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    second: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    level: Annotated[
        str | None,
        typer.Option("--level", help="bitwise or predictions; by the platforms when not given."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two records field by field, in the order of the computation."""
    from typing import cast

    from orchestrator.comparison import load_evidence
    from orchestrator.models import Level
    from orchestrator.render import headline, side_by_side, verdict_table
    from orchestrator.verdict import judge, level_to_ask

    if level is not None:
        _choice("--level", level, ("bitwise", "predictions"))
    expected, found = load_evidence(first), load_evidence(second)
    asked = cast("Level", level) if level is not None else level_to_ask(expected, found)
    verdict = judge(expected, found, asked)
    if as_json:
        _print_json(verdict.model_dump())
    else:
        _print(headline(verdict), verdict_table(verdict), side_by_side(expected, found, verdict))
    if not verdict.qualified:
        _finish(ExitCode.DISQUALIFIED, headline(verdict))


@app.command()
def data(
    source: Annotated[str, typer.Argument(help="digits, mnist or synthetic.")] = "digits",
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path("data"),
    draw: Annotated[int, typer.Option("--draw", help="MNIST: which draw.")] = 0,
    idx_dir: IdxOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The split's or generator's seed.")] = None,
    train: Annotated[int | None, typer.Option("--train", help="Training images.")] = None,
    query: Annotated[int, typer.Option("--query", help="Synthetic: query images.")] = 500,
    as_json: JsonOption = False,
) -> None:
    """Write an input archive, its query labels and a manifest."""
    from orchestrator.data_command import source_of, write_data
    from orchestrator.runner import RunOptions

    options = RunOptions(idx_dir=idx_dir, progress=_download_progress)
    manifest = write_data(source_of(source, draw, seed, train, query), options, out)
    if as_json:
        _print_json(manifest.model_dump())
    else:
        _print(
            f"{out / manifest.archive_file}: {manifest.train_count} training and "
            f"{manifest.test_count} query images"
        )


@app.command()
def schema(
    kind: Annotated[str | None, typer.Argument(help="A schema to print, e.g. run-record.v2.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write every schema there.")] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Compare this folder with the models.")
    ] = None,
) -> None:
    """Print, write or check the JSON Schemas of the records."""
    from orchestrator.codec import KINDS
    from orchestrator.schema_export import export, schema_of, stale

    if check is not None:
        if not check.is_dir():
            raise UsageError("no such folder", where=str(check))
        names = stale(check)
        if names:
            line = f"{check}: not what the models say: {', '.join(names)}; run qualgate schema --out {check}"
            _finish(ExitCode.EVIDENCE_BROKEN, line)
        _print(f"{check}: {len(KINDS)} schemas, all as the models say")
    elif out is not None:
        if not out.is_dir():
            raise UsageError("no such folder", where=str(out))
        for name in export(out):
            _print(f"written: {out / name}")
    elif kind is not None:
        known = {item.schema_file.removesuffix(".schema.json"): item for item in KINDS}
        if kind not in known:
            raise UsageError(f"found {kind!r}, expected one of {', '.join(known)}")
        _print_json(schema_of(known[kind]))
    else:
        for item in KINDS:
            print(item.schema_file.removesuffix(".schema.json"))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do, which records apply, and what to do about the rest."""
    from dataclasses import asdict

    from orchestrator.doctor import examine
    from orchestrator.render import fact_table

    facts = examine()
    if as_json:
        _print_json([asdict(fact) for fact in facts])
    else:
        _print(fact_table("this machine", [(f.what, f.found, f.remedy) for f in facts]))


def _choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option}: found {value!r}, expected {' or '.join(allowed)}")


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
    # A cancelled CI job sends SIGTERM; while a fixture runs, `process` handles it and ends the fixture first.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(ExitCode.USAGE, error.format_message())
    except QualgateError as error:
        code = _complain(error.exit_code, str(error))
    except (KeyboardInterrupt, typer.Abort):
        code = _complain(ExitCode.INTERRUPTED, "interrupted; nothing was left running")
    except BrokenPipeError:
        # The reader of our stdout is gone (`qualgate ... | head`): nothing more can be said to it.
        sys.stdout = None
        code = ExitCode.USAGE
    sys.exit(int(code or 0))


def _interrupt(number: int, _: object) -> NoReturn:
    raise Interrupted(f"interrupted by {signal.Signals(number).name}; nothing was left running")


def _complain(code: ExitCode, line: str) -> ExitCode:
    """Print the one line that every non-zero exit ends with."""
    print(f"qualgate: {' '.join(line.split())}", file=sys.stderr)
    return code
