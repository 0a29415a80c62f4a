"""Two processes at once on one folder: each ends as it would alone, or is told of the other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator import runner
from orchestrator.errors import ExitCode, StorageError
from orchestrator.runner import new_run_folder
from tests.orchestrator.checkout import Checkout, last_line

CASE = "synthetic-300-100"
NATIVE = ("--case", CASE, "--numerics", "native", "--records", "frozen")
FREEZE = ("freeze", *NATIVE, "--reason", "for the tests")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the product with one record frozen in `frozen/`; tests must not edit it."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("frozen"))
    done = checkout.qualgate(*FREEZE)
    assert done.returncode == 0, done.stderr
    return checkout


def start(checkout: Checkout, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        checkout.command(*arguments),
        cwd=checkout.folder,
        env=checkout.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_gates_on_one_folder_both_pass_and_keep_their_own_evidence(frozen: Checkout) -> None:
    arguments = ("gate", *NATIVE, "--runs-dir", "both", "--json")
    gates = [start(frozen, *arguments) for _ in range(2)]
    said = [gate.communicate(timeout=180) for gate in gates]
    assert [gate.returncode for gate in gates] == [0, 0], said
    folders = {json.loads(out)["found"] for out, _ in said}
    assert len(folders) == 2
    assert {path.name for path in (frozen.folder / "both").iterdir()} == folders
    assert all((frozen.folder / "both" / name / "record.json").is_file() for name in folders)


def test_run_folders_of_the_same_microsecond_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)

    class Clock:
        moments = iter([moment, moment, moment, moment + timedelta(microseconds=1)])

        @classmethod
        def now(cls, _: object) -> datetime:
            return next(cls.moments)

    monkeypatch.setattr(runner, "datetime", Clock)
    first, second = new_run_folder(tmp_path, "digits"), new_run_folder(tmp_path, "digits")
    assert [first.name, second.name] == ["20260102T000000.000000Z-digits", "20260102T000000.000001Z-digits"]


def test_a_parent_that_is_no_folder_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere" / "at-all")
    with pytest.raises(StorageError, match="cannot make the folder"):
        new_run_folder(tmp_path / "runs", "digits")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot make the folder"):
        new_run_folder(tmp_path / "file", "digits")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


def test_a_second_freezer_is_told_who_the_first_is_and_a_gate_goes_on(
    frozen: Checkout, tmp_path: Path
) -> None:
    checkout = Checkout.copy(tmp_path)
    records, lock = tmp_path / "frozen", tmp_path / "frozen" / ".freeze.lock"
    records.mkdir()
    first = start(checkout, *FREEZE, "--runs", "3")
    try:
        wait_for(lock)
        second = checkout.qualgate(*FREEZE, "--runs-dir", "second")
        assert first.poll() is None, "the first freezer ended before the second had asked"
        assert second.returncode == ExitCode.USAGE
        assert re.fullmatch(
            rf"qualgate: frozen: locked by process {first.pid} on {re.escape(socket.gethostname())}, "
            r"since \S+ \([0-9]+ s\); wait for it, or use another folder",
            last_line(second),
        )
        assert not (tmp_path / "second").exists(), "refused before anything ran"
        _, errors = first.communicate(timeout=180)
    finally:
        first.kill()
    assert first.returncode == 0, errors
    assert len(list(records.glob("*.json"))) == 1
    assert not lock.exists()
    # Whoever reads needs no lock, also while another one freezes.
    lock.write_text("held")
    done = checkout.qualgate("gate", *NATIVE)
    assert done.returncode == 0, done.stderr


def test_the_lock_of_a_killed_freezer_is_explained_and_taken_over(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    lock = tmp_path / "frozen" / ".freeze.lock"
    first = start(checkout, *FREEZE)
    wait_for(lock)
    while not lock.read_bytes():
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    done = checkout.qualgate(*FREEZE)
    assert done.returncode == 0, done.stderr
    assert re.search(
        rf"^frozen/\.freeze\.lock: stale lock of process {first.pid} on .*, which was killed: taken over$",
        done.stderr,
        re.MULTILINE,
    )
    assert not lock.exists()
    assert len(list((tmp_path / "frozen").glob("*.json"))) == 1
