"""Chains of frozen records, pure and over sample records: superseded, retired, lost and forged ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.codec import content_sha256, encode
from orchestrator.commands.gating_cases import chosen_cases
from orchestrator.errors import EvidenceError, NoRecordError, UsageError
from orchestrator.hashing import bytes_sha256
from orchestrator.lineage import Chain, chains
from orchestrator.models import QualificationRecord, Supersedes
from orchestrator.qualification import (
    FrozenFile,
    check_current,
    check_not_frozen,
    frozen_cases,
    load_folders,
    load_frozen,
    load_history,
    load_record,
    match_record,
    retire,
    retired_records,
    shipped_records,
)
from orchestrator.render_records import log_lines, state_of
from orchestrator.verdict import evidence_of_frozen
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


def names(files: Iterable[FrozenFile]) -> list[str]:
    return [file.path.stem for file in files]


def shown(found: list[Chain]) -> list[str]:
    return [line.plain for line in log_lines(found, lambda _: False)]


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
    assert (chain.before, chain.forks) == ("record-0001.json", False)
    assert "record-0001.json  superseded; its file is not here" in shown([chain])


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
    assert [chain.before for chain in found] == [None, "record-0001.json"]
    assert [chain.forks for chain in found] == [False, True]
    assert "record-0001.json  superseded twice: listed above, with its other successor" in shown(found)


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


class Acts:
    """Freeze, supersede and retire in a folder, by the commands' rules, with a ledger of what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[FrozenFile] = []
        self.replaced: dict[str, str] = {}
        self.retired: set[str] = set()

    def do(self, act: str, at: int) -> None:
        """One act on the record of a number; a refused one leaves everything as it is."""
        target = self.files[at % len(self.files)] if self.files else None
        if act == "freeze" or target is None:
            self.files.append(written(self.folder, len(self.files)))
            return
        name = target.path.stem
        if act == "retire":
            if name not in self.retired:
                retire(target, f"retired {at}")
                self.retired.add(name)
        elif name in self.retired or name in self.replaced:
            with pytest.raises(UsageError, match=r"is superseded already|is retired"):
                check_current(target, load_folders([self.folder]))
        else:
            check_current(target, load_folders([self.folder]))
            self.files.append(written(self.folder, len(self.files), target))
            self.replaced[name] = self.files[-1].path.stem


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["freeze", "supersede", "retire"]), st.integers(0, 99)), max_size=12)
)
def test_whatever_is_done_the_log_is_a_forest_and_its_heads_are_what_judges(
    acts: list[tuple[str, int]],
) -> None:
    with TemporaryDirectory() as folder:
        life = Acts(Path(folder))
        for act, at in acts:
            life.do(act, at)
        found = chains(load_history([life.folder]))
        current = names(load_folders([life.folder]))
    listed = [name for chain in found for name in names(chain.files)]
    assert sorted(listed) == sorted(names(life.files))
    links = {old: new for chain in found for new, old in pairwise(names(chain.files))}
    assert links == life.replaced
    assert all(chain.before is None for chain in found)
    assert sorted(current) == sorted(chain.files[0].path.stem for chain in found)
    judging = {chain.current.path.stem for chain in found if chain.current is not None}
    assert judging == set(names(life.files)) - set(life.replaced) - life.retired


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


def test_the_gate_names_the_retired_record_of_its_own_platform(tmp_path: Path) -> None:
    here = written(tmp_path, 1)
    retire(here, "the old rack")
    other = record(2).model_copy(update={"platform_key": {"device": "cuda"}, "levels": ["bitwise"]})
    path = tmp_path / "other.json"
    path.write_bytes(encode(other.model_copy(update={"content_sha256": content_sha256(other)})))
    files = load_folders([tmp_path])
    case = here.record.cases[0]
    found = evidence_of_frozen(here.record, case, "run")
    candidates = frozen_cases(files, case.case)
    with pytest.raises(NoRecordError, match=r"record-0001\.json: this record is retired: the old rack"):
        match_record(candidates, found, retired_records(files, case.case))


def test_a_retired_record_that_is_named_alone_judges_nothing_either(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    written(tmp_path, 2)
    assert load_record(file.path) == file
    retire(file, "gone")
    named = load_record(file.path)
    assert state_of(named, None) == "retired: gone"
    with pytest.raises(NoRecordError, match="this record is retired: gone"):
        frozen_cases([named], file.record.cases[0].case)
    assert load_record(tmp_path / "record-0002.json").retirement is None


def test_a_copy_of_a_retired_record_is_retired(tmp_path: Path) -> None:
    folders = [tmp_path / "shipped", tmp_path / "own"]
    for folder in folders:
        folder.mkdir()
    shipped = written(folders[0], 1)
    retire(written(folders[1], 1), "not for us")
    for order in (folders, folders[::-1]):
        with pytest.raises(NoRecordError, match="not for us"):
            frozen_cases(load_folders(order), shipped.record.cases[0].case)
        (chain,) = chains(load_history(order))
        assert chain.current is None


def test_all_cases_of_retired_records_are_none_and_it_is_said_why(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    numerics = file.record.cases[0].case.numerics
    mine = [file.record.cases[0].case]
    assert chosen_cases("all", numerics, load_folders([tmp_path])) == mine
    assert chosen_cases("all", numerics, load_folders([shipped_records(), tmp_path])) == mine
    retire(file, "gone")
    with pytest.raises(NoRecordError, match="this record is retired: gone"):
        chosen_cases("all", numerics, load_folders([tmp_path]))


def test_after_a_retirement_the_platform_is_free_for_another_record(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    case, key = file.record.cases[0].case, file.record.platform_key
    with pytest.raises(UsageError, match=f"qualgate supersede {file.path}"):
        check_not_frozen(load_folders([tmp_path]), case, key, None)
    retire(file, "gone")
    check_not_frozen(load_folders([tmp_path]), case, key, None)


def test_a_file_that_no_gate_finds_is_not_retired(tmp_path: Path) -> None:
    path = tmp_path / "record.txt"
    path.write_bytes(encode(record(1)))
    with pytest.raises(UsageError, match=r"a name ending in \.json"):
        retire(load_frozen(path), "gone")
    assert list(tmp_path.iterdir()) == [path]


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
