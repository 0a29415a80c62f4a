"""An evidence folder: what lies on disk against the record, and one broken file among sound ones."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.audit.evidence import audit_path
from orchestrator.audit.npy import NotNpy, NpyFacts, archive_hashes, npy_facts
from orchestrator.codec import check_model
from orchestrator.errors import EvidenceError, ExitCode, InputError
from orchestrator.hashing import array_sha256
from orchestrator.models import AuditReport
from orchestrator.runner import Run
from tests.orchestrator.audit.lies import planted
from tests.orchestrator.checkout import ROOT
from tests.strategies import SEED

Damage = Callable[[Path], object]
ARTEFACTS = "$.artefact_sha256"


def flip(name: str, at: int) -> Damage:
    """Changes one bit of a file, counted from its end where `at` is negative."""

    def damage(run: Path) -> None:
        data = bytearray((run / name).read_bytes())
        data[at] ^= 1
        (run / name).write_bytes(data)

    return damage


def edit(name: str, old: str, new: str) -> Damage:
    """Replaces text in a file."""

    def damage(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return damage


def replace_by_pipe(run: Path) -> None:
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")


def remove_all_but_the_record(run: Path) -> None:
    shutil.rmtree(run / "fixture")
    for entry in run.iterdir():
        if entry.name != "record.json":
            entry.unlink()


DAMAGES = [
    pytest.param(
        flip("result.predictions.npy", -8), "artefacts.predictions", "$.result.metadata.predictions_sha256",
        id="another-prediction",
    ),
    pytest.param(
        flip("result.predictions.npy", -8), "artefacts.hash", f'{ARTEFACTS}["result.predictions.npy"]',
        id="another-prediction-hash",
    ),
    pytest.param(
        flip("result.predictions.npy", -8), "artefacts.predictions-file",
        "$.result.predictions_file_sha256", id="another-prediction-file",
    ),
    pytest.param(
        flip("result.predictions.npy", 0), "artefacts.predictions", "$.result.predictions_file",
        id="no-array",
    ),
    pytest.param(flip("input.npz", 400), "artefacts.hash", f'{ARTEFACTS}["input.npz"]', id="archive"),
    pytest.param(flip("input.npz", 400), "artefacts.input-arrays", "$.input_sha256", id="pixel"),
    pytest.param(
        edit("config.json", '"seed": 11', '"seed": 12'), "artefacts.config", "$.case.config", id="config"
    ),
    pytest.param(
        edit("fixture/task.py", "2 * WIDTH", "2  * WIDTH"), "artefacts.hash",
        f'{ARTEFACTS}["fixture/task.py"]', id="source",
    ),
    pytest.param(
        lambda run: (run / "stdout.txt").write_text(""), "artefacts.hash", f'{ARTEFACTS}["stdout.txt"]',
        id="truncated-stdout",
    ),
    pytest.param(
        edit("result.json", '"mode": "measure"', '"mode": "profile"'), "artefacts.result", "$.result.mode",
        id="result",
    ),
    pytest.param(
        lambda run: (run / "result.json").write_text("{"), "artefacts.result", "$.result", id="result-no-json"
    ),
    pytest.param(
        lambda run: (run / "input.npz").unlink(), "artefacts.present", f'{ARTEFACTS}["input.npz"]',
        id="missing-file",
    ),
    pytest.param(
        lambda run: (run / "fixture" / "extra.py").write_text(""), "artefacts.expected",
        f'{ARTEFACTS}["fixture/extra.py"]', id="unexpected-file",
    ),
    pytest.param(
        lambda run: (run / "link").symlink_to("/nowhere"), "artefacts.expected", f"{ARTEFACTS}.link",
        id="unexpected-link",
    ),
    pytest.param(
        replace_by_pipe, "artefacts.present", f'{ARTEFACTS}["config.json"]', id="pipe-for-a-file"
    ),
    pytest.param(
        remove_all_but_the_record, "artefacts.present", f'{ARTEFACTS}["stderr.txt"]', id="all-files-gone"
    ),
]  # fmt: skip


def found_in(report: AuditReport, name: str) -> set[tuple[str, str]]:
    (audited,) = (item for item in report.files if item.record_file == name)
    return {(finding.rule, finding.path) for finding in audited.findings}


def test_a_fresh_folder_is_clean(folder: Path) -> None:
    shutil.copy(SEED, folder / "runs" / "seed.json")
    report = audit_path(folder)
    assert report.sound
    assert [item.record_file for item in report.files] == ["runs/one/record.json", "runs/seed.json"]
    record = json.loads((folder / "runs/one/record.json").read_bytes())
    assert report.files[0].artefacts == len(record["artefact_sha256"])


@pytest.mark.parametrize(("damage", "rule", "path"), DAMAGES)
def test_damage_is_found(folder: Path, damage: Damage, rule: str, path: str) -> None:
    damage(folder / "runs" / "one")
    report = audit_path(folder)
    assert not report.sound
    assert (rule, path) in found_in(report, "runs/one/record.json")


def test_a_broken_record_hides_no_other(folder: Path) -> None:
    shutil.copytree(folder / "runs" / "one", folder / "deep" / "er" / "two")
    flip("stdout.txt", 0)(folder / "deep" / "er" / "two")
    (folder / "runs" / "one" / "record.json").write_text('{"kind": "run", "kind": "run"}')
    (folder / "notes.json").write_text("[]")
    shutil.copy(SEED, folder / "seed.json")
    report = audit_path(folder)
    assert found_in(report, "runs/one/record.json") == {("file.record", "$")}
    assert found_in(report, "notes.json") == {("file.record", "$")}
    assert ("artefacts.hash", f'{ARTEFACTS}["stdout.txt"]') in found_in(report, "deep/er/two/record.json")
    assert found_in(report, "seed.json") == set()


def test_a_record_alone_is_audited_without_its_folder(fresh: Run, tmp_path: Path) -> None:
    copied = tmp_path / "nightly.json"
    shutil.copy(fresh.folder / "record.json", copied)
    assert audit_path(copied).sound
    assert audit_path(copied).files[0].artefacts is None
    assert audit_path(fresh.folder / "record.json").files[0].artefacts is not None


def test_no_evidence_is_not_sound_evidence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no record"):
        audit_path(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        audit_path(tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(EvidenceError, match="line 1"):
        audit_path(tmp_path / "broken.json")


# --- arrays without NumPy -----------------------------------------------------------------------


def npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 9, 9)])
def test_an_array_is_hashed_as_numpy_reads_it(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert npy_facts(npy(array)) == NpyFacts(shape, "float32", array_sha256(array))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        npy(np.zeros(3))[:-1],
        npy(np.zeros((2, 3), dtype=np.float32, order="F")),
        npy(np.zeros(3, dtype=">f4")),
        npy(np.zeros(3, dtype=np.complex64)),
        npy(np.zeros(3, dtype=np.float32)) + b"x",
        b"\x93NUMPY\x01\x00\xff\xff" + b" " * 65535,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    ],
    ids=["empty", "float64", "columns", "big-endian", "complex", "trailing", "long-header", "huge-header"],
)
def test_other_bytes_are_no_array(data: bytes) -> None:
    with pytest.raises(NotNpy):
        npy_facts(data)


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_no_archive_stops_an_audit(at: int, value: int) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, train_images=np.zeros((2, 1, 9, 9), dtype=np.float32))
    data = bytearray(stream.getvalue())
    data[at % len(data)] = value
    with contextlib.suppress(NotNpy):
        archive_hashes(bytes(data))


def test_a_member_twice_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            archive.writestr("train_labels.npy", npy(np.zeros(1, dtype=np.int64)))
    with pytest.raises(NotNpy, match="twice"):
        archive_hashes(stream.getvalue())


# --- the command --------------------------------------------------------------------------------


def qualgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "140"}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "audit", *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_on_a_sound_record() -> None:
    done = qualgate(str(SEED))
    assert done.returncode == ExitCode.QUALIFIED, done.stderr
    assert done.stdout.startswith("sound: a100-measure-task.json: run-record.v1, ")
    assert done.stdout.count("\n") == 1


def test_the_command_on_a_lie(tmp_path: Path) -> None:
    path = "result.memory.added_peak_over_entry_allocated_bytes"
    lying = planted(json.loads(SEED.read_bytes()), path, 5)
    (tmp_path / "lie.json").write_text(json.dumps(lying))
    done = qualgate(str(tmp_path / "lie.json"))
    assert done.returncode == ExitCode.EVIDENCE_BROKEN
    for text in (f"$.{path}", "memory.added-peak", "15663104"):
        assert text in done.stdout
    assert done.stderr == (
        f"qualgate: lie.json: at $.{path}: found 5, expected 15663104 [memory.added-peak]\n"
    )


def test_the_command_as_json(folder: Path) -> None:
    flip("stdout.txt", 0)(folder / "runs" / "one")
    done = qualgate(str(folder), "--json")
    assert done.returncode == ExitCode.EVIDENCE_BROKEN
    report = check_model(json.loads(done.stdout), AuditReport, "stdout")
    assert {finding.rule for item in report.files for finding in item.findings} == {"artefacts.hash"}


def test_the_command_on_nothing(tmp_path: Path) -> None:
    done = qualgate(str(tmp_path / "nothing.json"))
    assert done.returncode == ExitCode.USAGE
    assert "cannot be read" in done.stderr
