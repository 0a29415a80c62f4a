"""How the orchestrator hashes: files and bytes here, arrays by the fixture's own rule.

Arrays, settings and their descriptions are hashed by `fixture.digests`, re-exported here, so that both
sides of the process boundary run the same lines. Nothing else in the orchestrator imports the fixture.
The re-exports load on first use: a command that hashes only files never pays for NumPy.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import InputError

if TYPE_CHECKING:
    from fixture.digests import ArrayFacts, array_sha256, describe, environment_sha256

__all__ = [
    "ArrayFacts",
    "array_sha256",
    "bytes_sha256",
    "describe",
    "environment_sha256",
    "file_sha256",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fixture.digests"), name)


def bytes_sha256(data: bytes) -> str:
    """SHA-256 of bytes, as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, as 64 lower-case hex digits; reads it piece by piece.

    Raises:
        InputError: when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
