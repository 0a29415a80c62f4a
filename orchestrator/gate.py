"""The two acts on a case: judging it by a frozen record, and freezing one. Neither does the other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.environment import NumericSettings
from orchestrator.errors import UsageError
from orchestrator.models import Case, Level, QualificationRecord, Verdict
from orchestrator.qualification import (
    FrozenFile,
    Match,
    check_current,
    check_not_frozen,
    freeze,
    freeze_cases,
    frozen_cases,
    key_differences,
    load_folders,
    load_frozen,
    load_record,
    match_record,
    one_freezer,
    retired_records,
    shipped_records,
    write_frozen,
    write_trace,
)
from orchestrator.runner import Run, RunOptions, new_run_folder, run_case
from orchestrator.signing import check_signature
from orchestrator.verdict import Evidence, judge

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey


@dataclass(frozen=True)
class GateOutcome:
    """The verdict with the run that it judges."""

    verdict: Verdict
    run: Run


def frozen_files(
    folders: Sequence[Path], record: Path | None, *, must_be_signed: bool = False
) -> list[FrozenFile]:
    """The frozen records to judge by: one named file, or those of the folders and of the package.

    Where they must be signed, the folders stand alone: the package's records are signed by nobody, so they
    join only where nothing else is named, to be refused.

    Raises:
        InputError, UsageError: when a file or folder cannot be read.
        EvidenceError: when a record is damaged.
    """
    if record is not None:
        return [load_record(record)]
    if folders and must_be_signed:
        return load_folders(folders)
    return load_folders([shipped_records(), *folders])


def check_signed(files: Sequence[FrozenFile], case: Case, key: SSlibKey) -> None:
    """Refuse records that hold a case and are not signed by this key.

    Raises:
        NoRecordError: when no record holds the case.
        EvidenceError: when one is not signed by this key.
    """
    for file, _ in frozen_cases(files, case):
        check_signature(file, key)


def gate_case(
    case: Case,
    settings: NumericSettings,
    options: RunOptions,
    files: Sequence[FrozenFile],
    runs_dir: Path,
) -> GateOutcome:
    """Run a case and judge it; on a difference run it once more and say of what kind it is.

    The run is traced where the options ask for it and a frozen record has a trace to compare with.

    Raises:
        NoRecordError: when no record holds the case, or none applies to this platform.
        RunError, EvidenceError, Interrupted: when a run gives nothing to judge.
    """
    candidates = frozen_cases(files, case)
    comparable = any(frozen.trace is not None for _, frozen in candidates)
    options = replace(options, trace=options.trace and comparable)
    run = run_case(case, settings, options, new_run_folder(runs_dir, case.name))
    found = run.evidence
    match = match_record(candidates, found, retired_records(files, case))
    notes = _notes(match, candidates, found)
    expected = match.evidence
    verdict = judge(expected, found, match.level, notes=notes)
    if not verdict.qualified:
        again = run_case(case, settings, options, new_run_folder(runs_dir, f"{case.name}-again"))
        verdict = judge(expected, found, match.level, repetition=again.evidence, notes=notes)
    return GateOutcome(verdict, run)


def _notes(match: Match, candidates: Sequence[tuple[FrozenFile, object]], found: Evidence) -> tuple[str, ...]:
    notes = []
    if match.level == "predictions":
        differing = key_differences(match.file.record.platform_key, found.key or {})
        reason = f"another platform ({differing})" if differing else "its record allows no more"
        notes.append(f"level predictions is asked: {reason}")
    unused = [frozen.case.name for frozen in match.file.record.cases if frozen is not match.case]
    if unused:
        notes.append(f"frozen in this record and not run: {', '.join(unused)}")
    return tuple(notes)


def freeze_case(
    case: Case,
    settings: NumericSettings,
    options: RunOptions,
    *,
    reason: str,
    levels: list[Level],
    folder: Path,
    supersedes: Path | None,
    runs: int,
    runs_dir: Path,
    say: Callable[[str], object],
    signer: CryptoSigner | None = None,
) -> tuple[Path, QualificationRecord]:
    """Run a case in fresh processes, freeze its bits when they agree, and sign them if there is a signer.

    `say` gets what a person should know and no report holds, a line at a time.

    Raises:
        UsageError: for too few runs, no reason, a record that is there already, a predecessor that has a
            successor, or another process that freezes into the folder.
        EvidenceError: when the runs do not agree.
        RunError, Interrupted: when a run fails.
    """
    if runs < 2:
        raise UsageError(f"--runs: found {runs}, expected at least 2 fresh processes")
    if not reason.strip():
        raise UsageError("--reason: found nothing, expected why these bits are the right ones")
    old = None if supersedes is None else load_frozen(supersedes)
    with one_freezer(folder, say):
        present = load_folders([folder])
        if old is not None:
            check_current(old, load_folders(dict.fromkeys([old.path.parent, folder])))
        done = [
            run_case(case, settings, options, new_run_folder(runs_dir, f"{case.name}-freeze-{index}"))
            for index in range(runs)
        ]
        record = freeze(done, reason=reason, levels=levels, supersedes=old)
        check_not_frozen(present, case, record.platform_key, old)
        write_trace(record.cases[0], done[0], folder)
        return write_frozen(record, folder, signer), record


def supersede_record(
    old: FrozenFile,
    options: RunOptions,
    *,
    reason: str,
    folder: Path,
    runs: int,
    runs_dir: Path,
    say: Callable[[str], object],
    signer: CryptoSigner | None = None,
) -> tuple[Path, QualificationRecord]:
    """Run every case of a frozen record again, under its own settings, and freeze what comes in its place.

    A case is traced where the old record's is, or where the options ask for it.

    Raises:
        UsageError: for too few runs, no reason, nothing that changed, a platform that another record of the
            folder holds, or another process that freezes into the folder.
        EvidenceError: when the runs do not agree.
        RunError, Interrupted: when a run fails.
    """
    if runs < 2:
        raise UsageError(f"--runs: found {runs}, expected at least 2 fresh processes")
    if not reason.strip():
        raise UsageError("--reason: found nothing, expected why the new bits are the right ones")
    with one_freezer(folder, say):
        present = load_folders([folder])
        check_current(old, load_folders(dict.fromkeys([old.path.parent, folder])))
        done = []
        for frozen in old.record.cases:
            say(f"running {frozen.case.name} {runs} times")
            settings = NumericSettings(**frozen.settings.model_dump())
            how = replace(options, trace=options.trace or frozen.trace is not None)
            name = f"{frozen.case.name}-supersede"
            done.append(
                [
                    run_case(frozen.case, settings, how, new_run_folder(runs_dir, f"{name}-{index}"))
                    for index in range(runs)
                ]
            )
        new = freeze_cases(
            done,
            name=_bare_name(old.record),
            reason=reason,
            levels=list(old.record.levels),
            supersedes=old,
        )
        if _says_the_same(old.record, new):
            raise UsageError(
                "nothing changed: bits, sources, software and platform are those of the record",
                where=str(old.path),
            )
        for frozen in new.cases:
            check_not_frozen(present, frozen.case, new.platform_key, old)
        if moved := key_differences(old.record.platform_key, new.platform_key):
            say(f"another platform than the old record's ({moved}): on that one, no record judges now")
        for frozen, case_runs in zip(new.cases, done, strict=True):
            write_trace(frozen, case_runs[0], folder)
        return write_frozen(new, folder, signer), new


def _bare_name(record: QualificationRecord) -> str:
    """The name of a record without what its numerics and device add to it."""
    added = f"-{record.numerics.name}"
    if record.numerics.name != "portable":
        added += f"-{record.platform.device}"
    return record.name.removesuffix(added)


def _says_the_same(old: QualificationRecord, new: QualificationRecord) -> bool:
    facts = ("source_sha256", "software", "platform")
    if any(getattr(old, name) != getattr(new, name) for name in facts):
        return False
    return all(
        (before.hashes, before.arrays, before.trace) == (after.hashes, after.arrays, after.trace)
        for before, after in zip(old.cases, new.cases, strict=True)
    )
