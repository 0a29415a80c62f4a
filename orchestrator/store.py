"""Atomic writes: a file is there with all of its bytes, or it is as it was before.

The bytes go to a temporary file in the target's own folder (a rename does not cross file systems), are
flushed to the device, and take the target's name in one step; then the folder is flushed, so that the
name survives a power loss too. Every file that qualgate leaves behind is written here.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import secrets
import shutil
from pathlib import Path

from orchestrator.errors import StorageError, UsageError

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")


def write_atomically(path: Path, data: bytes, *, overwrite: bool = True, mode: int = 0o666) -> None:
    """Write `data` to `path` so that no reader, crash or interrupt ever meets half of it.

    A symbolic link at `path` is replaced, not followed.

    Args:
        path: The target; its folder must exist.
        data: All of its content.
        overwrite: False refuses an existing target. Of several writers at once, exactly one succeeds.
        mode: The permission bits of the file; the umask takes away from them, as from any new file's. A
            secret's file has never had wider ones, under no name.

    Raises:
        UsageError: when `overwrite` is False and something has that name already.
        StorageError: when the file cannot be written; nothing is left of the attempt.
    """
    try:
        # Opened first: a folder that cannot be flushed should fail before its content has changed.
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write_beside(path, data, overwrite=overwrite, mode=mode)
            _flush_folder(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def compress_file(path: Path) -> Path:
    """Replace a file by `NAME.gz`, piece by piece, and return that path; equal bytes give equal files.

    Raises:
        StorageError: when it cannot be written; the file is then as it was.
    """
    target = path.with_name(f"{path.name}.gz")
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        try:
            with path.open("rb") as source, temporary.open("xb") as file:
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
                    shutil.copyfileobj(source, compressed)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        path.unlink()
    except OSError as error:
        raise StorageError(f"cannot be compressed: {error.strerror or error}", where=str(path)) from error
    return target


def make_folder(path: Path, *, fresh: bool = False) -> None:
    """Make a folder and those above it; `fresh` refuses one that exists.

    Raises:
        StorageError: when it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=not fresh)
    except OSError as error:
        raise StorageError(f"cannot make the folder: {error.strerror or error}", where=str(path)) from error


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers left in a folder that nobody else writes to at the moment.

    Raises:
        StorageError: when one cannot be removed.
    """
    try:
        for path in folder.glob(".*.tmp"):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()
    except OSError as error:
        raise StorageError(f"cannot be cleaned: {error.strerror or error}", where=str(folder)) from error


def _write_beside(path: Path, data: bytes, *, overwrite: bool, mode: int) -> None:
    # The target's own name may be as long as the file system allows, so it is not part of this one.
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        # Exclusive creation, and not `mkstemp`, whose files only their owner may read.
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(path)
        else:
            _link(temporary, path)
    finally:
        # After `replace` the name is gone already; after anything else, interrupts included, it must go.
        with contextlib.suppress(OSError):
            temporary.unlink()


def _link(temporary: Path, path: Path) -> None:
    try:
        # Unlike a rename, a new link fails where the name exists: check and creation are one step.
        path.hardlink_to(temporary)
    except FileExistsError as error:
        raise UsageError("exists already and is not overwritten", where=str(path)) from error


def _flush_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network and FUSE file systems have no such call; they order renames themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
