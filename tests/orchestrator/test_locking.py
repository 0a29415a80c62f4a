"""One process at a time in a folder: held, released, stale and foreign locks, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.locking import Owner, exclusive
from tests.orchestrator.checkout import ROOT

NOW = datetime(2026, 9, 15, 8, 0, tzinfo=UTC)

HOLD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.locking import exclusive
with exclusive(Path(sys.argv[1]), print, lambda: datetime.now(UTC)):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin is closed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.communicate()


def take(path: Path, now: datetime = NOW) -> list[str]:
    """Take the lock and let go; returns what was said."""
    said: list[str] = []
    with exclusive(path, said.append, lambda: now):
        pass
    return said


def test_a_lock_names_its_owner_while_it_is_held_and_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with exclusive(path, pytest.fail, lambda: NOW):
        assert json.loads(path.read_text()) == {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_utc": "2026-09-15T08:00:00.000000+00:00",
        }
    assert not path.exists()


def test_a_lock_is_released_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), exclusive(tmp_path / ".lock", pytest.fail, lambda: NOW):
        raise RuntimeError
    assert take(tmp_path / ".lock") == []


def test_a_live_lock_is_refused_with_owner_and_age(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with holder(path) as child, pytest.raises(UsageError) as refused:
        take(path, datetime.now(UTC) + timedelta(minutes=5))
    assert re.search(rf"locked by process {child.pid} on \S+, since 20\S+ \(5 min\)", str(refused.value))
    assert take(path) == []


def test_a_killed_owner_leaves_a_stale_lock_that_is_explained_and_taken_over(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with holder(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert path.exists()
    (line,) = take(path)
    assert f"stale lock of process {child.pid} on {socket.gethostname()}" in line
    assert line.endswith("which was killed: taken over")
    assert take(path) == []


def test_a_lock_that_another_host_left_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps({"pid": 7, "host": "elsewhere", "since_utc": NOW.isoformat()}))
    with pytest.raises(UsageError, match=r"locked by process 7 on elsewhere.*another host; if .* remove"):
        take(path)
    assert "elsewhere" in path.read_text()


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"pid": 1}', b'{"pid": 1, "host": "h", "since_utc": "now"}']
)
def test_a_lock_file_that_names_nobody_is_taken(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".lock"
    path.write_bytes(content)
    assert take(path) == []


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(seconds=3), "3 s"),
        (timedelta(minutes=3), "3 min"),
        (timedelta(hours=30), "30 h"),
    ],
)
def test_an_age_is_said_in_a_fitting_unit(age: timedelta, said: str) -> None:
    owner = Owner(7, "here", NOW.isoformat())
    assert owner.text(NOW + age).endswith(f"({said})")
