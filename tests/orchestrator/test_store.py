"""Atomic writes: whole or not at all, whatever fails, and whoever else writes."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NoReturn

import pytest

from orchestrator.errors import StorageError, UsageError
from orchestrator.store import compress_file, remove_leftovers, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_new_file_has_all_bytes_and_stands_alone(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "record.json"
    write_atomically(target, b"bytes\r\n\0", overwrite=overwrite)
    assert target.read_bytes() == b"bytes\r\n\0"
    assert names(tmp_path) == ["record.json"]
    assert target.stat().st_nlink == 1


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    target.write_bytes(b"a longer old text")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permission_bits_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "f", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    target = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    write_atomically(target, b"x")
    assert target.read_bytes() == b"x"


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"kept")
    target = tmp_path / "link"
    target.symlink_to(elsewhere)
    write_atomically(target, b"new")
    assert not target.is_symlink()
    assert elsewhere.read_bytes() == b"kept"


def test_content_is_flushed_before_it_gets_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "f"
    seen: list[tuple[str, bool]] = []
    flush = os.fsync

    def recording(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, target.exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    write_atomically(target, b"x")
    assert seen == [("file", False), ("folder", True)]


def test_a_file_system_that_cannot_flush_folders_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refusing)
    write_atomically(tmp_path / "f", b"x")
    assert (tmp_path / "f").read_bytes() == b"x"


# --- failures ------------------------------------------------------------------------------------

STEPS = [(os, "fsync"), (Path, "replace")]
STEP_IDS = ["full disk", "failed rename"]


@pytest.mark.parametrize(("owner", "step"), STEPS, ids=STEP_IDS)
def test_a_failure_changes_nothing_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "record.json"
    target.write_bytes(b"old")
    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(StorageError, match=r"record\.json: cannot be written: No space left on device"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["record.json"]


@pytest.mark.parametrize(("owner", "step"), STEPS, ids=STEP_IDS)
def test_an_interrupt_changes_nothing_and_passes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "f", b"new")
    assert names(tmp_path) == []


def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        write_atomically(tmp_path / "missing" / "f", b"x")


def test_a_folder_in_the_way_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        write_atomically(tmp_path / "f", b"x")
    assert names(tmp_path) == ["f"]


# --- overwrite=False -----------------------------------------------------------------------------


def test_an_existing_file_is_refused_and_kept(tmp_path: Path) -> None:
    target = tmp_path / "frozen.json"
    target.write_bytes(b"old")
    with pytest.raises(UsageError, match=r"frozen\.json: exists already"):
        write_atomically(target, b"new", overwrite=False)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["frozen.json"]


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        write_atomically(tmp_path / "f", b"new", overwrite=False)
    assert not (tmp_path / "nowhere").exists()


def test_of_many_writers_exactly_one_wins(tmp_path: Path) -> None:
    writers = 8
    start = Barrier(writers)

    def write(number: int) -> bool:
        start.wait()
        try:
            write_atomically(tmp_path / "f", bytes([number]) * 10_000, overwrite=False)
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(write, range(writers)))
    assert won.count(True) == 1
    assert (tmp_path / "f").read_bytes() == bytes([won.index(True)]) * 10_000
    assert names(tmp_path) == ["f"]


def test_a_file_is_compressed_in_place_to_the_same_bytes_each_time(tmp_path: Path) -> None:
    data = os.urandom(1000) * 300
    stored = set()
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "stdout.txt").write_bytes(data)
        target = compress_file(folder / "stdout.txt")
        assert names(folder) == [target.name] == ["stdout.txt.gz"]
        assert gzip.decompress(target.read_bytes()) == data
        assert target.stat().st_size < len(data)
        stored.add(target.read_bytes())
    assert len(stored) == 1


def test_a_file_that_cannot_be_compressed_stays(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_bytes(b"evidence")
    (tmp_path / "stdout.txt.gz").mkdir()
    with pytest.raises(StorageError, match="cannot be compressed"):
        compress_file(tmp_path / "stdout.txt")
    assert names(tmp_path) == ["stdout.txt", "stdout.txt.gz"]
    assert (tmp_path / "stdout.txt").read_bytes() == b"evidence"


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".0123456789abcdef.tmp", ".notes.tmp", "0123456789abcdef.tmp", "record.json"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".notes.tmp", "0123456789abcdef.tmp", "record.json"]
