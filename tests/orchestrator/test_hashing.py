"""The hash rules against published vectors, and the promise that hashing files needs no NumPy."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator import hashing
from orchestrator.errors import InputError

ROOT = Path(__file__).parents[2]
# FIPS 180-4's example.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_bytes_and_files_hash_alike(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert hashing.bytes_sha256(b"abc") == ABC
    assert hashing.file_sha256(tmp_path / "f") == ABC


def test_a_file_beyond_any_buffer_is_hashed_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 12_345
    (tmp_path / "f").write_bytes(data)
    assert hashing.file_sha256(tmp_path / "f") == hashlib.sha256(data).hexdigest()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.json: cannot be read: No such file"):
        hashing.file_sha256(tmp_path / "gone.json")


def test_arrays_are_hashed_by_the_rule_of_the_fixture() -> None:
    little = np.array([97, 98, 99], dtype=np.uint8)
    assert hashing.array_sha256(little) == ABC
    assert hashing.describe(little)["shape"] == [3]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="array_md5"):
        _ = hashing.array_md5


def test_importing_the_rules_and_hashing_files_does_not_load_numpy() -> None:
    script = (
        "import sys, orchestrator.hashing as h, orchestrator.datasets\n"
        "h.bytes_sha256(b'')\n"
        "assert 'numpy' not in sys.modules\n"
        "h.array_sha256\n"
        "assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
