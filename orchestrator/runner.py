"""From a case to a run record: one fresh process, everything that it left, checked and kept.

A run owns one folder, its evidence:

    input.npz  config.json  fixture/      what went in; `fixture/` is a snapshot of the sources
    stdout.txt  stderr.txt                every byte that the process printed; with .gz when large
    result.json  result.predictions.npy   what it returned
    result.trace  result.step.npz         with a trace, and with one step kept whole
    record.json                           the run record, written last

The fixture runs from the snapshot and not from the checkout: what is hashed is what ran, whatever an
editor or a checkout does meanwhile, and no stale bytecode can stand in for a changed source.

Whatever can be computed here is not taken from the fixture's word: input, archive, configuration, source
and predictions hashes, and the environment's digest. Query labels never reach the run folder.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from orchestrator import __version__, models, probe
from orchestrator.availability import Unavailable
from orchestrator.cases import config_text
from orchestrator.codec import (
    check_model,
    check_schema,
    encode,
    kind_of_model,
    parse_text,
    schema_validator,
)
from orchestrator.environment import (
    ChildEnvironment,
    NumericSettings,
    build_environment,
    switches_numerics,
    validate,
)
from orchestrator.errors import (
    EvidenceError,
    FixtureFailed,
    QualgateError,
    RunTimedOut,
    StorageError,
    UsageError,
)
from orchestrator.hashing import array_sha256, bytes_sha256, file_sha256
from orchestrator.ncu import error_cause, read_output
from orchestrator.process import ProcessOutcome, run_process
from orchestrator.store import compress_file, make_folder, write_atomically
from orchestrator.trace_file import load_trace
from orchestrator.verdict import Evidence, evidence_of_run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from orchestrator.datasets.dataset import Dataset, Inputs

DEFAULT_TIMEOUT_S = 600.0

_COMPRESS_ABOVE_BYTES = 4 << 20


@dataclass(frozen=True)
class RunOptions:
    """How a case is run; what is computed is the case's business.

    `mode`, `scope`, `repeats`, `energy` and `trials` (of an energy measurement) are the fixture's.
    `timeout_s` bounds the whole process. `python` is the interpreter that has torch. `echo` receives output
    as it comes: stream name, bytes. `progress` is told of a download's bytes so far, and in all where they
    are known. `trace` records every training step, and `keep_step` (epoch, step) keeps the tensors of one
    whole. `sources` is a folder with the fixture to run, instead of the installed one.
    """

    mode: models.Mode = "measure"
    scope: models.Scope = "task"
    repeats: int = 3
    energy: bool = False
    trials: int = 3
    timeout_s: float = DEFAULT_TIMEOUT_S
    python: str = sys.executable
    pass_through: tuple[str, ...] = ()
    idx_dir: Path | None = None
    cache_dir: Path | None = None
    echo: Callable[[str, bytes], None] | None = None
    progress: Callable[[int, int | None], None] | None = None
    trace: bool = False
    keep_step: tuple[int, int] | None = None
    sources: Path | None = None
    inherited: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def check(self) -> None:
        """Refuse wrong combinations before any work.

        Raises:
            UsageError: naming the options at fault.
        """
        if self.repeats < 1:
            raise UsageError(f"--repeats: found {self.repeats}, expected at least 1")
        if self.energy and (self.mode, self.scope) != ("measure", "task"):
            raise UsageError("--energy needs --mode measure and --scope task")
        if self.trials < 2:
            raise UsageError(f"--trials: found {self.trials}, expected at least 2: one shows no spread")
        if (self.mode, self.scope) == ("profile", "training") and self.repeats != 1:
            raise UsageError("--mode profile --scope training holds one training: --repeats must be 1")
        if self.keep_step is not None and not self.trace:
            raise UsageError("keeping a step needs a trace")
        if not self.timeout_s > 0:
            raise UsageError(f"--timeout: found {self.timeout_s:g}, expected seconds above 0")


class Profiler(Protocol):
    """A program that the fixture is started under, and what it found; without a command, why it was not."""

    @property
    def command(self) -> Sequence[str]:
        """What stands before the fixture's command line."""

    def findings(
        self, outcome: ProcessOutcome, result: models.FixtureResult | None
    ) -> models.NcuProfile | models.Unavailable:
        """What it left once it has ended; the streams' files are whole and not yet compressed."""


@dataclass(frozen=True)
class Run:
    """A finished run: its record, the folder that holds its evidence, and the record file's hash."""

    record: models.RunRecord
    folder: Path
    record_sha256: str

    @property
    def result(self) -> models.FixtureResult:
        """The fixture's result; a finished run has one."""
        assert self.record.result is not None  # noqa: S101  run_case raises when there is none
        return self.record.result

    @property
    def evidence(self) -> Evidence:
        """What a verdict compares, with the trace where one was recorded."""
        trace = load_trace(self.folder, self.result.trace)
        return evidence_of_run(self.record, self.folder.name, trace)

    @property
    def score(self) -> models.Score:
        """The orchestrator's count of correct queries; a finished run has one."""
        assert isinstance(self.record.score, models.Score)  # noqa: S101  as above
        return self.record.score


def load_dataset(source: models.DataSource, options: RunOptions) -> Dataset:
    """The data of a case.

    Raises:
        InputError: when a file is missing, cannot be downloaded, or is not what it should be.
    """
    match source:
        case models.DigitsSource():
            from orchestrator.datasets.digits import load_digits_split

            return load_digits_split(source.seed, source.train_count)
        case models.MnistSource():
            from orchestrator.datasets.download import default_cache_dir
            from orchestrator.datasets.mnist import load_mnist_draw

            cache = options.cache_dir or default_cache_dir()
            return load_mnist_draw(source.draw, options.idx_dir, cache, options.progress)
        case models.SyntheticSource():
            from orchestrator.datasets.synthetic import make_synthetic

            return make_synthetic(source.train_count, source.query_count, source.seed)


def load_inputs(source: models.DataSource, options: RunOptions) -> Inputs:
    """The data of a case without its query labels. Raises as `load_dataset`."""
    return load_dataset(source, options).inputs()


def load_query_labels(source: models.DataSource, options: RunOptions) -> npt.NDArray[np.int64]:
    """The query labels of a case, (M,) int64. Raises as `load_dataset`."""
    return load_dataset(source, options).query_labels


def new_run_folder(parent: Path, name: str) -> Path:
    """Make a folder of its own for a run, named by time and case.

    Raises:
        StorageError: when it cannot be made.
    """
    while True:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        folder = parent / f"{stamp}-{name}"
        try:
            make_folder(folder, fresh=True)
        except StorageError:
            # Another gate may have made it in this very microsecond: the next one is free.
            if not folder.is_dir():
                raise
        else:
            return folder.resolve()


def run_case(
    case: models.Case,
    settings: NumericSettings,
    options: RunOptions,
    folder: Path,
    dataset: Inputs | None = None,
    profiler: Profiler | None = None,
) -> Run:
    """Run a case in one fresh process and judge nothing.

    The run record is written whether the process succeeded or not; an error names the folder.
    `dataset` is the case's data where the caller has loaded it already; without query labels, the run is
    not scored. Under a profiler the process may
    run several times; the result is that of the last.

    Raises:
        UsageError: for options or settings that are refused before any work.
        FixtureFailed, RunTimedOut, StorageError: when the process left no result.
        EvidenceError: when what it left is not what it says.
        Interrupted: after the process and its group are gone.
    """
    options.check()
    validate(settings, platform.machine())
    under_profiler = profiler is not None and bool(profiler.command)
    environment = build_environment(
        settings,
        inherited=options.inherited,
        machine=platform.machine(),
        pass_through=options.pass_through,
        under_profiler=under_profiler,
    )
    dataset = dataset or load_dataset(case.data, options)
    prepared = _prepare(case, dataset, options.sources or fixture_folder(), folder)
    command = _command(case, settings, options, folder)
    if profiler is not None:
        command = [*profiler.command, *command]
    outcome = run_process(
        command,
        env=environment.variables,
        cwd=folder,
        stdout_path=folder / "stdout.txt",
        stderr_path=folder / "stderr.txt",
        timeout_s=options.timeout_s,
        echo=options.echo,
        meanwhile=_prepare_to_read,
    )
    failure: QualgateError | None = process_failure(outcome, options, folder, under_profiler)
    result: models.FixtureResult | None = None
    score: models.Score | models.Unavailable = models.Unavailable(
        unavailable="the run left no predictions", remedy=""
    )
    if failure is None:
        try:
            result = _read_result(folder)
            predictions = _check_result(result, prepared, environment, case, options, folder)
            score = _score(predictions, dataset)
        except EvidenceError as error:
            failure, result = error, None
    # Before the streams are compressed.
    ncu = None if profiler is None else profiler.findings(outcome, result)
    record = models.RunRecord(
        workspace=cast(models.Workspace, settings.workspace),
        action=options.mode,
        scope=options.scope,
        command=command,
        returncode=outcome.returncode,
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        capabilities=_capabilities(),
        finished_at_utc=outcome.finished_at_utc,
        input_sha256=prepared.input_hashes,
        result=result,
        kind="run",
        schema_version=2,
        qualgate_version=__version__,
        case=case,
        settings=models.NumericSettings.model_validate(asdict(settings)),
        environment=models.ChildEnvironment(variables=environment.variables, sha256=environment.sha256),
        started_at_utc=outcome.started_at_utc,
        duration_s=outcome.duration_s,
        timed_out=outcome.timed_out,
        streams=_streams(outcome),
        artefact_sha256=_artefacts(folder),
        score=score,
        ncu=ncu,
        failure=None if failure is None else str(failure),
    )
    data = encode(record)
    write_atomically(folder / "record.json", data)
    if failure is not None:
        raise failure
    return Run(record, folder, bytes_sha256(data))


# --- what goes in ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prepared:
    input_hashes: models.InputHashes
    archive_sha256: str
    config_sha256: str
    sources: dict[str, str]


def _prepare(case: models.Case, dataset: Inputs, fixture: Path, folder: Path) -> _Prepared:
    from orchestrator.datasets.dataset import write_archive

    write_archive(dataset, folder / "input.npz")
    write_atomically(folder / "config.json", config_text(case.config))
    sources = snapshot_sources(fixture, folder / "fixture")
    return _Prepared(
        input_hashes=input_hashes(dataset),
        archive_sha256=file_sha256(folder / "input.npz"),
        config_sha256=bytes_sha256(config_text(case.config)),
        sources=sources,
    )


def input_hashes(dataset: Inputs) -> models.InputHashes:
    """Hashes of the three arrays that go into the archive."""
    return models.InputHashes(
        train_images=array_sha256(dataset.train_images),
        train_labels=array_sha256(dataset.train_labels),
        test_images=array_sha256(dataset.test_images),
    )


def fixture_folder() -> Path:
    """The fixture's sources: a folder that is run, not a package that is imported."""
    found = find_spec("fixture.digests")
    if found is None or found.origin is None:
        raise UsageError("the fixture's sources are not installed beside the orchestrator")
    return Path(found.origin).parent


def snapshot_sources(source: Path, target: Path) -> dict[str, str]:
    """Copy the fixture's sources; returns their hashes by the names that records use."""
    hashes = {}
    for relative, name in _source_files(source):
        data = (source / relative).read_bytes()
        make_folder((target / relative).parent)
        write_atomically(target / relative, data)
        hashes[name] = bytes_sha256(data)
    return hashes


def source_hashes(sources: Path | None = None) -> dict[str, str]:
    """Hashes of the fixture's sources, the installed ones or a folder's, by the names that records use."""
    source = sources or fixture_folder()
    return {name: file_sha256(source / relative) for relative, name in _source_files(source)}


def _source_files(source: Path) -> list[tuple[Path, str]]:
    names = {"__main__.py": "fixture.py"}
    found = sorted(path.relative_to(source) for path in source.rglob("*.py"))
    return [(path, names.get(path.as_posix(), path.as_posix())) for path in found]


def _command(case: models.Case, settings: NumericSettings, options: RunOptions, folder: Path) -> list[str]:
    command = [
        # -I: no PYTHON* variables, no user site, no current folder. -B: leave no bytecode in evidence.
        options.python, "-I", "-B", str(folder / "fixture"),
        "--input", str(folder / "input.npz"),
        "--config", str(folder / "config.json"),
        "--output", str(folder / "result.json"),
        "--mode", options.mode,
        "--scope", options.scope,
        "--repeats", str(options.repeats),
        "--device", settings.device,
        "--numerics", case.numerics,
    ]  # fmt: skip
    if options.energy:
        command += ["--energy", "--trials", str(options.trials)]
    if options.trace:
        command.append("--trace")
    if options.keep_step is not None:
        command += ["--keep-step", "{}:{}".format(*options.keep_step)]
    return command


# --- what comes out -------------------------------------------------------------------------------


def process_failure(
    outcome: ProcessOutcome, options: RunOptions, folder: Path, under_profiler: bool = False
) -> QualgateError | None:
    """Why the fixture left no `result.json` in its folder; None when it did."""
    if outcome.timed_out:
        return RunTimedOut(
            f"the fixture ran longer than {options.timeout_s:g} s and was killed with its group",
            where=str(folder),
            remedy="raise --timeout, or read stderr.txt there",
        )
    if outcome.returncode < 0:
        number = -outcome.returncode
        return FixtureFailed(
            f"the fixture was killed by {_signal_name(number)}",
            where=str(folder),
            remedy="look for the out-of-memory killer or an operator; stderr.txt is there",
        )
    has_result = (folder / "result.json").is_file()
    # A profiler that fails after the fixture is a fault of its findings, not of the run.
    if outcome.returncode != 0 and not (under_profiler and has_result):
        lines = outcome.stderr.text.strip().splitlines()
        cause = lines[-1] if lines else "it printed no error"
        said = read_output([*lines, *outcome.stdout.text.splitlines()]) if under_profiler else None
        if said is not None and (error := error_cause(said)) is not None:
            return FixtureFailed(
                f"no result of the fixture; {error.unavailable}", where=str(folder), remedy=error.remedy
            )
        return FixtureFailed(
            f"the fixture ended with exit code {outcome.returncode}: {cause}",
            where=str(folder),
            remedy=_remedy_for(cause),
        )
    if not has_result:
        return FixtureFailed("the fixture ended without an error and left no result", where=str(folder))
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _remedy_for(cause: str) -> str:
    if "No module named" in cause:
        return "install qualgate[fixture] for this interpreter, or name another one with --python"
    if "No space left" in cause:
        return "free space on the disk that holds the run folder"
    return "stderr.txt there holds the whole error"


def _prepare_to_read() -> None:
    """Load what the end of a run takes, while the fixture still imports torch on another core."""
    _driver()
    for model in (models.FixtureResult, models.RunRecord):
        schema_validator(kind_of_model(model))
        model.model_rebuild()


def _read_result(folder: Path) -> models.FixtureResult:
    path = folder / "result.json"
    value = parse_text(path.read_bytes(), str(path))
    kind = kind_of_model(models.FixtureResult)
    # The model first: it puts the keys into the order of the schema, and is the one that must hold.
    result = check_model(value, models.FixtureResult, str(path))
    check_schema(value, kind, str(path))
    return result


def _check_result(
    result: models.FixtureResult,
    prepared: _Prepared,
    environment: ChildEnvironment,
    case: models.Case,
    options: RunOptions,
    folder: Path,
) -> npt.NDArray[np.int64]:
    """Compare every claim that can be recomputed here; returns the predictions, (M,) int64."""
    predictions_path = folder / result.predictions_file
    predictions_sha256 = file_sha256(predictions_path) if predictions_path.is_file() else "missing"
    claims: list[tuple[str, Any, Any]] = [
        ("metadata.input_hashes", result.metadata.input_hashes, prepared.input_hashes),
        (
            "before_metadata.input_hashes",
            result.before_metadata.input_hashes,
            prepared.input_hashes,
        ),
        ("input_archive_sha256", result.input_archive_sha256, prepared.archive_sha256),
        ("config_file_sha256", result.config_file_sha256, prepared.config_sha256),
        ("source_sha256", result.source_sha256, prepared.sources),
        ("predictions_file_sha256", result.predictions_file_sha256, predictions_sha256),
        ("environment.sha256", result.environment.sha256, environment.sha256),
        ("environment_was_set_externally", result.environment_was_set_externally, True),
        ("config", result.config, case.config),
        ("mode", result.mode, options.mode),
        ("requested_scope", result.requested_scope, options.scope),
        ("numerics.name", result.numerics.name, case.numerics),
    ]
    for name, claimed, computed in claims:
        if claimed != computed:
            raise EvidenceError(
                f"at $.{name}: the fixture says {_short(claimed)}, the orchestrator finds {_short(computed)}",
                where=str(folder / "result.json"),
            )
    added = [name for name in result.environment.added_variables if switches_numerics(name)]
    if added:
        raise EvidenceError(
            f"at $.environment.added_variables: the profiler set {', '.join(added)}, which can move bits",
            where=str(folder / "result.json"),
        )
    if (result.trace is not None) != options.trace:
        raise EvidenceError("at $.trace: not what was asked for", where=str(folder / "result.json"))
    load_trace(folder, result.trace)
    return read_predictions(predictions_path, result)


def read_predictions(path: Path, result: models.FixtureResult) -> npt.NDArray[np.int64]:
    """The predicted classes of a run, (M,) int64.

    Raises:
        EvidenceError: when the file is not what the result says.
    """
    import numpy as np

    try:
        predictions = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise EvidenceError(f"not an array in NPY format: {error}", where=str(path)) from error
    expected = (result.metadata.test_count,)
    if predictions.dtype != np.int64 or predictions.shape != expected:
        raise EvidenceError(
            f"found {predictions.dtype}{predictions.shape}, expected int64{expected}",
            where=str(path),
        )
    if array_sha256(predictions) != result.metadata.predictions_sha256:
        raise EvidenceError("the array is not the one whose hash the result holds", where=str(path))
    return cast("npt.NDArray[np.int64]", predictions)


def _score(predictions: npt.NDArray[np.int64], dataset: Inputs) -> models.Score | models.Unavailable:
    from orchestrator.datasets.dataset import Dataset

    labels = dataset.query_labels if isinstance(dataset, Dataset) else None
    return models.labels_closed() if labels is None else count_correct(predictions, labels)


def count_correct(predictions: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> models.Score:
    """How many predicted classes are the labels: both int64 (M,)."""
    return models.Score(correct=int((predictions == labels).sum()), total=len(labels))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- the record -----------------------------------------------------------------------------------


def _streams(outcome: ProcessOutcome) -> models.Streams:
    def stream(captured: Any) -> models.Stream:
        path = captured.path
        if captured.size_bytes > _COMPRESS_ABOVE_BYTES:
            path = compress_file(path)
        return models.Stream(
            file=path.name,
            size_bytes=captured.size_bytes,
            sha256=captured.sha256,
            text_is_complete=captured.text_is_complete,
        )

    return models.Streams(stdout=stream(outcome.stdout), stderr=stream(outcome.stderr))


def _artefacts(folder: Path) -> dict[str, str]:
    """Every file of the run folder with its hash; the record itself comes last and names them."""
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "record.json"
    }


def _capabilities() -> models.Capabilities:
    ncu = probe.find_ncu(os.environ.get("PATH", ""))
    version = ncu if isinstance(ncu, Unavailable) else probe.ncu_version(ncu)
    cpu = probe.cpu_facts()
    return models.Capabilities(
        ncu_version=_value(version),
        nvidia_driver=_value(_driver()),
        cpu=models.CpuCapabilities(
            architecture=cpu.architecture,
            vendor=cpu.vendor,
            model_name=cpu.model_name,
            vector_units=list(cpu.vector_units),
            logical_cpus=cpu.logical_cpus,
            affinity_cpus=cpu.affinity_cpus,
        ),
    )


@cache
def _driver() -> str | Unavailable:
    return probe.nvidia_driver()


def _value(found: str | Unavailable) -> str | models.Unavailable:
    if isinstance(found, Unavailable):
        return models.Unavailable(unavailable=found.reason, remedy=found.remedy)
    return found
