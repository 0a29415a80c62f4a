"""One process at a time in a folder: a lock file that a kill releases and that says whose it is.

The lock itself is `flock`'s: the kernel frees it with its owner, however that ends. The file's content is
for people: process, host and start time of the owner. It is removed with the lock, so a file that nobody
holds is stale: its owner was killed. That is said, and the lock taken over.

`flock` may not reach other hosts on a network file system. A file that another host's process left is
therefore refused, although nobody here holds it.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import StorageError, UsageError
from orchestrator.json_text import JsonTextError, canonical_text, parse

_MAXIMUM_BYTES = 4096


@dataclass(frozen=True)
class Owner:
    """Whose a lock is: process number, host name, and when it was taken."""

    pid: int
    host: str
    since_utc: str

    def text(self, now: datetime) -> str:
        """The owner and the lock's age in one line."""
        age_s = (now - datetime.fromisoformat(self.since_utc)).total_seconds()
        return f"process {self.pid} on {self.host}, since {self.since_utc} ({_age(age_s)})"


@contextmanager
def exclusive(path: Path, say: Callable[[str], object], clock: Callable[[], datetime]) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; never waits.

    Args:
        path: The lock file; its folder must exist.
        say: Gets one line when a stale lock is taken over.
        clock: The time, in UTC with its offset.

    Raises:
        UsageError: naming the owner, when another process holds the lock, or one of another host left it.
        StorageError: when the file system cannot lock.
    """
    try:
        descriptor = _locked(path, clock)
    except OSError as error:
        raise StorageError(f"cannot be locked: {error.strerror or error}", where=str(path)) from error
    try:
        stale = _read(descriptor)
        me = Owner(os.getpid(), socket.gethostname(), clock().isoformat(timespec="microseconds"))
        if stale is not None:
            if stale.host != me.host:
                raise UsageError(
                    f"locked by {stale.text(clock())}, another host",
                    where=str(path.parent),
                    remedy=f"if that process has ended, remove {path}",
                )
            say(f"{path}: stale lock of {stale.text(clock())}, which was killed: taken over")
        try:
            _write(descriptor, me)
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
        try:
            yield
        finally:
            # While it is still held: nobody can have taken it by this name meanwhile.
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _locked(path: Path, clock: Callable[[], datetime]) -> int:
    """A descriptor that holds the lock on the file that has this name."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, path):
                return descriptor
            # Its last owner removed it between our two calls: the next one is another file.
            os.close(descriptor)
        except BlockingIOError as error:
            owner = _read(descriptor)
            os.close(descriptor)
            by = "a process that has not said its name yet" if owner is None else owner.text(clock())
            raise UsageError(
                f"locked by {by}", where=str(path.parent), remedy="wait for it, or use another folder"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, canonical_text(asdict(owner)), 0)


def _read(descriptor: int) -> Owner | None:
    """The owner that a lock file names; None where it names none, as just before it is written."""
    try:
        value: Any = parse(os.pread(descriptor, _MAXIMUM_BYTES, 0))
        owner = Owner(**value)
        datetime.fromisoformat(owner.since_utc).astimezone(UTC)
    except (JsonTextError, TypeError, ValueError):
        return None
    return owner


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
