"""Arrays in NPY and NPZ files, as far as an audit needs them: header and raw bytes, without NumPy. Pure.

Source of the format: NumPy Enhancement Proposal 1 (numpy.lib.format), versions 1.0 and 2.0.
"""

from __future__ import annotations

import ast
import hashlib
import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from math import prod

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4}
_LONGEST_HEADER = 4096
_LARGEST_ARCHIVE = 2**30
"""Bytes that an archive's members may have: more than the largest one that a task reads."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes
# What zipfile raises for bytes that lie: a negative offset, for one, ends in a ValueError.
_BROKEN_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError, ValueError,
)  # fmt: skip
_DTYPES = {"<f4": ("float32", 4), "<i8": ("int64", 8)}


class NotNpy(ValueError):
    """Bytes that are no array of the kinds that qualgate writes."""


@dataclass(frozen=True)
class NpyFacts:
    """Shape, dtype and SHA-256 of the raw bytes of an array in C order."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str


def npy_facts(data: bytes) -> NpyFacts:
    """What an NPY file holds.

    Raises:
        NotNpy: for anything but a little-endian float32 or int64 array in C order, whole.
    """
    length_bytes = _LENGTH_BYTES.get(data[6:8]) if data.startswith(_MAGIC) else None
    if length_bytes is None:
        raise NotNpy("bytes that do not begin as an NPY file")
    start = 8 + length_bytes
    length = int.from_bytes(data[8:start], "little")
    if length > _LONGEST_HEADER:
        raise NotNpy(f"an NPY header of {length} bytes")
    shape, dtype, item_bytes = _header(data[start : start + length])
    raw = memoryview(data)[start + length :]
    wanted = prod(shape) * item_bytes
    if len(raw) != wanted:
        raise NotNpy(f"{len(raw)} bytes of data for {dtype}{shape}, which has {wanted}")
    return NpyFacts(shape, dtype, hashlib.sha256(raw).hexdigest())


def _header(text: bytes) -> tuple[tuple[int, ...], str, int]:
    try:
        header = ast.literal_eval(text.decode("latin-1"))
        shape, in_columns, (dtype, item_bytes) = (
            header["shape"],
            header["fortran_order"],
            _DTYPES[header["descr"]],
        )
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError):
        raise NotNpy(f"an NPY header that reads {text[:80]!r}") from None
    if type(shape) is not tuple or not all(type(size) is int and size >= 0 for size in shape):
        raise NotNpy(f"an NPY header with shape {shape!r}")
    if in_columns is not False and len(shape) > 1:
        raise NotNpy("an array in Fortran order")
    return shape, dtype, item_bytes


def archive_hashes(data: bytes) -> dict[str, str]:
    """SHA-256 of the raw bytes of each array of an NPZ archive, by its name.

    Raises:
        NotNpy: when it is no such archive.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _member_hashes(archive)
    except NotNpy:
        raise
    except _BROKEN_ARCHIVE as error:
        raise NotNpy(f"no archive: {error}") from error


def _member_hashes(archive: zipfile.ZipFile) -> dict[str, str]:
    items = archive.infolist()
    size = sum(item.file_size for item in items)
    if size > _LARGEST_ARCHIVE:
        raise NotNpy(f"an archive that declares {size} bytes")
    if any(item.compress_type not in _COMPRESSIONS for item in items):
        raise NotNpy("an archive with a compression that NumPy does not write")
    hashes: dict[str, str] = {}
    for item in items:
        name = item.filename.removesuffix(".npy")
        if name in hashes:
            raise NotNpy(f"an archive that has {name} twice")
        hashes[name] = npy_facts(archive.read(item)).sha256
    return hashes
