"""The chains that frozen records form by superseding each other. Pure: records in, chains out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.qualification import FrozenFile


@dataclass(frozen=True)
class Chain:
    """Records of which each supersedes the next, newest first.

    `before` names what the last one supersedes where it is not in the chain: a record whose file is not
    there, or, where `forks`, a record that another chain lists, since two records supersede it. There is no
    cycle: a record holds its predecessor's hash, so that neither of two can hold the other's.
    """

    files: tuple[FrozenFile, ...]
    before: str | None = None
    forks: bool = False

    @property
    def current(self) -> FrozenFile | None:
        """The record that judges; none where it is retired."""
        newest = self.files[0]
        return newest if newest.retirement is None else None


def chains(files: Sequence[FrozenFile]) -> list[Chain]:
    """Every record in exactly one chain, copies of one as one; the chain with the newest comes first.

    Raises:
        EvidenceError: when a record names a predecessor that is there with another content.
    """
    by_hash = {file.sha256: file for file in files}
    superseded = {file.record.supersedes.file_sha256 for file in files if file.record.supersedes}
    newest = [file for file in by_hash.values() if file.sha256 not in superseded]
    listed: set[str] = set()
    found = []
    for head in sorted(newest, key=lambda file: file.record.frozen_at_utc, reverse=True):
        chain, before, forks, at = [], None, False, head
        while True:
            chain.append(at)
            listed.add(at.sha256)
            old = at.record.supersedes
            if old is None:
                break
            if old.file_sha256 not in by_hash or old.file_sha256 in listed:
                _check_missing(at, files)
                before, forks = old.file, old.file_sha256 in listed
                break
            at = by_hash[old.file_sha256]
        found.append(Chain(tuple(chain), before, forks))
    return found


def _check_missing(file: FrozenFile, files: Sequence[FrozenFile]) -> None:
    """A predecessor may have been left behind, but not replaced by another file of its name."""
    old = file.record.supersedes
    assert old is not None  # noqa: S101  the caller has asked
    beside = [other for other in files if other.path == file.path.with_name(old.file)]
    for other in beside:
        if other.sha256 != old.file_sha256:
            raise EvidenceError(
                f"at $.supersedes.file_sha256: found {old.file_sha256}, but {old.file} has {other.sha256}",
                where=str(file.path),
                remedy="restore the record that was superseded",
            )
