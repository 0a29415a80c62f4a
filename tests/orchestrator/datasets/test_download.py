"""Downloads against a server on this machine that cuts, lies, stalls, and sometimes serves."""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from orchestrator.datasets.download import TimeLimits, default_cache_dir, fetch
from orchestrator.datasets.idx import PinnedFile
from orchestrator.errors import InputError, StorageError, UsageError

PIXELS = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (50, 28, 28)).astype(np.uint8)
CONTENT = struct.pack(">BBBBIII", 0, 0, 8, 3, *PIXELS.shape) + PIXELS.tobytes()
BODY = gzip.compress(CONTENT, mtime=0)
PIN = PinnedFile("tiny-idx3-ubyte", hashlib.sha256(CONTENT).hexdigest(), PIXELS.shape)
ENTRY, PART = "tiny-idx3-ubyte.gz", "tiny-idx3-ubyte.gz.part"
LIMITS = TimeLimits(read_s=5, file_s=20)


# --- the server ----------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """One request, answered by the next reply of its server's script; the last reply is repeated."""

    server: Mirror

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        reply = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        with suppress(BrokenPipeError, ConnectionResetError):
            reply(self)

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


Reply = Callable[[Handler], None]


class Mirror(ThreadingHTTPServer):
    """A server with a script of replies, and a note of the ranges that it was asked for."""

    daemon_threads = True

    def __init__(self, *script: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = list(script)
        self.ranges: list[str | None] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mnist/"

    def stop(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


def whole(body: bytes) -> Reply:
    """A server that knows no ranges."""

    def reply(handler: Handler) -> None:
        handler.head(200, Content_Length=len(body))
        handler.wfile.write(body)

    return reply


def ranged(body: bytes, cut: int | None = None) -> Reply:
    """A server that knows ranges, and hangs up after `cut` bytes of the file."""

    def reply(handler: Handler) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "bytes=0-"))
        assert match is not None
        start = int(match[1])
        if start >= len(body):
            handler.head(416, Content_Range=f"bytes */{len(body)}", Content_Length=0)
            return
        length, place = len(body) - start, f"bytes {start}-{len(body) - 1}/{len(body)}"
        if "Range" in handler.headers:
            handler.head(206, Content_Length=length, Content_Range=place)
        else:
            handler.head(200, Content_Length=length)
        handler.wfile.write(body[start:cut])

    return reply


def status(code: int) -> Reply:
    return lambda handler: handler.head(code, Content_Length=0)


def shifted(handler: Handler) -> None:
    """The right bytes, from another place than asked for."""
    handler.head(206, Content_Length=len(BODY), Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}")
    handler.wfile.write(BODY)


def announcing_too_much(handler: Handler) -> None:
    handler.head(200, Content_Length=10**12)


def endless(handler: Handler) -> None:
    handler.head(200)
    while True:
        handler.wfile.write(bytes(8192))


def chunked(handler: Handler) -> None:
    handler.protocol_version = "HTTP/1.1"
    handler.head(200, Transfer_Encoding="chunked")
    for start in range(0, len(BODY), 5000):
        piece = BODY[start : start + 5000]
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\n\r\n")


def stalling(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY))
    handler.wfile.write(BODY[:1000])
    handler.server.closing.wait(10)


def trickling(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY))
    for at in range(len(BODY)):
        handler.wfile.write(BODY[at : at + 1])
        if handler.server.closing.wait(0.02):
            return


Serve = Callable[..., Mirror]


@contextmanager
def running(mirror: Mirror) -> Iterator[Mirror]:
    thread = threading.Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield mirror
    finally:
        mirror.stop()
        thread.join()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(running(Mirror(*script)))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def download(cache: Path, *mirrors: Mirror, limits: TimeLimits = LIMITS) -> npt.NDArray[np.uint8]:
    return fetch(PIN, cache, base_urls=[mirror.url for mirror in mirrors], limits=limits)


def assert_fetched(cache: Path, array: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(array, PIXELS, strict=True)
    assert (cache / ENTRY).read_bytes() == BODY
    assert not (cache / PART).exists()


def assert_nothing_kept(cache: Path) -> None:
    assert not (cache / ENTRY).exists()
    assert not (cache / PART).exists()


# --- a mirror that serves ------------------------------------------------------------------------


def test_a_download_is_kept_and_not_repeated(tmp_path: Path, serve: Serve) -> None:
    mirror, cache = serve(ranged(BODY)), tmp_path / "not" / "there" / "yet"
    assert_fetched(cache, download(cache, mirror))
    assert_fetched(cache, download(cache, mirror))
    assert mirror.ranges == [None]


def test_a_body_without_a_length_is_read_to_its_end(cache: Path, serve: Serve) -> None:
    assert_fetched(cache, download(cache, serve(chunked)))


def test_a_mirror_may_send_the_file_decompressed(cache: Path, serve: Serve) -> None:
    # Storage services do so where an object is marked as gzip-encoded.
    np.testing.assert_array_equal(download(cache, serve(whole(CONTENT))), PIXELS)


def test_progress_counts_a_resumed_file_as_a_whole(cache: Path, serve: Serve) -> None:
    seen: list[tuple[int, int | None]] = []
    mirror = serve(ranged(BODY, cut=10_000), ranged(BODY))
    fetch(PIN, cache, base_urls=[mirror.url], progress=lambda received, total: seen.append((received, total)))
    assert seen == sorted(seen, key=lambda step: step[0])
    assert seen[-1] == (len(BODY), len(BODY))
    assert {total for _, total in seen} == {len(BODY)}


def test_processes_that_start_together_download_once(cache: Path, serve: Serve) -> None:
    mirror = serve(ranged(BODY))
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(lambda _: download(cache, mirror), range(4)))
    for array in arrays:
        assert_fetched(cache, array)
    assert mirror.ranges == [None]


# --- resuming ------------------------------------------------------------------------------------


def test_a_cut_transfer_goes_on_where_it_ended(cache: Path, serve: Serve) -> None:
    mirror = serve(ranged(BODY, cut=10_000), ranged(BODY, cut=20_000), ranged(BODY))
    assert_fetched(cache, download(cache, mirror))
    assert mirror.ranges == [None, "bytes=10000-", "bytes=20000-"]


def test_the_next_mirror_goes_on_where_the_first_gave_up(cache: Path, serve: Serve) -> None:
    first, second = serve(ranged(BODY, cut=10_000)), serve(ranged(BODY))
    assert_fetched(cache, download(cache, first, second))
    assert first.ranges == [None, "bytes=10000-", "bytes=10000-"]
    assert second.ranges == ["bytes=10000-"]


def test_an_interrupted_run_is_resumed_by_the_next(cache: Path, serve: Serve) -> None:
    def interrupt(received: int, total: int | None) -> None:
        raise KeyboardInterrupt

    mirror = serve(ranged(BODY, cut=10_000), ranged(BODY))
    with pytest.raises(KeyboardInterrupt):
        fetch(PIN, cache, base_urls=[mirror.url], limits=LIMITS, progress=interrupt)
    kept = (cache / PART).stat().st_size
    assert 0 < kept <= 10_000
    assert_fetched(cache, download(cache, mirror))
    assert mirror.ranges == [None, f"bytes={kept}-"]


PARTS = {
    "the beginning": (BODY[:10_000], 1),
    "all of it": (BODY, 1),
    "bytes of another file": (bytes(10_000), 2),
    "more than the file": (BODY + b"more", 2),
    "more than any such file": (bytes(10 * len(BODY)), 1),
}


@pytest.mark.parametrize(("part", "requests"), PARTS.values(), ids=PARTS)
def test_whatever_part_an_earlier_run_left(cache: Path, serve: Serve, part: bytes, requests: int) -> None:
    (cache / PART).write_bytes(part)
    mirror = serve(ranged(BODY))
    assert_fetched(cache, download(cache, mirror))
    assert len(mirror.ranges) == requests


@pytest.mark.parametrize("part", [BODY[:10_000], bytes(10_000)], ids=["right", "wrong"])
def test_a_mirror_that_ignores_the_range_restarts_the_file(cache: Path, serve: Serve, part: bytes) -> None:
    (cache / PART).write_bytes(part)
    mirror = serve(whole(BODY))
    assert_fetched(cache, download(cache, mirror))
    assert mirror.ranges == ["bytes=10000-"]


def test_a_mirror_that_answers_another_range_is_asked_for_all(cache: Path, serve: Serve) -> None:
    (cache / PART).write_bytes(BODY[:10_000])
    mirror = serve(shifted, ranged(BODY))
    assert_fetched(cache, download(cache, mirror))
    assert mirror.ranges == ["bytes=10000-", None]


# --- mirrors that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [204, 403, 404, 416, 503])
def test_after_a_refusal_the_next_mirror_is_asked(cache: Path, serve: Serve, code: int) -> None:
    first, second = serve(status(code)), serve(ranged(BODY))
    assert_fetched(cache, download(cache, first, second))
    assert len(first.ranges) == 1


BAD = {
    "another file": (whole(gzip.compress(CONTENT[:-1] + b"\0")), "SHA-256"),
    "a login page": (whole(b"<html>Welcome to the hotel</html>"), "magic number: found 3c 68 74 6d"),
    "nothing": (whole(b""), "an empty file"),
    "a gzip bomb": (whole(gzip.compress(CONTENT + bytes(50_000_000))[:30_000]), "found"),
    "too much, announced": (announcing_too_much, "sends 1000000000000 bytes or more"),
    "too much, unannounced": (endless, "bytes or more, expected at most"),
    "not found": (status(404), "HTTP status 404"),
}


@pytest.mark.parametrize(("reply", "said"), BAD.values(), ids=BAD)
def test_a_bad_download_is_told_in_one_line_and_leaves_nothing(
    cache: Path, serve: Serve, reply: Reply, said: str
) -> None:
    mirror = serve(reply)
    with pytest.raises(InputError, match=said) as refused:
        download(cache, mirror)
    line = str(refused.value)
    assert line.startswith("tiny-idx3-ubyte: cannot be downloaded: ")
    assert line.endswith("give the folder of MNIST's training files with --idx-dir")
    assert f"{mirror.url}{ENTRY}" in line
    assert "\n" not in line
    assert_nothing_kept(cache)
    assert len(mirror.ranges) == 1


def test_bad_content_is_replaced_by_the_next_mirror(cache: Path, serve: Serve) -> None:
    assert_fetched(cache, download(cache, serve(whole(BODY[:-1] + b"\0")), serve(ranged(BODY))))


def test_a_refused_connection_names_its_reason_and_the_way_without_a_network(cache: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(InputError, match=r"Connection refused.*--idx-dir"):
            fetch(PIN, cache, base_urls=[url, url], limits=LIMITS)


def test_a_stalled_transfer_is_given_up_and_kept(cache: Path, serve: Serve) -> None:
    with pytest.raises(InputError, match="broke off after 1000 bytes: timed out"):
        download(cache, serve(stalling), limits=TimeLimits(read_s=0.1, file_s=20))
    assert (cache / PART).read_bytes() == BODY[:1000]
    assert not (cache / ENTRY).exists()


def test_a_trickle_does_not_last_for_ever(cache: Path, serve: Serve) -> None:
    mirrors = [serve(trickling), serve(ranged(BODY))]
    with pytest.raises(InputError, match="out of time"):
        download(cache, *mirrors, limits=TimeLimits(read_s=5, file_s=0.3))
    part = (cache / PART).read_bytes()
    assert part
    assert BODY.startswith(part)
    assert mirrors[1].ranges == []


# --- the cache -----------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    return data[:20_000] + bytes([data[20_000] ^ 1]) + data[20_001:]


DAMAGED = {
    "flipped bit": flipped(BODY),
    "truncated": BODY[:-5],
    "empty": b"",
    "plain, wrong": flipped(CONTENT),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_entry_is_fetched_again(cache: Path, serve: Serve, damaged: bytes) -> None:
    (cache / ENTRY).write_bytes(damaged)
    assert_fetched(cache, download(cache, serve(ranged(BODY))))


def test_a_damaged_entry_that_cannot_be_fetched_again_is_explained(cache: Path, serve: Serve) -> None:
    (cache / ENTRY).write_bytes(BODY[:-5])
    with pytest.raises(InputError, match=r"the cached file is damaged \(gzip.*\), .*HTTP status 503"):
        download(cache, serve(status(503)))


def test_a_cache_that_cannot_be_made_is_a_storage_error(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="the cache cannot be used: Not a directory"):
        download(tmp_path / "file" / "cache", serve(ranged(BODY)))


@pytest.mark.parametrize(
    ("xdg", "expected"),
    [("/xdg", "/xdg/qualgate"), (None, "/home/me/.cache/qualgate"), ("", "/home/me/.cache/qualgate"),
     ("relative", "/home/me/.cache/qualgate")],
)  # fmt: skip
def test_default_cache_dir(monkeypatch: pytest.MonkeyPatch, xdg: str | None, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    if xdg is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert default_cache_dir() == Path(expected)


def test_no_home_directory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="set XDG_CACHE_HOME"):
        default_cache_dir()
