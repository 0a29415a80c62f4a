"""Strict reader of IDX, the file format of MNIST: a header of big-endian numbers, then raw pixels.

    00 00 08 D    two zero bytes, the data type (08: unsigned byte), the number of dimensions
    D times 4     the length of each dimension, big-endian
    the rest      exactly their product in bytes

Plain or gzip is told by content, not by name. Nothing in a file is believed: what the header implies is
compared with a stated bound before anything is read, and no more than that and one byte is ever read or
decompressed, so that neither a huge header nor a gzip bomb costs memory. Every refusal names the file,
the place in it, what was found and what was expected.
"""

from __future__ import annotations

import hashlib
import io
import math
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.errors import InputError

# The largest file of MNIST, its training images, has 47,040,016 bytes.
MAXIMUM_BYTES = 64 * 1024 * 1024

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_MAXIMUM_DIMENSIONS = 4
_PIECE = 64 * 1024


@dataclass(frozen=True)
class PinnedFile:
    """An IDX file that is known in advance.

    name: of the decompressed file, as its publisher calls it (train-images-idx3-ubyte).
    sha256: of the decompressed file, header included.
    shape: its dimensions, (60000, 28, 28).
    """

    name: str
    sha256: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the decompressed file."""
        return _header_bytes(len(self.shape)) + math.prod(self.shape)


def read_idx(path: Path, *, maximum_bytes: int = MAXIMUM_BYTES) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, plain or gzip.

    Args:
        path: A regular file.
        maximum_bytes: The largest decompressed size, header included, that is accepted.

    Returns:
        uint8, in the shape that the header gives.

    Raises:
        InputError: for a file that cannot be read or is not exactly one IDX file.
    """
    return _array(*_read_path(path, maximum_bytes))


def parse_idx(data: bytes, where: str, *, maximum_bytes: int = MAXIMUM_BYTES) -> npt.NDArray[np.uint8]:
    """The same as `read_idx` for bytes in memory; `where` names them in errors."""
    return _array(*_read(io.BytesIO(data), where, maximum_bytes))


def read_pinned(path: Path, pin: PinnedFile) -> npt.NDArray[np.uint8]:
    """Read an IDX file that must be the pinned one, plain or gzip.

    Returns:
        uint8, in the pinned shape.

    Raises:
        InputError: as `read_idx`, and for another shape or another SHA-256.
    """
    return _pinned(*_read_path(path, pin.size_bytes), pin, str(path))


def parse_pinned(data: bytes, pin: PinnedFile, where: str) -> npt.NDArray[np.uint8]:
    """The same as `read_pinned` for bytes in memory; `where` names them in errors."""
    return _pinned(*_read(io.BytesIO(data), where, pin.size_bytes), pin, where)


def find_pinned(folder: Path, pin: PinnedFile) -> Path:
    """The pinned file in a folder, under any of the names that are in use for it.

    Raises:
        InputError: when there is none; names what was looked for.
    """
    # Some copies write the last dash as a dot: train-images.idx3-ubyte.
    dotted = pin.name.replace("-idx", ".idx")
    names = (pin.name, dotted, f"{pin.name}.gz", f"{dotted}.gz")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    what = f"found none of {', '.join(names)}" if folder.is_dir() else "found no such folder"
    raise InputError(what, where=str(folder), remedy="--idx-dir takes the folder of MNIST's training files")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""


class _GzipMember:
    """The decompressed content of a stream that holds exactly one gzip member.

    `gzip.GzipFile` would accept padding and further members, and buffers more than it is asked for.
    """

    def __init__(self, stream: _Readable, where: str) -> None:
        self._stream = stream
        self._where = where
        self._inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def read(self, size: int, /) -> bytes:
        while not self._inflater.eof:
            data = self._inflater.unconsumed_tail or self._stream.read(_PIECE)
            if not data:
                raise _refusal(self._where, "gzip", "the end of the file", "the rest of the stream")
            try:
                piece = self._inflater.decompress(data, size)
            except zlib.error as error:
                # Wrong checksums and lengths end here as well.
                raise _refusal(self._where, "gzip", str(error), "an intact stream") from error
            if piece:
                return piece
        if self._inflater.unused_data or self._stream.read(1):
            raise _refusal(self._where, "gzip", "bytes after the stream", "the end of the file")
        return b""


def _read_path(path: Path, maximum_bytes: int) -> tuple[tuple[int, ...], bytearray]:
    try:
        # Asked first: opening a named pipe would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refusal(str(path), "file", "no regular file", "an IDX file, plain or gzip")
        with path.open("rb") as file:
            return _read(file, str(path), maximum_bytes)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


class _Seekable(_Readable, Protocol):
    def seek(self, offset: int, /) -> int:
        """Go to a byte."""


def _read(stream: _Seekable, where: str, maximum_bytes: int) -> tuple[tuple[int, ...], bytearray]:
    """The shape that the header gives, and the whole decompressed content, header included."""
    magic = stream.read(len(_GZIP_MAGIC))
    stream.seek(0)
    source: _Readable = _GzipMember(stream, where) if magic == _GZIP_MAGIC else stream
    content = bytearray()
    _fill(content, source, _header_bytes(0))
    dimensions = _check_magic(content, where)
    _fill(content, source, _header_bytes(dimensions))
    shape = _check_shape(content, dimensions, where, maximum_bytes)
    wanted = _header_bytes(dimensions) + math.prod(shape)
    # One byte more than wanted: it shows trailing bytes, and makes gzip verify its checksum.
    _fill(content, source, wanted + 1)
    if len(content) != wanted:
        found = f"{len(content)} bytes" if len(content) < wanted else "more bytes"
        raise _refusal(where, "length", found, f"{wanted} bytes for shape {shape}")
    return shape, content


def _fill(content: bytearray, source: _Readable, size: int) -> None:
    """Append to `content` until it holds `size` bytes or the source ends."""
    # Piece by piece, so that memory grows with what is there and not with what a header claims.
    while len(content) < size and (piece := source.read(min(_PIECE, size - len(content)))):
        content += piece


def _header_bytes(dimensions: int) -> int:
    return 4 + 4 * dimensions


def _check_magic(content: bytearray, where: str) -> int:
    """The number of dimensions."""
    if not content:
        raise _refusal(where, "header", "an empty file", "an IDX file, plain or gzip")
    expected = f"00 00 08 and 01 to {_MAXIMUM_DIMENSIONS:02}"
    if len(content) < _header_bytes(0) or content[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
        raise _refusal(where, "magic number", content.hex(" "), expected)
    if not 1 <= content[3] <= _MAXIMUM_DIMENSIONS:
        raise _refusal(where, "number of dimensions", content[3], f"1 to {_MAXIMUM_DIMENSIONS}")
    return content[3]


def _check_shape(content: bytearray, dimensions: int, where: str, maximum_bytes: int) -> tuple[int, ...]:
    header = _header_bytes(dimensions)
    if len(content) < header:
        raise _refusal(where, "header", f"{len(content)} bytes", f"{header}")
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4))
    if 0 in shape:
        raise _refusal(where, "dimensions", shape, "at least 1 each")
    if header + math.prod(shape) > maximum_bytes:
        raise _refusal(where, "dimensions", shape, f"at most {maximum_bytes} bytes in all")
    return shape


def _array(shape: tuple[int, ...], content: bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8, offset=_header_bytes(len(shape))).reshape(shape)


def _pinned(shape: tuple[int, ...], content: bytearray, pin: PinnedFile, where: str) -> npt.NDArray[np.uint8]:
    if shape != pin.shape:
        raise _refusal(where, "dimensions", shape, f"{pin.shape}")
    if (found := hashlib.sha256(content).hexdigest()) != pin.sha256:
        raise _refusal(where, "SHA-256 of the decompressed content", found, f"{pin.sha256} ({pin.name})")
    return _array(shape, content)


def _refusal(where: str, place: str, found: str | int | Sequence[int], expected: str) -> InputError:
    return InputError(f"{place}: found {found}, expected {expected}", where=where)
