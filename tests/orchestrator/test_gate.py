"""The main path in real processes: freeze, gate, break the learner, kill the fixture, damage a record."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.codec import load
from orchestrator.models import RunRecord
from orchestrator.qualification import shipped_records
from tests.orchestrator.checkout import SHARED, Checkout, last_line

# A case of its own, small enough to be run many times: its record is frozen here, by the tests.
CASE = "synthetic-300-100"
NATIVE = ("--case", CASE, "--numerics", "native")
GATE = ("gate", *NATIVE, "--records", "frozen", "--repeats", "1")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the product with one record frozen in `frozen/`; tests must not edit it."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("frozen"))
    done = checkout.qualgate("freeze", *NATIVE, "--records", "frozen", "--reason", "for the tests")
    assert done.returncode == 0, done.stderr
    return checkout


@pytest.fixture
def broken(frozen: Checkout, tmp_path: Path) -> Checkout:
    """Another copy with the same frozen record, to be edited."""
    checkout = Checkout.copy(tmp_path)
    (tmp_path / "frozen").mkdir()
    for path in (frozen.folder / "frozen").iterdir():  # the record and its trace
        (tmp_path / "frozen" / path.name).write_bytes(path.read_bytes())
    return checkout


def record_of(checkout: Checkout) -> Path:
    (record,) = (checkout.folder / "frozen").glob("*.json")
    return record


def verdict_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def test_gate_passes_where_its_record_was_frozen(frozen: Checkout) -> None:
    done = frozen.qualgate(*GATE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(f"qualified: {CASE}: level bitwise reached against")
    assert done.stdout.count("✓") == 8


def test_gate_reads_the_folder_that_freeze_writes_to(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    assert checkout.qualgate("freeze", *NATIVE, "--reason", "no folder named").returncode == 0
    (record,) = (tmp_path / "qualification").glob("*.json")
    done = checkout.qualgate("gate", *NATIVE, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert record.name in done.stdout.splitlines()[0]


def test_gate_prints_its_verdict_as_json_and_nothing_else(frozen: Checkout) -> None:
    verdict = verdict_of(frozen.qualgate(*GATE, "--json"))
    assert verdict["qualified"] is True
    assert (verdict["level_asked"], verdict["level_reached"]) == ("bitwise", "bitwise")
    assert [len(group["differences"]) for group in verdict["groups"]] == [0] * 8


@pytest.mark.parametrize(
    ("file", "old", "new", "place"),
    [
        pytest.param(
            "fixture/numerics/native.py", "0.05 / math", "0.06 / math",
            "in initial_parameter_sha256.weights.0", id="initial-scale",
        ),
        pytest.param(
            "fixture/numerics/native.py", "torch.mul(raw, 4.0", "torch.mul(raw, 4.25",
            "at epoch 0, step 0, in batch.state", id="lift",
        ),
        pytest.param(
            "fixture/inputs.py", "np.random.PCG64(seed)", "np.random.PCG64(seed + 1)",
            "in epoch_permutation_sha256.0", id="shuffle",
        ),
        pytest.param(
            "fixture/task.py", "self.numerics.head_forward(final, head_weight, head_bias)",
            "self.numerics.head_forward(final, head_weight, 2 * head_bias)",
            "in scores_sha256", id="prediction-only",
        ),
    ],
)  # fmt: skip
def test_one_changed_constant_is_named_by_its_first_field(
    broken: Checkout, file: str, old: str, new: str, place: str
) -> None:
    broken.edit(file, old, new)
    done = broken.qualgate(*GATE)
    assert done.returncode == 1, done.stderr
    frozen_and_found = r"frozen [0-9a-f]{12}…, found [0-9a-f]{12}…"
    first = done.stdout.splitlines()[0]
    assert re.match(f"disqualified: {CASE}: first difference {re.escape(place)}: {frozen_and_found}", first)
    assert f"a change: the same bits came back; sources that differ: {file.removeprefix('fixture/')}" in first
    assert last_line(done).startswith(f"qualgate: disqualified: {CASE}")


def test_bits_that_change_from_process_to_process_are_called_nondeterminism(broken: Checkout) -> None:
    broken.edit(
        "fixture/numerics/native.py",
        "    torch.manual_seed(seed)\n",
        "    import os\n    torch.manual_seed(int.from_bytes(os.urandom(4), 'little'))\n",
    )
    done = broken.qualgate(*GATE, "--json")
    verdict = verdict_of(done)
    assert done.returncode == 1
    assert verdict["difference_kind"] == "nondeterminism"
    assert verdict["repetition"]["same_bits"] is False
    assert verdict["first_difference"]["field"] == "initial_parameter_sha256.weights.0"


def test_bits_that_move_inside_one_process_are_called_nondeterminism(broken: Checkout) -> None:
    broken.edit(
        "fixture/task.py",
        "        torch._foreach_copy_(self.parameters, self.initial)\n",
        "        torch._foreach_copy_(self.parameters, self.initial)\n"
        "        self.parameters[-1].add_(torch.rand(()))\n",
    )
    verdict = verdict_of(broken.qualgate(*GATE, "--json"))
    assert verdict["difference_kind"] == "nondeterminism"
    assert any("moved between invocations of one process" in note for note in verdict["notes"])


def test_freeze_refuses_what_fresh_processes_do_not_agree_on(broken: Checkout) -> None:
    broken.edit(
        "fixture/numerics/native.py",
        "    torch.manual_seed(seed)\n",
        "    import os\n    torch.manual_seed(int.from_bytes(os.urandom(4), 'little'))\n",
    )
    done = broken.qualgate("freeze", *NATIVE, "--records", "new", "--reason", "never")
    assert done.returncode == 5
    assert "fresh processes disagree in initial_parameter_sha256.weights.0" in last_line(done)
    assert not (broken.folder / "new").exists()


def test_a_record_is_never_frozen_twice_but_superseded(broken: Checkout) -> None:
    again = broken.qualgate("freeze", *NATIVE, "--records", "frozen", "--reason", "again")
    assert again.returncode == 2
    assert "--supersedes" in last_line(again)
    old = record_of(broken)
    broken.edit("fixture/numerics/native.py", "torch.mul(raw, 4.0", "torch.mul(raw, 4.25")
    freezing = ("freeze", *NATIVE, "--records", "frozen", "--reason", "another lift")
    done = broken.qualgate(*freezing, "--supersedes", str(old))
    assert done.returncode == 0, done.stderr
    assert old.exists()
    assert broken.qualgate(*GATE).returncode == 0


# --- every failure has its exit code and one line -------------------------------------------------


def test_a_killed_fixture_is_exit_4(broken: Checkout) -> None:
    broken.edit(
        "fixture/measurement.py",
        "    before = prepared.metadata()\n",
        "    import os\n    os.kill(os.getpid(), 9)\n    before = prepared.metadata()\n",
    )
    done = broken.qualgate(*GATE)
    assert done.returncode == 4
    assert "the fixture was killed by SIGKILL" in last_line(done)


def test_a_failed_run_leaves_a_sound_record_with_its_failure(broken: Checkout) -> None:
    broken.edit(
        "fixture/measurement.py", "    before = prepared.metadata()\n", "    raise RuntimeError('planted')\n"
    )
    done = broken.qualgate("run", *NATIVE, "--quiet")
    assert done.returncode == 4
    assert "RuntimeError: planted" in last_line(done)
    (path,) = (broken.folder / "qualgate-runs").glob("*/record.json")
    record = load(path)
    assert isinstance(record, RunRecord)
    assert record.result is None
    assert record.returncode == 1
    assert "planted" in record.stderr


def test_a_timeout_is_exit_4_and_kills_the_fixture(frozen: Checkout) -> None:
    done = frozen.qualgate(*GATE, "--timeout", "0.3")
    assert done.returncode == 4
    assert "ran longer than 0.3 s and was killed" in last_line(done)


def test_storage_that_gives_out_is_exit_4(frozen: Checkout) -> None:
    # A file size limit fails writes as a full disk does, without needing one.
    limited = ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", *frozen.command(*GATE)]
    done = subprocess.run(
        limited, cwd=frozen.folder, env=frozen.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "File too large" in last_line(done)


def test_a_case_that_nobody_froze_is_exit_3(frozen: Checkout) -> None:
    done = frozen.qualgate("gate", "--case", "synthetic-20-10")
    assert done.returncode == 3
    assert "no frozen record holds case synthetic-20-10" in last_line(done)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        pytest.param(lambda text: text[: len(text) // 2], "at $: found", id="truncated"),
        pytest.param(lambda text: text.replace('"native"', '"naive"', 1), "at $.", id="schema"),
        pytest.param(
            lambda text: re.sub(
                r'("state_vector_sha256": ")(.)',
                lambda m: m[1] + ("0" if m[2] != "0" else "1"),
                text,
                count=1,
            ),
            "at $.content_sha256",
            id="one-digit-of-one-hash",
        ),
    ],
)
def test_a_damaged_record_is_exit_5_before_anything_runs(broken: Checkout, damage: Any, place: str) -> None:
    record = record_of(broken)
    record.write_text(damage(record.read_text()))
    done = broken.qualgate(*GATE)
    assert done.returncode == 5
    assert record.name in last_line(done)
    assert place in last_line(done)
    assert not (broken.folder / "qualgate-runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--vector", "avx9000"), "avx9000", id="vector"),
        pytest.param(("--mkl-cbwr", "FAST"), "FAST", id="mkl-cbwr"),
        pytest.param(("--workspace", ":1:1"), ":1:1", id="workspace"),
        pytest.param(("--threads", "0"), "threads", id="threads"),
        pytest.param(("--case", "digit"), "digit", id="case"),
        pytest.param(("--repeats", "0"), "--repeats", id="repeats"),
        pytest.param(("--no-such-option",), "--no-such-option", id="option"),
        pytest.param(("--config", "nothing.json"), "nothing.json", id="config"),
    ],
)
def test_wrong_use_is_exit_2_and_runs_nothing(
    frozen: Checkout, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = frozen.qualgate(*GATE, "--runs-dir", str(tmp_path / "runs"), *arguments)
    assert done.returncode == 2, done.stderr
    assert said in last_line(done)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_gate_is_exit_130_and_leaves_no_process(
    broken: Checkout, number: signal.Signals
) -> None:
    marker = broken.folder / "started"
    broken.edit(
        "fixture/measurement.py",
        "    before = prepared.metadata()\n",
        "    import os\n"
        f"    Path({str(marker)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "    before = prepared.metadata()\n",
    )
    child = subprocess.Popen(
        broken.command(*GATE),
        cwd=broken.folder,
        env=broken.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not marker.exists() or not marker.read_text():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.05)
    fixture = int(marker.read_text())
    child.send_signal(number)
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130
    assert number.name in stderr.strip().splitlines()[-1]
    with pytest.raises(ProcessLookupError):
        os.kill(fixture, 0)


# --- levels and platforms -------------------------------------------------------------------------


def test_another_platform_is_asked_for_predictions_and_told_so(frozen: Checkout) -> None:
    verdict = verdict_of(frozen.qualgate(*GATE, "--json", "--threads", "2"))
    assert verdict["level_asked"] == "predictions"
    assert verdict["qualified"] is True
    assert any("threads 1 -> 2" in note for note in verdict["notes"])


def test_another_platform_finds_no_record_when_only_bits_count(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    freezing = ("freeze", *NATIVE, "--records", "frozen", "--reason", "bits only", "--bitwise-only")
    assert checkout.qualgate(*freezing).returncode == 0
    done = checkout.qualgate(*GATE, "--threads", "2")
    assert done.returncode == 3
    assert "no frozen record is for this platform" in last_line(done)


def test_portable_bits_hold_whatever_the_threads_and_vector_unit(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    portable = ("--numerics", "portable")
    freezing = ("freeze", *NATIVE, "--records", "frozen", "--reason", "portable", *portable)
    assert checkout.qualgate(*freezing).returncode == 0
    others = ("--threads", "3", "--vector", "default", "--mkl-cbwr", "COMPATIBLE")
    done = checkout.qualgate(*GATE, "--json", *portable, *others)
    verdict = verdict_of(done)
    assert (verdict["level_asked"], verdict["level_reached"]) == ("bitwise", "bitwise")


# --- real data ------------------------------------------------------------------------------------

needs_mnist = pytest.mark.skipif(not (SHARED / "mnist").is_dir(), reason="../shared/mnist is not there")


@needs_mnist
def test_six_published_draws_are_reproduced_by_one_command(frozen: Checkout) -> None:
    published = str(SHARED / "seed" / "mnist-medium-draws.json")
    done = frozen.qualgate("gate", "--published", published, "--idx-dir", str(SHARED / "mnist"), "--json")
    assert done.returncode == 0, done.stderr
    draws = json.loads(done.stdout)
    assert [draw["draw"] for draw in draws] == [0, 1, 2, 3, 4, 5]
    assert [draw["correct"] for draw in draws] == [8887, 8916, 8947, 8904, 8992, 8979]
    # Indices twice, labels, predictions file, correct and total.
    assert [(draw["compared"], draw["differences"]) for draw in draws] == [(6, [])] * 6


@pytest.fixture(scope="module")
def draw_0(frozen: Checkout) -> Path:
    """The run record of draw 0 on this CPU."""
    if not (SHARED / "mnist").is_dir():
        pytest.skip("../shared/mnist is not there")
    arguments = (
        "run",
        "--case",
        "mnist-0",
        "--numerics",
        "native",
        "--idx-dir",
        str(SHARED / "mnist"),
        "--runs-dir",
        "draw-0",
    )
    done = frozen.qualgate(*arguments, "--quiet")
    assert done.returncode == 0, done.stderr
    (record,) = (frozen.folder / "draw-0").glob("*/record.json")
    return record


@needs_mnist
def test_the_seed_is_reached_at_level_predictions_and_exactly_the_state_differs(
    frozen: Checkout, draw_0: Path
) -> None:
    seed = str(SHARED / "seed" / "a100-measure-task.json")
    done = frozen.qualgate("compare", seed, str(draw_0), "--json")
    assert done.returncode == 0, done.stderr
    verdict = verdict_of(done)
    assert (verdict["level_asked"], verdict["level_reached"]) == ("predictions", "predictions")
    parameters = ["weights.0", "weights.1", "weights.2", "weights.3", "head.weight", "head.bias"]
    assert [item["field"] for group in verdict["groups"] for item in group["differences"]] == [
        "input_hashes.train_images",
        "input_hashes.test_images",
        *(f"final_parameter_sha256.{name}" for name in parameters),
        *(f"final_velocity_sha256.{name}" for name in parameters),
        "state_vector_sha256",
        "scores_sha256",
    ]
    assert verdict["other_differences"] == []


@needs_mnist
def test_what_procedure_says_is_reproducible_is_reproduced(draw_0: Path) -> None:
    seed = json.loads((SHARED / "seed" / "a100-measure-task.json").read_text())["result"]
    ours = json.loads(draw_0.read_text())["result"]
    for key in ("config_file_sha256", "predictions_file_sha256"):
        assert ours[key] == seed[key], key
    for key in ("initial_parameter_sha256", "epoch_permutation_sha256", "predictions_sha256"):
        assert ours["metadata"][key] == seed["metadata"][key], key
    assert (
        ours["metadata"]["input_hashes"]["train_labels"] == seed["metadata"]["input_hashes"]["train_labels"]
    )


# --- portable numerics learn as well as native ones -----------------------------------------------


def accuracy(score: dict[str, int]) -> float:
    return 100 * score["correct"] / score["total"]


def test_portable_digits_are_learned_within_one_point_of_native_ones() -> None:
    by_numerics = {}
    for path in shipped_records().glob("digits-*.json"):
        record = json.loads(path.read_text())
        by_numerics[record["numerics"]["name"]] = accuracy(record["cases"][0]["score"])
    assert abs(by_numerics["portable"] - by_numerics["native"]) <= 1
    assert min(by_numerics.values()) > 90


def test_portable_synthetic_images_are_learned_within_one_point_of_native_ones(frozen: Checkout) -> None:
    case = ("run", "--case", "synthetic-2000-1000", "--quiet", "--json", "--repeats", "1")
    found = [
        accuracy(json.loads(frozen.qualgate(*case, "--numerics", name).stdout)["score"])
        for name in ("native", "portable")
    ]
    assert abs(found[0] - found[1]) <= 1
    assert min(found) > 50  # far from the ten percent of guessing


def test_native_draw_0_is_learned_as_well_as_the_portable_one(draw_0: Path) -> None:
    # The portable score is checked above: it is the published one.
    assert json.loads(draw_0.read_text())["score"] == {"correct": 8887, "total": 10000}
