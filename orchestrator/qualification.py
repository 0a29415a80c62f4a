"""Frozen qualification records: made, found and superseded; never overwritten.

Freezing and passing are two acts: nothing here changes a record that exists, and `gate` writes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.cases import same_computation
from orchestrator.codec import content_sha256, encode, load_as
from orchestrator.errors import EvidenceError, NoRecordError, UsageError
from orchestrator.fingerprint import changes, key_text, platform_key
from orchestrator.hashing import file_sha256
from orchestrator.locking import exclusive
from orchestrator.models import (
    Case,
    FixtureResult,
    FreezingRun,
    FrozenCase,
    FrozenTrace,
    Hashes,
    Level,
    QualificationRecord,
    Retirement,
    Supersedes,
)
from orchestrator.signing import write_signature
from orchestrator.store import make_folder, write_atomically
from orchestrator.trace import first_divergence, place_text
from orchestrator.trace_file import load_trace
from orchestrator.verdict import (
    COMPUTATION_ORDER,
    Evidence,
    compare_groups,
    evidence_of_frozen,
)

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from orchestrator.runner import Run

RETIRED = ".retired.json"
"""How the file name of a retirement ends; it begins with the record's."""

_NO_HASH = "0" * 64


@dataclass(frozen=True)
class FrozenFile:
    """A frozen record with the file that it came from, that file's hash, and its retirement if it has one."""

    record: QualificationRecord
    path: Path
    sha256: str
    retirement: Retirement | None = None


@dataclass(frozen=True)
class Match:
    """The frozen case to judge by, and the level that its record lets us ask on this platform."""

    file: FrozenFile
    case: FrozenCase
    level: Level

    @property
    def evidence(self) -> Evidence:
        """The frozen side of the comparison."""
        path = self.file.path
        trace = load_trace(path.parent, self.case.trace)
        return evidence_of_frozen(self.file.record, self.case, path.name, trace)


# --- reading --------------------------------------------------------------------------------------


def load_frozen(path: Path) -> FrozenFile:
    """Read one frozen record and check that it still is what was frozen.

    Raises:
        InputError: when the file cannot be read.
        EvidenceError: when it is damaged.
    """
    record = load_as(path, QualificationRecord)
    _check_content(record, path)
    return FrozenFile(record, path, file_sha256(path))


def load_record(path: Path) -> FrozenFile:
    """Read one frozen record with the retirement that stands beside it, if there is one.

    Raises:
        InputError: when a file cannot be read.
        EvidenceError: when the record or a retirement is damaged, or the retirement is of another content.
    """
    file = load_frozen(path)
    for beside in sorted(path.parent.glob(f"*{RETIRED}")):
        retirement = _load_retirement(beside)
        if retirement.file == path.name:
            file = _retired(file, retirement, beside)
    return file


def _check_content(record: QualificationRecord | Retirement, path: Path) -> None:
    found = content_sha256(record)
    if found != record.content_sha256:
        raise EvidenceError(
            f"at $.content_sha256: found {record.content_sha256}, expected {found}: the record was "
            "changed after it was frozen",
            where=str(path),
            remedy="restore the file; a record is superseded, never edited",
        )


def shipped_records() -> Path:
    """The folder of the records that ship with the package."""
    return Path(str(resources.files("orchestrator.records")))


def load_history(folders: Iterable[Path]) -> list[FrozenFile]:
    """Every record of some folders, superseded and retired ones too; later folders come first.

    Raises:
        UsageError: when a folder does not exist.
        EvidenceError: when a record is damaged, or a retirement is of no record there: neither is skipped.
    """
    files: list[FrozenFile] = []
    for folder in folders:
        if not folder.is_dir():
            raise UsageError("no such folder", where=str(folder), remedy="freeze a record there first")
        files = _load_folder(folder) + files
    # A copy of a retired record in another folder is that record.
    retired = {file.sha256: file.retirement for file in files if file.retirement is not None}
    return [replace(file, retirement=retired.get(file.sha256)) for file in files]


def _load_folder(folder: Path) -> list[FrozenFile]:
    paths = sorted(folder.glob("*.json"))
    retired = {path: _load_retirement(path) for path in paths if path.name.endswith(RETIRED)}
    files = {path.name: load_frozen(path) for path in paths if path not in retired}
    for path, retirement in retired.items():
        files[retirement.file] = _retired(files.get(retirement.file), retirement, path)
    return list(files.values())


def _retired(file: FrozenFile | None, retirement: Retirement, path: Path) -> FrozenFile:
    found = "no such file" if file is None else file.sha256
    if file is None or found != retirement.file_sha256:
        raise EvidenceError(
            f"at $.file_sha256: retires {retirement.file} with SHA-256 {retirement.file_sha256}, "
            f"found {found}",
            where=str(path),
            remedy="restore the record that was retired",
        )
    return replace(file, retirement=retirement)


def _load_retirement(path: Path) -> Retirement:
    retirement = load_as(path, Retirement)
    _check_content(retirement, path)
    return retirement


def load_folders(folders: Iterable[Path]) -> list[FrozenFile]:
    """Every record of some folders that no other of them supersedes; later folders come first.

    Retired records are among them, with their retirement: they hold no case for anyone, and say why.
    Raises as `load_history`.
    """
    files = load_history(folders)
    superseded = {file.record.supersedes.file_sha256 for file in files if file.record.supersedes is not None}
    return [file for file in files if file.sha256 not in superseded]


def frozen_cases(files: Sequence[FrozenFile], case: Case) -> list[tuple[FrozenFile, FrozenCase]]:
    """The frozen cases that compute what `case` computes, in records that are not retired.

    Raises:
        NoRecordError: when there is none; it names a retired one with the reason.
    """
    found = [
        (file, frozen)
        for file in files
        if file.retirement is None
        for frozen in file.record.cases
        if same_computation(frozen.case, case)
    ]
    if not found:
        for file in retired_records(files, case):
            raise _retired_error(file)
        raise NoRecordError(
            f"no frozen record holds case {case.name} with this data, configuration and numerics",
            remedy='freeze one: qualgate freeze --case NAME --reason "..."',
        )
    return found


def retired_records(files: Sequence[FrozenFile], case: Case) -> list[FrozenFile]:
    """The retired records that hold what `case` computes."""
    return [
        file
        for file in files
        if file.retirement is not None
        and any(same_computation(frozen.case, case) for frozen in file.record.cases)
    ]


def _retired_error(file: FrozenFile) -> NoRecordError:
    reason = "" if file.retirement is None else file.retirement.reason
    return NoRecordError(
        f"this record is retired: {reason}",
        where=str(file.path),
        remedy='freeze another: qualgate freeze --case NAME --reason "..."',
    )


def match_record(
    candidates: Sequence[tuple[FrozenFile, FrozenCase]],
    found: Evidence,
    retired: Sequence[FrozenFile] = (),
) -> Match:
    """The frozen case that applies to what was found: this platform's, or one that allows `predictions`.

    Args:
        candidates: What `frozen_cases` found.
        found: The evidence to be judged.
        retired: Retired records of the case; this platform's is named where no candidate applies.

    Raises:
        NoRecordError: when no candidate applies to this platform.
        EvidenceError: when two records of one folder both claim this platform.
    """
    same = [item for item in candidates if item[0].record.platform_key == found.key]
    if same:
        first, case = same[0]
        for other, _ in same[1:]:
            if other.path.parent == first.path.parent:
                raise EvidenceError(
                    f"two records freeze this case for this platform: {first.path.name} and "
                    f"{other.path.name}",
                    where=str(first.path.parent),
                    remedy="let one supersede the other",
                )
        if "bitwise" in first.record.levels:
            return Match(first, case, "bitwise")
    for file, case in candidates:
        if "predictions" in file.record.levels:
            return Match(file, case, "predictions")
    for file in retired:
        if file.record.platform_key == found.key:
            raise _retired_error(file)
    raise NoRecordError(
        f"no frozen record is for this platform ({key_text(found.key or {})})",
        remedy='freeze one here: qualgate freeze --case NAME --reason "..."',
    )


def key_differences(frozen: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What makes this another platform than the frozen one, in one line; empty where it is the same."""
    differing = changes(frozen, found)
    return ", ".join(f"{item.what} {item.frozen} -> {item.found}" for item in differing)


# --- freezing -------------------------------------------------------------------------------------


@contextmanager
def one_freezer(folder: Path, say: Callable[[str], object]) -> Iterator[None]:
    """Hold a folder of frozen records, made where it is missing, for one process that adds to it.

    Two at once would not see each other's record, and both could freeze one case for one platform. Reading
    needs no such hold. `say` gets one line when a killed process has left its hold.

    Raises:
        UsageError: naming the other process and since when it is at it.
        StorageError: when the folder cannot be made or locked.
    """
    is_new = not folder.is_dir()
    make_folder(folder)
    try:
        with exclusive(folder / ".freeze.lock", say, lambda: datetime.now(UTC)):
            yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds a record, as it should
                folder.rmdir()


def require_agreement(runs: Sequence[Run]) -> None:
    """Refuse to freeze what fresh processes do not agree on, bit for bit.

    Raises:
        EvidenceError: naming the first field that differs, or too few runs.
    """
    if len(runs) < 2:
        raise UsageError(f"--runs: found {len(runs)}, expected at least 2 fresh processes")
    first = runs[0].evidence
    for run in runs:
        evidence = run.evidence
        if evidence.unstable_groups:
            raise EvidenceError(
                f"{evidence.unstable_groups[0]} moved between invocations of one process: "
                "not deterministic, not frozen",
                where=str(run.folder),
            )
        differences = [item for group in compare_groups(first, evidence) for item in group.differences]
        if differences:
            at = differences[0]
            raise EvidenceError(
                f"fresh processes disagree in {at.field}: {at.expected} and {at.found}; "
                "not deterministic, not frozen",
                where=str(run.folder),
            )
        if (parted := first_divergence(first.trace, evidence.trace)) is not None:
            raise EvidenceError(
                f"fresh processes disagree at {place_text(parted)}: not deterministic, not frozen",
                where=str(run.folder),
            )
        if evidence.key != first.key or evidence.sources != first.sources:
            raise EvidenceError(
                "the platform or the sources changed between the runs; not frozen",
                where=str(run.folder),
            )


def freeze(
    runs: Sequence[Run],
    *,
    reason: str,
    levels: list[Level],
    supersedes: FrozenFile | None = None,
    clock: datetime | None = None,
) -> QualificationRecord:
    """The frozen record of one case from runs that agree. Raises as `freeze_cases`."""
    name = runs[0].record.case.name if runs else ""
    return freeze_cases([runs], name=name, reason=reason, levels=levels, supersedes=supersedes, clock=clock)


def freeze_cases(
    cases: Sequence[Sequence[Run]],
    *,
    name: str,
    reason: str,
    levels: list[Level],
    supersedes: FrozenFile | None = None,
    clock: datetime | None = None,
) -> QualificationRecord:
    """The frozen record of some cases, each from runs that agree, all of one platform, stack and sources.

    Raises:
        UsageError: for an empty reason, or fewer than two runs of a case.
        EvidenceError: when the runs do not agree.
    """
    if not reason.strip():
        raise UsageError("--reason: found nothing, expected why these bits are the right ones")
    for runs in cases:
        require_agreement(runs)
    first = cases[0][0]
    for runs in cases:
        _require_one_stack(first, runs[0])
    result = first.result
    now = clock or datetime.now(UTC)
    draft = QualificationRecord(
        kind="qualification",
        schema_version=1,
        name=_record_name(name, result),
        frozen_at_utc=now.isoformat(timespec="microseconds"),
        reason=reason.strip(),
        supersedes=None
        if supersedes is None
        else Supersedes(file=supersedes.path.name, file_sha256=supersedes.sha256),
        qualgate_version=__version__,
        numerics=result.numerics,
        platform_key=platform_key(result.platform, result.numerics),
        platform=result.platform,
        software=result.software,
        source_sha256=result.source_sha256,
        levels=levels,
        cases=[_frozen_case(runs) for runs in cases],
        content_sha256=_NO_HASH,
    )
    return draft.model_copy(update={"content_sha256": content_sha256(draft)})


def _require_one_stack(first: Run, other: Run) -> None:
    """The record names one platform and one stack for all of its cases."""
    for what in ("platform", "software", "numerics", "source_sha256"):
        if getattr(first.result, what) != getattr(other.result, what):
            raise EvidenceError(
                f"the {what} is not that of {first.folder.name}; not frozen", where=str(other.folder)
            )


def _frozen_case(runs: Sequence[Run]) -> FrozenCase:
    result, record = runs[0].result, runs[0].record
    return FrozenCase(
        case=record.case,
        settings=record.settings,
        hashes=Hashes.model_validate({name: getattr(result.metadata, name) for name in COMPUTATION_ORDER}),
        arrays=result.metadata.arrays,
        config_file_sha256=result.config_file_sha256,
        predictions_file_sha256=result.predictions_file_sha256,
        train_count=result.metadata.train_count,
        test_count=result.metadata.test_count,
        score=record.score,
        trace=_frozen_trace(record.case.name, result),
        runs=[
            FreezingRun(finished_at_utc=r.record.finished_at_utc, record_sha256=r.record_sha256) for r in runs
        ],
    )


def _record_name(case: str, result: FixtureResult) -> str:
    name = f"{case}-{result.numerics.name}"
    return name if result.numerics.name == "portable" else f"{name}-{result.device}"


def _frozen_trace(case: str, result: FixtureResult) -> FrozenTrace | None:
    if result.trace is None:
        return None
    facts = result.trace.model_dump(exclude={"same_process_chain_heads_matched", "kept_step"})
    name = f"{_record_name(case, result)}-{result.trace.file_sha256[:12]}.trace"
    return FrozenTrace.model_validate({**facts, "file": name})


def write_trace(frozen: FrozenCase, run: Run, folder: Path) -> None:
    """Write a frozen case's trace beside its record-to-be, from the run that was frozen, if it has one.

    Raises:
        StorageError: when it cannot be written.
    """
    if frozen.trace is not None and run.result.trace is not None:
        make_folder(folder)
        # Its name tells its content: a trace that is there already is this one.
        write_atomically(folder / frozen.trace.file, (run.folder / run.result.trace.file).read_bytes())


def write_frozen(record: QualificationRecord, folder: Path, signer: CryptoSigner | None = None) -> Path:
    """Write a frozen record under a name that its content decides; an existing file is never replaced.

    With a signer, the record is signed: both files are left, or neither.

    Raises:
        UsageError: when that record exists already.
        StorageError: when it cannot be written.
    """
    path = folder / f"{record.name}-{record.content_sha256[:12]}.json"
    data = encode(record)
    make_folder(folder)
    # A kill between the two leaves a signature of nothing, which no command reads; never an unsigned record.
    signature = None if signer is None else write_signature(record, path, data, signer)
    try:
        write_atomically(path, data, overwrite=False)
    except BaseException:
        if signature is not None and not path.exists():
            signature.unlink()
        raise
    # Read it back through the same gate as everyone will.
    load_frozen(path)
    return path


def retire(file: FrozenFile, reason: str, clock: datetime | None = None) -> Path:
    """Write beside a frozen record that it judges nothing any more; the record is not touched.

    Raises:
        UsageError: for an empty reason, a record that is retired already, or a file that no gate finds.
        StorageError: when it cannot be written.
    """
    if not reason.strip():
        raise UsageError("--reason: found nothing, expected why the record is to be retired")
    if file.path.suffix != ".json":
        raise UsageError("expected a name ending in .json: no gate finds this file", where=str(file.path))
    draft = Retirement(
        kind="retirement",
        schema_version=1,
        file=file.path.name,
        file_sha256=file.sha256,
        retired_at_utc=(clock or datetime.now(UTC)).isoformat(timespec="microseconds"),
        reason=reason.strip(),
        qualgate_version=__version__,
        content_sha256=_NO_HASH,
    )
    retirement = draft.model_copy(update={"content_sha256": content_sha256(draft)})
    path = file.path.with_name(file.path.stem + RETIRED)
    write_atomically(path, encode(retirement), overwrite=False)
    return path


def check_current(file: FrozenFile, present: Sequence[FrozenFile]) -> None:
    """Refuse a second successor to a record, and one to a retired record.

    Raises:
        UsageError: when the record is superseded or retired.
    """
    current = next((other for other in present if other.sha256 == file.sha256), None)
    if current is None:
        raise UsageError("is superseded already", where=str(file.path), remedy="supersede its successor")
    if current.retirement is not None:
        raise UsageError("is retired", where=str(file.path), remedy="freeze a new record instead")


def check_not_frozen(
    files: Sequence[FrozenFile], case: Case, key: dict[str, str], supersedes: FrozenFile | None
) -> None:
    """Refuse to freeze beside a record that holds the same case for the same platform.

    Raises:
        UsageError: naming that record.
    """
    for file in files:
        is_replaced = supersedes is not None and file.sha256 == supersedes.sha256
        if is_replaced or file.retirement is not None:
            continue
        if file.record.platform_key == key and any(
            same_computation(frozen.case, case) for frozen in file.record.cases
        ):
            raise UsageError(
                f"{file.path.name} already freezes {case.name} for this platform",
                where=str(file.path.parent),
                remedy=f"supersede it: qualgate supersede {file.path}, or freeze --supersedes {file.path}",
            )
