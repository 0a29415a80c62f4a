"""`gate` and `bisect` name the step and the tensor: real runs of a checkout with one planted fault."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.orchestrator.checkout import Checkout

CASE = ("--case", "synthetic-300-50")
FAULT = "epoch 1, step 2, in velocities.weights.2"


def plant(checkout: Checkout) -> None:
    """The lowest mantissa bit of one velocity, in every task's last step."""
    checkout.edit(
        "fixture/numerics/portable.py",
        "    torch._foreach_add_(velocities, gradients)\n",
        "    torch._foreach_add_(velocities, gradients)\n"
        "    _CALLS.append(0)\n"
        "    if len(_CALLS) % 6 == 0:\n"
        "        velocities[2][3, 4:5].view(torch.int32).bitwise_xor_(1)\n",
    )
    checkout.edit("fixture/numerics/portable.py", "NAME = ", "_CALLS: list[int] = []\nNAME = ")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with a frozen, traced record and a traced run."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("sound"))
    freezing = checkout.qualgate("freeze", *CASE, "--records", "frozen", "--reason", "a trace to part from")
    assert freezing.returncode == 0, freezing.stderr
    assert checkout.qualgate("run", *CASE, "--trace", "--quiet", "--runs-dir", "sound").returncode == 0
    return checkout


@pytest.fixture(scope="module")
def faulty(sound: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Another checkout with the frozen record and a planted fault, which has run."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("faulty"))
    plant(checkout)
    (checkout.folder / "frozen").symlink_to(sound.folder / "frozen")
    assert checkout.qualgate("run", *CASE, "--trace", "--quiet", "--runs-dir", "faulty").returncode == 0
    return checkout


def record_of(checkout: Checkout, runs: str) -> str:
    (path,) = (checkout.folder / runs).glob("*/record.json")
    return str(path)


def gate(checkout: Checkout, *more: str) -> subprocess.CompletedProcess[str]:
    return checkout.qualgate("gate", *CASE, "--records", "frozen", *more)


def test_a_frozen_record_has_its_trace_beside_it(sound: Checkout) -> None:
    (record,) = (sound.folder / "frozen").glob("*.json")
    trace = json.loads(record.read_text())["cases"][0]["trace"]
    assert (record.parent / trace["file"]).is_file()
    assert (trace["epochs"], trace["steps_per_epoch"], len(trace["chain_heads"])) == (2, 3, 2)


def test_a_failed_gate_names_the_first_step_and_tensor(faulty: Checkout) -> None:
    done = gate(faulty)
    assert done.returncode == 1, done.stderr
    line = done.stdout.splitlines()[0]
    assert f"first difference at {FAULT}: frozen " in line
    assert "then in final_parameter_sha256.weights.2" in line


def test_a_gate_without_its_frozen_sidecar_still_names_the_epoch(
    faulty: Checkout, sound: Checkout, tmp_path: Path
) -> None:
    (record,) = (sound.folder / "frozen").glob("*.json")
    (tmp_path / record.name).write_bytes(record.read_bytes())
    done = faulty.qualgate("gate", *CASE, "--record", str(tmp_path / record.name), "--json")
    found = json.loads(done.stdout)["first_divergence"]
    assert (found["epoch"], found["step"], found["tensor"]) == (1, None, None)


def test_a_gate_that_does_not_trace_names_the_hash_alone(faulty: Checkout) -> None:
    done = gate(faulty, "--no-trace", "--json")
    verdict = json.loads(done.stdout)
    assert verdict["first_divergence"] is None
    assert verdict["first_difference"]["field"] == "final_parameter_sha256.weights.2"


def test_bisect_compares_the_traces_that_are_there(sound: Checkout, faulty: Checkout) -> None:
    done = sound.qualgate("bisect", record_of(sound, "sound"), record_of(faulty, "faulty"))
    assert done.returncode == 1
    assert f"first training step that differs: {FAULT}: " in done.stdout
    same = sound.qualgate("bisect", record_of(sound, "sound"), record_of(sound, "sound"))
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.startswith("no training step differs")


def test_a_rerun_compares_the_two_tensors(sound: Checkout, faulty: Checkout) -> None:
    records = (record_of(sound, "sound"), record_of(faulty, "faulty"))
    done = sound.qualgate("bisect", *records, "--rerun", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["notes"] == []  # each side ran from its own snapshot and gave its own bits again
    difference = found["difference"]
    assert difference["tensor"] == "velocities.weights.2"
    assert (difference["differing"], difference["elements"]) == (1, 1681)
    assert (difference["largest_ulp_distance"], difference["index"]) == (1, [3, 4])
    assert all(Path(file).is_file() for file in found["kept_files"])


def test_a_rerun_needs_no_trace_in_the_records(sound: Checkout, tmp_path: Path) -> None:
    for name, config in (("a", 0.1), ("b", 0.1000001)):
        text = json.dumps({**json.loads(CONFIG), "learning_rate": config}, indent=2)
        (tmp_path / f"{name}.json").write_text(text)
        running = ("run", *CASE, "--quiet", "--config", str(tmp_path / f"{name}.json"))
        assert sound.qualgate(*running, "--runs-dir", name).returncode == 0
    records = (record_of(sound, "a"), record_of(sound, "b"))
    without = sound.qualgate("bisect", *records)
    assert without.returncode == 2
    assert "has no trace; run it with --trace, or bisect with --rerun" in without.stderr
    done = sound.qualgate("bisect", *records, "--rerun")
    assert "epoch 0, step 0, in parameters.weights.0" in done.stdout
    assert "elements differ, largest distance" in done.stdout


CONFIG = """
{"alpha": 0.5, "batch_size": 128, "momentum": 0.9, "weight_decay": 0.0, "seed": 11, "depth": 2, "epochs": 2,
 "learning_rate": 0.1}
"""
