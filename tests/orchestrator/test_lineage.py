"""Chains of frozen records, pure and over sample records: superseded, retired, lost and forged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.codec import content_sha256, encode
from orchestrator.errors import EvidenceError, NoRecordError, UsageError
from orchestrator.hashing import bytes_sha256
from orchestrator.lineage import chains
from orchestrator.models import QualificationRecord, Supersedes
from orchestrator.qualification import (
    FrozenFile,
    frozen_cases,
    load_folders,
    load_frozen,
    load_history,
    retire,
)
from tests import strategies as samples


def record(number: int, supersedes: FrozenFile | None = None) -> QualificationRecord:
    """A sound frozen record that differs from every other number's."""
    draft = QualificationRecord.model_validate(
        {
            **samples.qualification(),
            "frozen_at_utc": f"2026-09-14T00:00:{number:02}.000000+00:00",
            "reason": f"record {number}",
            "supersedes": None,
        }
    )
    if supersedes is not None:
        old = Supersedes(file=supersedes.path.name, file_sha256=supersedes.sha256)
        draft = draft.model_copy(update={"supersedes": old})
    return draft.model_copy(update={"content_sha256": content_sha256(draft)})


def written(folder: Path, number: int, supersedes: FrozenFile | None = None) -> FrozenFile:
    path = folder / f"record-{number:04}.json"
    path.write_bytes(encode(record(number, supersedes)))
    return load_frozen(path)


def in_memory(number: int, supersedes: FrozenFile | None = None) -> FrozenFile:
    made = record(number, supersedes)
    return FrozenFile(made, Path(f"record-{number:04}.json"), bytes_sha256(encode(made)))


def names(files: object) -> list[str]:
    return [file.path.stem for file in files]  # type: ignore[attr-defined]


def test_a_chain_is_listed_newest_first(tmp_path: Path) -> None:
    first = written(tmp_path, 1)
    second = written(tmp_path, 2, first)
    written(tmp_path, 3, second)
    (chain,) = chains(load_history([tmp_path]))
    assert names(chain.files) == ["record-0003", "record-0002", "record-0001"]
    assert chain.before is None
    assert names(load_folders([tmp_path])) == ["record-0003"]


def test_a_predecessor_that_is_not_there_is_named() -> None:
    (chain,) = chains([in_memory(2, in_memory(1))])
    assert chain.before == "record-0001.json"


def test_a_predecessor_with_another_content_is_broken_evidence(tmp_path: Path) -> None:
    first = written(tmp_path, 1)
    written(tmp_path, 2, first)
    first.path.write_bytes(encode(record(7)))
    with pytest.raises(EvidenceError, match=r"record-0001\.json has [0-9a-f]{64}"):
        chains(load_history([tmp_path]))


def test_two_successors_of_one_record_are_two_chains_that_list_it_once() -> None:
    first = in_memory(1)
    found = chains([first, in_memory(2, first), in_memory(3, first)])
    assert [names(chain.files) for chain in found] == [["record-0003", "record-0001"], ["record-0002"]]
    assert found[1].before == "record-0001.json"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 12), min_size=1, max_size=12))
def test_every_record_is_in_exactly_one_chain(predecessors: list[int]) -> None:
    files: list[FrozenFile] = []
    for number, old in enumerate(predecessors):
        files.append(in_memory(number, files[old] if 0 <= old < len(files) else None))
    found = chains(files)
    listed = [file.sha256 for chain in found for file in chain.files]
    assert sorted(listed) == sorted(file.sha256 for file in files)
    superseded = {file.record.supersedes.file_sha256 for file in files if file.record.supersedes}
    assert {chain.files[0].sha256 for chain in found} == {file.sha256 for file in files} - superseded


# --- retirement -----------------------------------------------------------------------------------


def test_a_retired_record_holds_no_case_and_says_why(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    case = file.record.cases[0].case
    assert frozen_cases(load_folders([tmp_path]), case)
    before = file.path.read_bytes()
    retire(file, "the machines are gone")
    assert file.path.read_bytes() == before
    with pytest.raises(NoRecordError, match="is retired: the machines are gone"):
        frozen_cases(load_folders([tmp_path]), case)
    (chain,) = chains(load_history([tmp_path]))
    assert chain.current is None


def test_another_record_of_the_case_still_judges(tmp_path: Path) -> None:
    retire(written(tmp_path, 1), "replaced by another")
    other = written(tmp_path, 2)
    found = frozen_cases(load_folders([tmp_path]), other.record.cases[0].case)
    assert [file.path for file, _ in found] == [other.path]


def test_a_record_is_retired_once_and_for_a_reason(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    with pytest.raises(UsageError, match="--reason"):
        retire(file, "  ")
    retire(file, "once")
    with pytest.raises(UsageError, match="exists already"):
        retire(file, "twice")


def test_a_retirement_of_no_record_is_broken_evidence(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    retire(file, "gone")
    file.path.write_bytes(encode(record(7)))
    with pytest.raises(EvidenceError, match="restore the record that was retired"):
        load_folders([tmp_path])
    file.path.unlink()
    with pytest.raises(EvidenceError, match="found no such file"):
        load_folders([tmp_path])


def test_a_retirement_that_was_edited_is_broken_evidence(tmp_path: Path) -> None:
    path = retire(written(tmp_path, 1), "gone")
    path.write_text(path.read_text().replace("gone", "fine"))
    with pytest.raises(EvidenceError, match=r"at \$\.content_sha256"):
        load_folders([tmp_path])
