"""Options that several commands share, and what they mean: a case, its settings, how it is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.environment import NumericSettings
    from orchestrator.models import Case
    from orchestrator.runner import RunOptions

CaseOption = Annotated[str, typer.Option("--case", help="digits, mnist-DRAW or synthetic-N-M.")]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A configuration file instead of the case's own.")
]
NumericsOption = Annotated[
    str, typer.Option("--numerics", help="portable: every machine's bits; native: fast, this platform's.")
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
TrialsOption = Annotated[int, typer.Option("--trials", help="With --energy: trials; more narrow the spread.")]
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
    typer.Option(
        "--records", help="Folders of frozen records, before the package's.", show_default="qualification"
    ),
]

RUNS_DIR = Path("qualgate-runs")
RECORDS_DIR = Path("qualification")
# One frozen record for every machine: what a newcomer's first gate needs.
DEFAULT_NUMERICS = "portable"


def records_folders(given: list[Path] | None) -> list[Path]:
    """The folders of frozen records to read: those given, or where `freeze` writes to, if that is there."""
    if given:
        return given
    return [RECORDS_DIR] if RECORDS_DIR.is_dir() else []


def case_of(name: str, config: Path | None, numerics: str) -> Case:
    """The named case, with that configuration and numerics.

    Raises:
        UsageError: for an unknown name or numerics.
        InputError: for a configuration that cannot be read.
    """
    from orchestrator.cases import named_case, with_config

    check_choice("--numerics", numerics, ("native", "portable"))
    case = named_case(name).model_copy(update={"numerics": numerics})
    return case if config is None else with_config(case, config)


def settings_of(
    device: str,
    workspace: str,
    threads: int | None,
    vector: str | None,
    onednn_isa: str | None,
    mkl_cbwr: str | None,
) -> NumericSettings:
    """The device's default settings, but for those that are given.

    Raises:
        UsageError: for a setting that the device or machine does not know.
    """
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


def run_options(
    *,
    repeats: int,
    timeout: float,
    idx_dir: Path | None,
    python: str,
    pass_env: list[str] | None,
    echo: bool,
    **more: Any,
) -> RunOptions:
    """How to run, checked. `more` are further fields of `RunOptions`.

    Raises:
        UsageError: for options that do not go together.
    """
    from orchestrator.runner import RunOptions

    options = RunOptions(
        repeats=repeats,
        timeout_s=timeout,
        idx_dir=idx_dir,
        python=python,
        pass_through=tuple(pass_env or ()),
        echo=_echo if echo else None,
        progress=download_progress,
        **more,
    )
    options.check()
    return options


def _echo(_: str, data: bytes) -> None:
    """The fixture's output goes to our stderr: stdout is for the verdict."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def download_progress(received: int, total: int | None) -> None:
    """One line that overwrites itself, for a person at a terminal."""
    if sys.stderr.isatty():
        whole = "" if total is None else f" of {total / 2**20:.1f}"
        end = "\n" if received == total else ""
        print(f"\rdownloading MNIST: {received / 2**20:.1f}{whole} MiB", end=end, file=sys.stderr, flush=True)


def check_choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not allowed.

    Raises:
        UsageError: naming the option.
    """
    if value not in allowed:
        raise UsageError(f"{option}: found {value!r}, expected {' or '.join(allowed)}")
