"""MNIST's files from a mirror: resumed, bounded, checked, cached.

A mirror is not trusted. Bytes collect in a `.part` file beside the cache entry; only when their
decompressed content has the pinned SHA-256 do they become the entry, atomically. So a part may safely be
resumed from any mirror, and whatever goes wrong shows in the hash: the part is deleted, and the download
starts again from nothing or goes to the next mirror. The cache is not trusted either: an entry is
checked every time, and fetched again when it is damaged.

Bounded are the bytes of a body, the wait for each read and the time in all. One process downloads at a
time; others wait for it and find the entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.datasets.idx import PinnedFile, parse_pinned, read_pinned
from orchestrator.errors import InputError, StorageError, UsageError
from orchestrator.store import write_atomically

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

Progress = Callable[[int, int | None], None]
"""Called with the bytes of a file so far, and in all where the server says so."""

_ATTEMPTS_PER_MIRROR = 3
_PIECE_BYTES = 64 * 1024
_OK, _PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 200, 206, 416


@dataclass(frozen=True)
class TimeLimits:
    """How long a download may take: one connection or read, and one file with all its attempts."""

    read_s: float = 30.0
    file_s: float = 900.0


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


class _MirrorFailed(Exception):
    """This mirror does not give the file; the next one may."""


class _BrokenOff(_MirrorFailed):
    """The transfer ended early, or what came was wrong: this mirror is worth another attempt."""


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/qualgate`, or `~/.cache/qualgate` where that variable is unset or relative.

    Raises:
        UsageError: when there is no home directory either.
    """
    # The XDG specification says to ignore a relative path.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise UsageError("no home directory for the cache", remedy="set XDG_CACHE_HOME") from error
    return base / "qualgate"


def fetch(
    pin: PinnedFile,
    cache_dir: Path,
    *,
    base_urls: Sequence[str] = MIRRORS,
    limits: TimeLimits | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[np.uint8]:
    """The content of a pinned file, from the cache or else from the first mirror that has it.

    Args:
        pin: The file; mirrors and cache hold it as `NAME.gz`.
        cache_dir: Where it is kept; made when it is missing.
        base_urls: Mirrors, in the order in which they are asked; each ends with a slash.
        limits: Time limits, in seconds.
        progress: See `Progress`.

    Returns:
        uint8, in the pinned shape.

    Raises:
        InputError: when no mirror gives the pinned file; says why for each, and the way without one.
        StorageError: when the cache cannot be written.
    """
    entry = cache_dir / f"{pin.name}.gz"
    with contextlib.suppress(InputError):  # missing or damaged: told apart below, under the lock
        return read_pinned(entry, pin)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f"{pin.name}.lock"):
            return _fetch_locked(pin, entry, base_urls, limits or TimeLimits(), progress)
    except OSError as error:
        raise StorageError(f"the cache cannot be used: {error.strerror}", where=str(cache_dir)) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        # Released with the file, even when the process is killed. The wait is bounded by the time limit
        # of whoever holds it.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_locked(
    pin: PinnedFile, entry: Path, base_urls: Sequence[str], limits: TimeLimits, progress: Progress | None
) -> npt.NDArray[np.uint8]:
    faults = []
    if entry.exists():
        try:
            return read_pinned(entry, pin)  # another process has brought it meanwhile
        except InputError as error:
            faults.append(f"the cached file is damaged ({error.what})")
    download = _Download(pin, entry, limits, progress)
    for base_url in base_urls:
        url = f"{base_url}{entry.name}"
        try:
            return download.from_mirror(url)
        except _MirrorFailed as fault:
            faults.append(f"{url} ({fault})")
    raise InputError(
        f"cannot be downloaded: {', '.join(faults)}",
        where=pin.name,
        remedy="give the folder of MNIST's training files with --idx-dir",
    )


class _Download:
    """The download of one file into its cache entry, over several attempts and mirrors."""

    def __init__(self, pin: PinnedFile, entry: Path, limits: TimeLimits, progress: Progress | None) -> None:
        self._pin = pin
        self._entry = entry
        self._part = entry.with_name(f"{entry.name}.part")
        self._read_s = limits.read_s
        self._deadline = time.monotonic() + limits.file_s
        self._progress = progress
        # Deflate stores what it cannot compress, at five bytes for each 16 kB or more, and gzip's header
        # and trailer are small: a larger body is not this file.
        self._maximum_bytes = pin.size_bytes + pin.size_bytes // 1000 + 1024

    def from_mirror(self, url: str) -> npt.NDArray[np.uint8]:
        """Download and check the file, and make it the cache entry.

        Raises:
            _MirrorFailed: when this mirror does not give it.
        """
        for attempt in range(1, _ATTEMPTS_PER_MIRROR + 1):
            resumed = self._resume()
            try:
                self._transfer(url, resumed)
                return self._publish(resumed)
            except _BrokenOff:
                if attempt == _ATTEMPTS_PER_MIRROR:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _resume(self) -> int:
        """The bytes of the part that a transfer can go on from; 0 for none."""
        size = self._part.stat().st_size if self._part.exists() else 0
        if size <= self._maximum_bytes:
            return size
        self._part.unlink()
        return 0

    def _transfer(self, url: str, resumed: int) -> None:
        """Add what is missing to the part, or all of it where the mirror sends it from the start."""
        response = self._open(url, resumed)
        if response is None:
            return
        with response:
            start, total = self._extent(response, resumed)
            with self._part.open("ab" if start else "wb") as file:
                received = start
                while piece := self._read(response, total, received):
                    received += len(piece)
                    self._check_size(received)
                    file.write(piece)
                    if self._progress is not None:
                        self._progress(received, total)
        if total is not None and received < total:
            raise _BrokenOff(f"ended after {received} of {total} bytes")

    def _open(self, url: str, resumed: int) -> http.client.HTTPResponse | None:
        """The response, or None when the mirror has nothing beyond the bytes that are there."""
        headers = {"User-Agent": "qualgate", "Accept-Encoding": "identity"}
        if resumed:
            headers["Range"] = f"bytes={resumed}-"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  mirrors are code, not input
        try:
            response = urllib.request.urlopen(request, timeout=self._wait_s())  # noqa: S310  as above
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _RANGE_NOT_SATISFIABLE and resumed:
                    return None
                raise _MirrorFailed(f"HTTP status {error.code}") from error
        except urllib.error.URLError as error:
            raise _MirrorFailed(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _MirrorFailed(_words(error)) from error
        if not isinstance(response, http.client.HTTPResponse):
            response.close()
            raise _MirrorFailed("redirects to something other than HTTP")
        return response

    def _extent(self, response: http.client.HTTPResponse, resumed: int) -> tuple[int, int | None]:
        """Where the body starts in the file, and the file's size where the mirror says so."""
        start, total = 0, response.length
        if response.status == _PARTIAL_CONTENT:
            content_range = response.headers.get("Content-Range", "")
            match = re.fullmatch(r"bytes (\d{1,15})-\d{1,15}/(\d{1,15})", content_range)
            if match is None or int(match[1]) != resumed:
                self._part.unlink(missing_ok=True)
                raise _BrokenOff(f"sent the range {content_range!r}, expected one from byte {resumed}")
            start, total = resumed, int(match[2])
        elif response.status != _OK:
            raise _MirrorFailed(f"HTTP status {response.status}")
        self._check_size(total or 0)
        return start, total

    def _read(self, response: http.client.HTTPResponse, total: int | None, received: int) -> bytes:
        """The next piece of the body; empty at its end."""
        if total is not None and received >= total:
            return b""
        self._wait_s()
        size = _PIECE_BYTES if total is None else min(_PIECE_BYTES, total - received)
        try:
            # `read` would wait until the piece is full, for as long as any byte trickles in.
            return response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenOff(f"broke off after {received} bytes: {_words(error)}") from error

    def _check_size(self, size: int) -> None:
        if size > self._maximum_bytes:
            self._part.unlink(missing_ok=True)
            raise _MirrorFailed(f"sends {size} bytes or more, expected at most {self._maximum_bytes}")

    def _wait_s(self) -> float:
        """How long the next step may wait."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise _MirrorFailed("out of time; what has arrived is kept, and the next run goes on from it")
        return min(self._read_s, left_s)

    def _publish(self, resumed: int) -> npt.NDArray[np.uint8]:
        """Check the part and make it the cache entry; the part is gone afterwards, right or wrong."""
        data = self._part.read_bytes()
        try:
            content = parse_pinned(data, self._pin, self._part.name)
        except InputError as error:
            self._part.unlink()
            # Older bytes may be at fault and not this mirror: the next attempt starts from nothing.
            raise (_BrokenOff if resumed else _MirrorFailed)(error.what) from error
        write_atomically(self._entry, data)
        self._part.unlink()
        return content
