"""A fresh run of a small case, made once and shared; what a test breaks, it copies first."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest

from orchestrator.cases import named_case
from orchestrator.environment import default_settings
from orchestrator.runner import Run, RunOptions, new_run_folder, run_case
from tests.orchestrator.audit.lies import Json


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of a small synthetic case; its folder must not be edited."""
    folder = new_run_folder(tmp_path_factory.mktemp("runs"), "synthetic-300-100")
    case = named_case("synthetic-300-100")
    return run_case(case, default_settings(platform.machine()), RunOptions(repeats=2), folder)


@pytest.fixture
def record(fresh: Run) -> Json:
    """The run's record, parsed."""
    value: Json = json.loads((fresh.folder / "record.json").read_bytes())
    return value


@pytest.fixture
def folder(fresh: Run, tmp_path: Path) -> Path:
    """An evidence folder with a copy of the run in it, `runs/one`, to be broken."""
    shutil.copytree(fresh.folder, tmp_path / "runs" / "one")
    return tmp_path
