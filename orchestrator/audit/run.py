"""A run record as a whole: outcome, times, case, streams, and the hashes that it says twice. Pure."""

from __future__ import annotations

from datetime import datetime

from orchestrator.audit.findings import Findings, fields
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import canonical_text, member
from orchestrator.models import (
    DigitsSource,
    FixtureResult,
    FrozenCase,
    MetadataV1,
    MnistSource,
    NcuProfile,
    RunRecord,
    RunRecordV1,
    Score,
    Stream,
    SyntheticSource,
    Unavailable,
    labels_closed,
)

DIGITS_COUNT = 1797
MNIST_DRAW_COUNT = 10_000

CLOCK_STEP_S = 5
"""The wall clock may be set while a run lasts; its duration comes from a clock that nobody sets."""

ENTRY = "fixture/__main__.py"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def audit_outcome(record: RunRecordV1 | RunRecord, path: str, found: Findings) -> None:
    """A result comes from a process that ended well, and a failure says what it was."""
    if record.result is not None:
        if not _profiler_failed(record):
            found.equal("run.returncode", f"{path}.returncode", record.returncode, 0)
        found.equal(
            "run.input-hashes",
            f"{path}.input_sha256",
            record.input_sha256,
            record.result.metadata.input_hashes,
        )
    _audit_times(record, path, found)
    if not isinstance(record, RunRecord):
        return
    finished = record.result is not None
    found.equal("run.failure", f"{path}.failure", record.failure is None, finished)
    found.equal("run.timed-out", f"{path}.timed_out", record.timed_out and finished, False)
    scored = isinstance(record.score, Score) or record.score == labels_closed()
    found.equal("run.score", f"{path}.score", scored, finished)
    if record.result is not None:
        _audit_case(record, record.result, path, found)
    _audit_streams(record, path, found)
    _audit_artefact_names(record, path, found)


def _profiler_failed(record: RunRecordV1 | RunRecord) -> bool:
    """Whether the exit code is that of a profiler that failed around a fixture that did not."""
    ncu = record.ncu if isinstance(record, RunRecord) else None
    return isinstance(ncu, NcuProfile) and isinstance(ncu.counters, Unavailable)


def _audit_times(record: RunRecordV1 | RunRecord, path: str, found: Findings) -> None:
    finished = datetime.fromisoformat(record.finished_at_utc)
    completed = None
    if record.result is not None:
        completed = datetime.fromisoformat(record.result.completed_at_utc)
        found.require(
            "run.times",
            f"{path}.result.completed_at_utc",
            completed <= finished,
            completed.isoformat(),
            f"at most the end of the process, {finished.isoformat()}",
        )
    if isinstance(record, RunRecord):
        started = datetime.fromisoformat(record.started_at_utc)
        found.require(
            "run.times",
            f"{path}.started_at_utc",
            started <= (completed or finished),
            started.isoformat(),
            f"at most {(completed or finished).isoformat()}",
        )
        lasted_s = (finished - started).total_seconds()
        found.require(
            "run.duration",
            f"{path}.duration_s",
            abs(lasted_s - record.duration_s) <= CLOCK_STEP_S,
            record.duration_s,
            f"{lasted_s} between start and finish, give or take {CLOCK_STEP_S} s",
        )


def _audit_case(record: RunRecord, result: FixtureResult, path: str, found: Findings) -> None:
    found.same_fields(
        "run.config", f"{path}.result.config", result.config.model_dump(), record.case.config.model_dump()
    )
    found.equal("run.numerics", f"{path}.result.numerics.name", result.numerics.name, record.case.numerics)
    found.equal("run.device", f"{path}.result.device", result.device, record.settings.device)
    audit_counts(record.case.data, result.metadata, f"{path}.result.metadata", found)
    audit_score(record.score, result.metadata.test_count, f"{path}.score", found)


def audit_counts(
    data: DigitsSource | MnistSource | SyntheticSource,
    counted: MetadataV1 | FrozenCase,
    path: str,
    found: Findings,
) -> None:
    """How many examples the data source has."""
    match data:
        case DigitsSource(train_count=train):
            wanted = {"train_count": train, "test_count": DIGITS_COUNT - train}
        case MnistSource():
            wanted = {"train_count": MNIST_DRAW_COUNT, "test_count": MNIST_DRAW_COUNT}
        case SyntheticSource(train_count=train, query_count=queries):
            wanted = {"train_count": train, "test_count": queries}
    found.same_fields("run.counts", path, fields(counted, *wanted), wanted)


def audit_score(score: object, test_count: int, path: str, found: Findings) -> None:
    """A count of correct queries is of all queries."""
    if isinstance(score, Score):
        found.equal("run.score-total", f"{path}.total", score.total, test_count)
        found.at_most("run.score-correct", f"{path}.correct", score.correct, score.total, "the total")


def _audit_streams(record: RunRecord, path: str, found: Findings) -> None:
    for name in ("stdout", "stderr"):
        stream: Stream = getattr(record.streams, name)
        text: str = getattr(record, name)
        place = f"{path}.streams.{name}"
        if stream.text_is_complete and _REPLACEMENT not in text:  # which stands for bytes that are not UTF-8
            data = text.encode()
            found.equal("run.stream-size", f"{place}.size_bytes", stream.size_bytes, len(data))
            found.equal("run.stream-hash", f"{place}.sha256", stream.sha256, bytes_sha256(data))


def _audit_artefact_names(record: RunRecord, path: str, found: Findings) -> None:
    """Hashes that the record says twice: once beside a result, once in the list of its folder's files."""
    place = f"{path}.artefact_sha256"
    streams = (record.streams.stdout, record.streams.stderr)
    wanted = {
        # The digest of a compressed stream is that of its bytes, not of its file.
        **{stream.file: stream.sha256 for stream in streams if not stream.file.endswith(".gz")},
        "config.json": bytes_sha256(canonical_text(record.case.config.model_dump())),
    }
    result = record.result
    if result is not None:
        wanted |= {
            "input.npz": result.input_archive_sha256,
            result.predictions_file: result.predictions_file_sha256,
            **{source_file(name): digest for name, digest in result.source_sha256.items()},
        }
        if result.trace is not None:
            wanted[result.trace.file] = result.trace.file_sha256
            if result.trace.kept_step is not None:
                wanted[result.trace.kept_step.file] = result.trace.kept_step.file_sha256
        sources = {name for name in record.artefact_sha256 if name.startswith("fixture/")}
        known = {source_file(name) for name in result.source_sha256}
        found.equal("run.sources", place, sorted(sources - known), [])
        found.require(
            "run.artefact-hash", place, "result.json" in record.artefact_sha256, "nothing", "result.json"
        )
    for name, digest in wanted.items():
        held = record.artefact_sha256.get(name, "nothing")
        found.equal("run.artefact-hash", member(place, name), held, digest)


def source_file(name: str) -> str:
    """Where a source lies in a run folder; records know the entry by the seed's name for it."""
    return ENTRY if name == "fixture.py" else f"fixture/{name}"
