"""The files of a run folder against its record: which there are, their hashes, and what is in them.

Edge: reads files, and only those in the run folder. Arrays are read without NumPy.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.audit.findings import Findings
from orchestrator.audit.npy import NotNpy, archive_hashes, npy_facts
from orchestrator.audit.trace_files import audit_trace_files
from orchestrator.codec import decode
from orchestrator.errors import InputError, QualgateError
from orchestrator.hashing import bytes_sha256, file_sha256
from orchestrator.json_text import canonical_text, member
from orchestrator.models import FixtureResult, RunRecord

RECORD = "record.json"


def has_artefacts(record: RunRecord, folder: Path) -> bool:
    """Whether any file that the record names lies beside it."""
    return any((folder / name).is_file() for name in record.artefact_sha256)


def audit_artefacts(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    """Every file named and every file there, then the contents that the record describes."""
    place = f"{path}.artefact_sha256"
    for name, digest in record.artefact_sha256.items():
        at = member(place, name)
        if (folder / name).is_file():
            found.rules.add("artefacts.present")
            found.equal("artefacts.hash", at, _hash(folder / name), digest)
        else:
            found.require("artefacts.present", at, False, "no such file", digest)
    for name in _files(folder):
        known = name in record.artefact_sha256 or name == RECORD
        found.require("artefacts.expected", member(place, name), known, "a file", "no such file")
    for audit in _CONTENTS:
        audit(record, folder, path, found)


def _files(folder: Path) -> Iterator[str]:
    for entry in sorted(folder.rglob("*")):
        if entry.is_symlink() or not entry.is_dir():
            yield entry.relative_to(folder).as_posix()


def _hash(file: Path) -> str:
    """A file's hash, or why there is none; a pipe or device in its place is not read."""
    try:
        return file_sha256(file) if file.is_file() else "no such file"
    except InputError as error:
        return error.what


def _read(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError("no such file")
    return file.read_bytes()


# --- contents -----------------------------------------------------------------------------------


def _audit_config(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    wanted = bytes_sha256(canonical_text(record.case.config.model_dump()))
    held = _hash(folder / "config.json")
    found.equal("artefacts.config", f"{path}.case.config", held, wanted)


def _audit_result(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    """The result in its own file is the one in the record."""
    if record.result is None:
        return
    try:
        data = _read(folder / "result.json")
        result = decode(data, "result.json")
    except (OSError, QualgateError) as error:
        found.require("artefacts.result", f"{path}.result", False, error, "the result in result.json")
        return
    held = result.model_dump() if isinstance(result, FixtureResult) else {}
    found.same_fields("artefacts.result", f"{path}.result", record.result.model_dump(), held)


def _audit_predictions(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    if record.result is None:
        return
    file = record.result.predictions_file
    found.equal(
        "artefacts.predictions-file",
        f"{path}.result.predictions_file_sha256",
        record.result.predictions_file_sha256,
        _hash(folder / file),
    )
    metadata = record.result.metadata
    try:
        array = npy_facts(_read(folder / file))
    except (OSError, NotNpy) as error:
        at = f"{path}.result.predictions_file"
        found.require("artefacts.predictions", at, False, error, "an int64 array in NPY format")
        return
    wanted = ("int64", (metadata.test_count,), metadata.predictions_sha256)
    found.equal(
        "artefacts.predictions",
        f"{path}.result.metadata.predictions_sha256",
        (array.dtype, array.shape, array.sha256),
        wanted,
    )


def _audit_archive(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    """The input archive's arrays are those whose hashes the record holds, and no others."""
    at = f"{path}.input_sha256"
    try:
        held = archive_hashes(_read(folder / "input.npz"))
    except (OSError, NotNpy) as error:
        found.require("artefacts.input-arrays", at, False, error, "an archive of three arrays")
        return
    found.same_fields("artefacts.input-arrays", at, record.input_sha256.model_dump(), held)


def _audit_compressed_streams(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    """A compressed stream holds the bytes whose digest the record has."""
    for name, stream in (("stdout", record.streams.stdout), ("stderr", record.streams.stderr)):
        if not stream.file.endswith(".gz"):
            continue
        try:
            with gzip.open(folder / stream.file) as file:
                held = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, EOFError, zlib.error) as error:
            held = str(error)
        found.equal("artefacts.stream", f"{path}.streams.{name}.sha256", stream.sha256, held)


# What the record says of a file's content; a new kind of artefact is one function and one line here.
_CONTENTS: tuple[Callable[[RunRecord, Path, str, Findings], None], ...] = (
    _audit_config,
    _audit_result,
    _audit_predictions,
    _audit_archive,
    _audit_compressed_streams,
    audit_trace_files,
)
