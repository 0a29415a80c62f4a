"""The rooms and the direction of their dependencies, checked in the source and in a running process."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli import app

ROOT = Path(__file__).parents[1]
PURE = (
    "errors", "json_text", "models", "codec", "hashing", "fingerprint", "environment", "verdict", "render",
    "availability", "reports", "costs", "ratios", "render_costs", "study_plan", "study_rows",
    "ncu", "printed_numbers", "render_profile", "render_cases", "accuracy", "render_qualify",
    "render_validation", "trace", "tensor_difference",
    *(
        f"audit/{name}"
        for name in (
            "findings", "records", "task_layout", "memory", "inventory", "hashes", "validation", "energy",
            "energy_quality", "command", "environment", "run", "qualification", "qualify", "npy", "render",
            "ncu", "ncu_profile", "trace",
        )
    ),
)  # fmt: skip
EDGES = (
    "store", "process", "probe", "runner", "qualification", "gate", "schema_export", "cli", "published",
    "comparison", "data_command", "doctor", "study", "signing", "profiling", "side_by_side", "locking",
    "protocol", "qualify", "validation_run", "trace_file", "bisection", "record_diff",
    "audit.artefacts", "audit.evidence", "audit.trace_files",
)  # fmt: skip


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at the top or inside a function, type-checking blocks left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("path", sources("orchestrator"), ids=lambda path: path.stem)
def test_the_orchestrator_never_imports_torch(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] == "torch"]


@pytest.mark.parametrize("path", sources("fixture"), ids=lambda path: path.stem)
def test_the_fixture_imports_nothing_of_ours_by_package(path: Path) -> None:
    assert not [
        name for name in imports(path) if name.split(".")[0] in ("orchestrator", "fixture", "schemas")
    ]


@pytest.mark.parametrize("path", sources("orchestrator"), ids=lambda path: path.stem)
def test_only_hashing_reaches_into_the_fixture(path: Path) -> None:
    reached = {name for name in imports(path) if name.split(".")[0] == "fixture"}
    assert not reached or path.name == "hashing.py"
    assert all(name.startswith("fixture.digests") for name in reached)


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_edge(name: str) -> None:
    edges = {f"orchestrator.{edge}" for edge in EDGES}
    assert not edges & set(imports(ROOT / "orchestrator" / f"{name}.py"))


def loaded_by(*arguments: str) -> set[str]:
    """The heavy modules that are loaded once a command has answered."""
    script = (
        "import sys\n"
        f"sys.argv = ['qualgate', *{arguments!r}]\n"
        "from orchestrator.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.rsplit("LOADED", 1)[1].split())


def test_help_loads_nothing_heavy() -> None:
    # typer itself brings rich to print help, and pydantic; our models and their cost stay out.
    assert not {"torch", "numpy", "jsonschema", "orchestrator.models"} & loaded_by("--help")


@pytest.mark.parametrize(
    "command", [str(command.callback.__name__) for command in app.registered_commands if command.callback]
)
def test_help_of_a_command_loads_no_models(command: str) -> None:
    assert not {"torch", "numpy", "jsonschema", "orchestrator.models"} & loaded_by(command, "--help")


def test_help_of_the_study_loads_no_models() -> None:
    assert not {"torch", "numpy", "jsonschema", "orchestrator.models"} & loaded_by(
        "study", "workspaces", "--help"
    )


def test_an_audit_of_a_record_needs_neither_torch_nor_numpy() -> None:
    seed = str(ROOT / "tests" / "data" / "a100-measure-task.json")
    loaded = loaded_by("audit", seed)
    assert "orchestrator.audit.records" in loaded
    # Nor what prints tables: a sound record is one line.
    assert not {"torch", "numpy", "rich.table", "orchestrator.runner"} & loaded


def test_compare_needs_neither_torch_nor_numpy() -> None:
    seed = str(ROOT / "tests" / "data" / "a100-measure-task.json")
    assert not {"torch", "numpy"} & loaded_by("compare", seed, seed)


def test_no_file_names_a_machine_of_ours() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in tracked.stdout.split("\0") if name and not name.startswith("tests/data/")]
    for name in names:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".json", ".yml") or path.name == "Makefile":
            assert "/work" + "/main" not in path.read_text(), name
