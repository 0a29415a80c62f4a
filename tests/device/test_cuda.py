"""The checks that need a CUDA device: `make device-check`. Elsewhere every one of them is skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import orchestrator.records

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

_MNIST = Path(__file__).parents[2].parent / "shared" / "mnist"
_WORKSPACES = (":16:8", ":4096:8", ":0:0")


def _run(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "orchestrator", "run", "--device", "cuda", "--json", "--quiet"]
    command += [] if "--numerics" in arguments else ["--numerics", "native"]
    command += ["--runs-dir", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def _groups(record: dict[str, Any]) -> dict[str, Any]:
    metadata = record["result"]["metadata"]
    return {name: metadata[name] for name in record["result"]["same_process_reference_hashes_matched"]}


def test_two_fresh_processes_give_the_same_eight_groups(tmp_path: Path) -> None:
    first, second = (_run(tmp_path, "--case", "digits") for _ in range(2))
    assert len(_groups(first)) == 8
    assert _groups(first) == _groups(second)


@pytest.fixture(scope="module")
def by_workspace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("workspaces")
    return {name: _run(folder, "--case", "digits", "--workspace", name) for name in _WORKSPACES}


def test_every_workspace_gives_the_same_predictions(by_workspace: dict[str, dict[str, Any]]) -> None:
    predictions = {record["result"]["predictions_file_sha256"] for record in by_workspace.values()}
    assert len(predictions) == 1


def test_the_workspace_that_was_asked_for_is_the_one_that_was_used(
    by_workspace: dict[str, dict[str, Any]],
) -> None:
    for name, record in by_workspace.items():
        assert record["result"]["cublas_workspace_config"] == name
        assert record["result"]["environment_was_set_externally"] is True


def test_the_allocator_was_fresh_and_holds_the_named_storage(
    by_workspace: dict[str, dict[str, Any]],
) -> None:
    for record in by_workspace.values():
        memory = record["result"]["memory"]
        inventory = record["result"]["buffer_inventory"]
        assert memory["allocated_before_prepare_bytes"] == 0
        assert inventory["unique_named_storage_bytes"] <= memory["allocated_after_invoke_bytes"]


def test_the_platform_names_gpu_and_cublas(by_workspace: dict[str, dict[str, Any]]) -> None:
    platform = by_workspace[":16:8"]["result"]["platform"]
    assert platform["gpu"] == torch.cuda.get_device_name()
    assert platform["cublas"].count(".") == 2


def test_portable_training_gives_a_gpu_the_bits_of_a_cpu_at_every_step(tmp_path: Path) -> None:
    # The shipped record was frozen on a CPU, with its trace.
    command = [sys.executable, "-m", "orchestrator", "gate", "--device", "cuda", "--json"]
    done = subprocess.run(
        [*command, "--runs-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["level_reached"] == "bitwise"
    (trace,) = tmp_path.glob("*/result.trace")
    (frozen,) = (Path(orchestrator.records.__file__).parent).glob("digits-portable-*.trace")
    assert trace.read_bytes() == frozen.read_bytes()


def test_a_trace_moves_no_bit_of_the_captured_task(tmp_path: Path) -> None:
    native = ("--case", "digits", "--numerics", "native")
    plain, traced = _run(tmp_path, *native), _run(tmp_path, *native, "--trace")
    assert _groups(plain) == _groups(traced)
    assert traced["result"]["trace"]["same_process_chain_heads_matched"] is True


@pytest.mark.skipif(not _MNIST.is_dir(), reason="../shared/mnist is not there")
def test_draw_0_gives_the_published_predictions(tmp_path: Path) -> None:
    record = _run(tmp_path, "--case", "mnist-0", "--idx-dir", str(_MNIST))
    published = "fce8a9458d2158537c7d6207fb0c8e9cfcbba007e7a748976bf3e7cd002729f3"
    assert record["result"]["predictions_file_sha256"] == published
    assert record["result"]["buffer_inventory"]["unique_named_storage_bytes"] == 13_960_864


def test_energy_is_measured_or_said_to_be_unavailable(tmp_path: Path) -> None:
    record = _run(tmp_path, "--case", "digits", "--energy")
    energy = record["result"]["energy"]
    assert energy.get("unavailable") or energy["summary"]["idle_adjusted_mj_per_task"]["mean"] > 0


@pytest.mark.parametrize("scope", ["task", "training"])
def test_the_profiled_range_runs(tmp_path: Path, scope: str) -> None:
    record = _run(tmp_path, "--mode", "profile", "--scope", scope, "--repeats", "1")
    assert record["result"]["profile"]["range"] == "cudaProfilerStart/cudaProfilerStop"


def test_the_captured_task_agrees_with_ordinary_autograd(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orchestrator", "validate", "--device", "cuda", "--json"]
    command += ["--runs-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["device"] == "cuda"
    assert {(case["numerics"], case["config"]["depth"]) for case in report["cases"]} == {
        ("native", 1), ("native", 2), ("portable", 1), ("portable", 2),
    }  # fmt: skip
