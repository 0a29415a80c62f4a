"""The wheel holds what the command needs at run time, works where it is unpacked, and brings no tests."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _setuptools_is_new_enough() -> bool:
    try:
        return int(metadata.version("setuptools").partition(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, unpacked."""
    if not _setuptools_is_new_enough():
        pytest.skip("building a wheel here needs setuptools 77 or newer")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # A copy: building leaves folders behind, and two test runs must not meet in them.
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(source)], check=True, capture_output=True)
    (wheel,) = folder.glob("qualgate-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_code_schemas_records_and_data(unpacked: Path) -> None:
    for name in (
        "orchestrator/cli.py",
        "orchestrator/datasets/digits.csv.gz",
        "orchestrator/protocols/mnist-medium.toml",
        "orchestrator/records/published/mnist-medium-a100.json",
        "fixture/__main__.py",
        "fixture/numerics/native.py",
        "schemas/run-record.v2.schema.json",
    ):
        assert (unpacked / name).is_file(), name
    assert list((unpacked / "orchestrator" / "records").glob("*.json"))
    assert not list(unpacked.rglob("test_*.py"))


def test_every_source_file_of_the_checkout_is_in_the_wheel(unpacked: Path) -> None:
    for package in ("orchestrator", "fixture", "schemas"):
        tracked = subprocess.run(
            ["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
        assert tracked
        packed = (".py", ".json", ".toml", ".trace", ".csv.gz")
        missing = [name for name in tracked if name.endswith(packed) and not (unpacked / name).is_file()]
        assert not missing


@pytest.mark.parametrize("arguments", [("doctor", "--json"), ("data", "digits"), ("schema", "run-record.v1")])
def test_the_command_works_from_the_wheel(unpacked: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
