"""The IDX reader: what it reads, what it refuses and with which words, and what it costs to lie to it."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.datasets.idx import (
    MAXIMUM_BYTES,
    PinnedFile,
    find_pinned,
    parse_idx,
    parse_pinned,
    read_idx,
    read_pinned,
)
from orchestrator.datasets.mnist import IMAGES, LABELS
from orchestrator.errors import InputError

SHARED_MNIST = Path(__file__).parents[3].parent / "shared" / "mnist"


def header(*shape: int, kind: int = 0x08) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape)


SMALL = header(2, 3) + bytes(range(6))
PIN = PinnedFile("small-idx2-ubyte", hashlib.sha256(SMALL).hexdigest(), (2, 3))


@st.composite
def idx_files(draw: st.DrawFn) -> tuple[tuple[int, ...], bytes]:
    """A shape and the bytes of its pixels."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    size = math.prod(shape)
    return shape, draw(st.binary(min_size=size, max_size=size))


def plain(data: bytes) -> bytes:
    return data


both_forms = pytest.mark.parametrize("form", [plain, gzip.compress], ids=["plain", "gzip"])


# --- properties ----------------------------------------------------------------------------------


@both_forms
@given(file=idx_files())
def test_round_trip(form: Callable[[bytes], bytes], file: tuple[tuple[int, ...], bytes]) -> None:
    shape, pixels = file
    array = parse_idx(form(header(*shape) + pixels), "f")
    assert array.dtype == np.uint8
    assert (array.shape, array.tobytes()) == (shape, pixels)


@both_forms
@given(file=idx_files(), data=st.data())
def test_every_truncation_is_refused(
    form: Callable[[bytes], bytes], file: tuple[tuple[int, ...], bytes], data: st.DataObject
) -> None:
    whole = form(header(*file[0]) + file[1])
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError):
        parse_idx(whole[:cut], "f")


@both_forms
@given(file=idx_files(), tail=st.binary(min_size=1, max_size=40))
def test_every_trailing_byte_is_refused(
    form: Callable[[bytes], bytes], file: tuple[tuple[int, ...], bytes], tail: bytes
) -> None:
    with pytest.raises(InputError):
        parse_idx(form(header(*file[0]) + file[1]) + tail, "f")


@given(file=idx_files(), data=st.data(), value=st.integers(0, 255))
def test_a_changed_header_byte_is_refused_or_read_as_what_it_says(
    file: tuple[tuple[int, ...], bytes], data: st.DataObject, value: int
) -> None:
    shape, pixels = file
    changed = bytearray(header(*shape) + pixels)
    changed[data.draw(st.integers(0, 3 + 4 * len(shape)))] = value
    try:
        array = parse_idx(bytes(changed), "f")
    except InputError:
        return
    assert header(*array.shape) + array.tobytes() == changed


@given(noise=st.binary(max_size=200))
def test_noise_is_refused_or_read_as_what_it_says(noise: bytes) -> None:
    try:
        array = parse_idx(noise, "f")
    except InputError:
        return
    assert header(*array.shape) + array.tobytes() == noise


@given(data=st.data())
def test_a_changed_gzip_byte_never_yields_other_pixels(data: st.DataObject) -> None:
    changed = bytearray(gzip.compress(SMALL))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        array = parse_idx(bytes(changed), "f")
    except InputError:
        return
    # Time, level and system in gzip's header describe nothing of the content.
    assert array.tobytes() == SMALL[12:]


# --- refusals, word by word ----------------------------------------------------------------------

REFUSALS = {
    "empty": (b"", "header: found an empty file, expected an IDX file"),
    "too short": (b"\0\0", "magic number: found 00 00, expected 00 00 08"),
    "not IDX": (b"<html>", "magic number: found 3c 68 74 6d, expected 00 00 08"),
    "wrong data type": (
        header(2, kind=0x0D) + bytes(8),
        "magic number: found 00 00 0d 01, expected 00 00 08",
    ),
    "no dimension": (header() + b"x", "number of dimensions: found 0, expected 1 to 4"),
    "many dimensions": (header(1, 1, 1, 1, 1) + b"x", "number of dimensions: found 5, expected 1 to 4"),
    "header ends": (header(2, 3)[:10], "header: found 10 bytes, expected 12"),
    "zero length": (header(2, 0), r"dimensions: found \(2, 0\), expected at least 1 each"),
    "too large": (
        header(2**32 - 1, 2**32 - 1),
        r"dimensions: found \(4294967295, 4294967295\), expected at most 67108864",
    ),
    "pixels end": (SMALL[:-1], r"length: found 17 bytes, expected 18 bytes for shape \(2, 3\)"),
    "more pixels": (SMALL + b"\0", r"length: found more bytes, expected 18 bytes for shape \(2, 3\)"),
    "gzip ends": (gzip.compress(SMALL)[:-1], "gzip: found the end of the file"),
    "gzip checksum": (gzip.compress(SMALL)[:-8] + bytes(8), "gzip: found .*incorrect data check"),
    "gzip of nothing": (gzip.compress(b""), "header: found an empty file"),
    "two gzip members": (gzip.compress(SMALL) * 2, "gzip: found bytes after the stream"),
    "gzip padding": (gzip.compress(SMALL) + b"\0", "gzip: found bytes after the stream"),
    "more in gzip": (gzip.compress(SMALL + b"\0"), "length: found more bytes"),
    "gzip in gzip": (gzip.compress(gzip.compress(SMALL)), "magic number: found 1f 8b"),
}


@pytest.mark.parametrize(("data", "said"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_file_place_found_and_expected(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "digits-idx"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"digits-idx: {said}") as refused:
        read_idx(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "digits-idx"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(
        InputError, match=r"digits-idx: (cannot be read: No such file|file: found no regular)"
    ):
        read_idx(path)


@both_forms
def test_a_bound_counts_the_header(form: Callable[[bytes], bytes]) -> None:
    assert parse_idx(form(SMALL), "f", maximum_bytes=18).shape == (2, 3)
    with pytest.raises(InputError, match="at most 17 bytes"):
        parse_idx(form(SMALL), "f", maximum_bytes=17)


# --- cost ----------------------------------------------------------------------------------------


def deflate(head: bytes, zeros: int) -> bytes:
    """A gzip stream of a header and that many zero bytes, made without holding them."""
    compressor = zlib.compressobj(wbits=31)
    pieces = [compressor.compress(head)]
    pieces += [compressor.compress(bytes(2**20)) for _ in range(zeros // 2**20)]
    return b"".join([*pieces, compressor.flush()])


LIES = {
    "a header that claims much": header(MAXIMUM_BYTES - 8) + b"x",
    "the same in gzip": gzip.compress(header(MAXIMUM_BYTES - 8) + b"x"),
    "a gzip bomb behind a small header": deflate(header(10), 64 * 2**20),
    "a gzip bomb behind a huge header": deflate(header(2**32 - 1), 64 * 2**20),
    "a gzip bomb without a header": deflate(b"", 64 * 2**20),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_costs_no_memory(tmp_path: Path, lie: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(lie)
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_idx(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


# --- pins and names ------------------------------------------------------------------------------


@both_forms
def test_the_pinned_file_is_accepted(tmp_path: Path, form: Callable[[bytes], bytes]) -> None:
    (tmp_path / "f").write_bytes(form(SMALL))
    assert read_pinned(tmp_path / "f", PIN).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert PIN.size_bytes == len(SMALL)


@both_forms
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SMALL[:-1] + b"\x06", r"SHA-256 of the decompressed content: found [0-9a-f]{64}, expected"),
        (header(3, 2) + bytes(range(6)), r"dimensions: found \(3, 2\), expected \(2, 3\)"),
        (header(1, 3) + bytes(range(3)), r"dimensions: found \(1, 3\), expected \(2, 3\)"),
        (header(2, 4) + bytes(range(8)), r"dimensions: found \(2, 4\), expected at most 18 bytes"),
    ],
    ids=["pixel", "turned", "smaller", "larger"],
)
def test_any_other_file_is_refused(form: Callable[[bytes], bytes], data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"mirror: {said}"):
        parse_pinned(form(data), PIN, "mirror")


@pytest.mark.parametrize(
    "name", ["small-idx2-ubyte", "small.idx2-ubyte", "small-idx2-ubyte.gz", "small.idx2-ubyte.gz"]
)
def test_all_names_in_use_are_found_and_content_decides_the_form(tmp_path: Path, name: str) -> None:
    # A plain file under a .gz name is what some download tools leave behind.
    (tmp_path / name).write_bytes(SMALL)
    assert read_pinned(find_pinned(tmp_path, PIN), PIN).shape == (2, 3)


def test_a_missing_file_names_what_was_looked_for(tmp_path: Path) -> None:
    said = r"found none of small-idx2-ubyte, small\.idx2-ubyte, small-idx2-ubyte\.gz, small\.idx2-ubyte\.gz"
    with pytest.raises(InputError, match=said):
        find_pinned(tmp_path, PIN)
    with pytest.raises(InputError, match="found no such folder"):
        find_pinned(tmp_path / "missing", PIN)


@pytest.mark.skipif(not SHARED_MNIST.is_dir(), reason="no MNIST files in ../shared/mnist")
@pytest.mark.parametrize("pin", [IMAGES, LABELS], ids=lambda pin: pin.name)
def test_the_real_files_have_the_pinned_content(pin: PinnedFile) -> None:
    assert read_pinned(find_pinned(SHARED_MNIST, pin), pin).shape == pin.shape
