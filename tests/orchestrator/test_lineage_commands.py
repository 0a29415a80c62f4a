"""The life of a record from the command line, with real runs: freeze, change, supersede, show, retire."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.orchestrator.checkout import Checkout

CASE = ("--case", "synthetic-300-100")
GATE = ("gate", *CASE, "--records", "records")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with a record, and the record that superseded it after a change of the learner."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("lived"))
    frozen = checkout.qualgate("freeze", *CASE, "--records", "records", "--reason", "the first")
    assert frozen.returncode == 0, frozen.stderr
    (old,) = (checkout.folder / "records").glob("*.json")
    same = checkout.qualgate("supersede", str(old), "--reason", "for nothing")
    assert (same.returncode, "nothing changed" in same.stderr) == (2, True)
    checkout.edit("fixture/numerics/portable.py", "torch.mul(raw, 4.0", "torch.mul(raw, 4.25")
    assert checkout.qualgate(*GATE).returncode == 1
    done = checkout.qualgate("supersede", str(old), "--reason", "a brighter lift")
    assert done.returncode == 0, done.stderr
    return checkout


def records(checkout: Checkout) -> tuple[Path, Path]:
    """The old record and the new one."""
    old, new = sorted(
        (checkout.folder / "records").glob("*.json"),
        key=lambda path: str(json.loads(path.read_text())["frozen_at_utc"]),
    )
    return old, new


def said(checkout: Checkout, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = checkout.qualgate(*arguments)
    assert done.returncode == code, done.stderr
    return done


def test_the_gate_judges_by_the_new_record(lived: Checkout) -> None:
    _, new = records(lived)
    assert new.name in said(lived, *GATE).stdout


def test_a_superseded_record_has_one_successor(lived: Checkout) -> None:
    old, _ = records(lived)
    again = said(lived, "supersede", str(old), "--reason", "again", code=2)
    assert "is superseded already; supersede its successor" in again.stderr
    freezing = ("freeze", *CASE, "--records", "records", "--reason", "a fork", "--supersedes", str(old))
    assert "is superseded already" in said(lived, *freezing, code=2).stderr


def test_log_tells_the_life_of_the_records(lived: Checkout) -> None:
    old, new = records(lived)
    lines = said(lived, "log", "records").stdout.splitlines()
    assert lines[0].startswith(f"{new.name}  ") and lines[0].endswith("  current")
    assert lines[2].strip() == "a brighter lift"
    assert lines[3].startswith(f"{old.name}  ") and lines[3].endswith(f"superseded by {new.name}")
    (chain,) = json.loads(said(lived, "log", "records", "--json").stdout)
    assert chain["current"] == new.name
    assert [item["reason"] for item in chain["records"]] == ["a brighter lift", "the first"]


def test_an_empty_log_says_so(lived: Checkout, tmp_path: Path) -> None:
    assert said(lived, "log", str(tmp_path)).stdout.strip().endswith(f"in {tmp_path}")


def test_a_record_under_another_name_is_shown(lived: Checkout, tmp_path: Path) -> None:
    copy = tmp_path / "record.txt"
    copy.write_bytes(records(lived)[1].read_bytes())
    assert "threads 1" in said(lived, "show", str(copy)).stdout


def test_show_tells_one_record(lived: Checkout) -> None:
    old, new = records(lived)
    shown = said(lived, "show", str(old)).stdout
    assert "superseded by" in shown
    assert "case synthetic-300-100" in shown
    assert json.loads(said(lived, "show", str(new), "--json").stdout) == json.loads(new.read_text())


def test_diff_says_what_changed_and_why(lived: Checkout) -> None:
    old, new = records(lived)
    text = said(lived, "diff", str(old), str(new), code=1).stdout
    assert "source numerics/portable.py" in text
    assert "first training step that differs: epoch 0, step 0, in batch.state" in text
    assert "supersedes it: a brighter lift" in " ".join(text.split())
    found = json.loads(said(lived, "diff", str(old), str(new), "--json", code=1).stdout)
    assert found["succeeds"] is True
    assert found["same_bits"] is False
    markdown = said(lived, "diff", str(old), str(new), "--markdown", code=1).stdout
    assert markdown.startswith("### qualgate diff: other bits\n")
    assert "| final parameters | 6 of 6 |" in markdown
    same = said(lived, "diff", str(new), str(new))
    assert same.stdout.startswith("same bits: ")


def test_a_retired_record_leaves_the_gate_without_one(lived: Checkout, tmp_path: Path) -> None:
    _, new = records(lived)
    kept = tmp_path / "records"
    kept.mkdir()
    for path in (lived.folder / "records").iterdir():
        if path.name != records(lived)[0].name:
            (kept / path.name).write_bytes(path.read_bytes())
    said(lived, "retire", str(kept / new.name), "--reason", "wrong data")
    done = said(lived, "gate", *CASE, "--records", str(kept), code=3)
    assert "is retired: wrong data" in done.stderr
    named = said(lived, "gate", *CASE, "--record", str(kept / new.name), code=3)
    assert "is retired: wrong data" in named.stderr
    assert "retired: wrong data" in said(lived, "log", str(kept)).stdout
    assert said(lived, "audit", str(kept)).stdout.count("sound: ") == 2


def test_superseding_never_leaves_two_records_for_one_platform(lived: Checkout, tmp_path: Path) -> None:
    """A record that was frozen elsewhere is superseded into a folder that has one for this platform."""
    elsewhere = tmp_path / "elsewhere"
    frozen = ("freeze", *CASE, "--no-trace", "--records", str(elsewhere), "--reason", "another folder's")
    said(lived, *frozen)
    (other,) = elsewhere.glob("*.json")
    lived.edit("fixture/task.py", "import annotations\n", "import annotations\n\n")
    refused = said(lived, "supersede", str(other), "--records", "records", "--reason", "merge", code=2)
    assert f"{records(lived)[1].name} already freezes synthetic-300-100 for this platform" in refused.stderr
    kept = said(lived, "supersede", str(other), "--reason", "a refactor")
    (new,) = set(elsewhere.glob("*.json")) - {other}
    assert f"frozen: {new}" in kept.stdout.replace("\n", "")
    assert said(lived, "diff", str(other), str(new)).stdout.startswith("same bits: ")
