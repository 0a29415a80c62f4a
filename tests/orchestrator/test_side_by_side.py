"""Cases side by side: the same bits as alone, within the cores, and nothing left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cases import named_case
from orchestrator.environment import NumericSettings
from orchestrator.errors import ExitCode, UsageError, worst
from orchestrator.side_by_side import Job, check_cores, next_to_start
from tests.orchestrator.checkout import ROOT, Checkout, last_line

SMALL, OTHER, UNKNOWN = "synthetic-300-100", "synthetic-200-100", "synthetic-100-100"
NATIVE = ("--numerics", "native", "--records", "frozen")
HASHES = (
    "input_hashes", "initial_parameter_sha256", "epoch_permutation_sha256", "final_parameter_sha256",
    "final_velocity_sha256", "state_vector_sha256", "scores_sha256", "predictions_sha256",
)  # fmt: skip


def job(threads: int, name: str = SMALL, device: str = "cpu") -> Job:
    return Job(named_case(name), NumericSettings(device, ":16:8", threads, "default", "DEFAULT", "AUTO"))


# --- what may start -------------------------------------------------------------------------------


@given(
    waiting=st.lists(st.integers(1, 8), max_size=8),
    running=st.lists(st.integers(1, 8), max_size=4),
    cores=st.integers(1, 16),
)
def test_the_first_job_that_fits_is_next(waiting: list[int], running: list[int], cores: int) -> None:
    jobs = [job(threads) for threads in waiting]
    chosen = next_to_start(jobs, [job(threads) for threads in running], cores)
    fitting = [item for item in jobs if sum(running) + item.settings.threads <= cores]
    assert chosen is (fitting[0] if fitting else None)


def test_a_gpu_runs_one_job_at_a_time_and_lets_cpu_jobs_go_on() -> None:
    on_gpu, on_cpu = job(1, device="cuda"), job(1)
    assert next_to_start([on_gpu], [on_gpu], 8) is None
    assert next_to_start([on_gpu, on_cpu], [on_gpu], 8) is on_cpu
    assert next_to_start([on_gpu], [on_cpu], 8) is on_gpu


def test_a_job_that_could_never_start_is_refused() -> None:
    check_cores([job(2)], 2)
    with pytest.raises(UsageError, match=f"found 2, but {SMALL} runs with 3 threads"):
        check_cores([job(1), job(3)], 2)


def test_the_worst_of_several_ends_decides_the_exit_code() -> None:
    order = [
        ExitCode.QUALIFIED, ExitCode.DISQUALIFIED, ExitCode.NO_RECORD, ExitCode.USAGE,
        ExitCode.RUN_FAILED, ExitCode.EVIDENCE_BROKEN, ExitCode.INTERRUPTED,
    ]  # fmt: skip
    assert set(order) == set(ExitCode)
    for index, code in enumerate(order):
        assert worst(order[: index + 1]) is worst(reversed(order[: index + 1])) is code


# --- the scheduler, with a double for what a case does ---------------------------------------------

# In an interpreter of its own: it forks, which pytest's process, with NumPy's threads, had better not.
SCHEDULE = """
import sys, time
from orchestrator.errors import NoRecordError
from orchestrator.side_by_side import run_side_by_side
from tests.orchestrator.test_side_by_side import job

def act(item):
    print("start", item.settings.threads, flush=True)
    time.sleep(0.2)
    print("end", item.settings.threads, flush=True)
    if item.settings.threads == 3:
        raise NoRecordError("none", where="there", remedy="freeze one")
    if item.settings.threads == 2:
        raise SystemExit(7)
    return item.settings.threads

jobs = [job(threads, f"synthetic-{index}-1") for index, threads in enumerate((1, 2, 3, 1, 4, 1), 1)]
for item in run_side_by_side(jobs, 4, act, lambda item: None):
    print("outcome", item.job.settings.threads, type(item.outcome).__name__, item.outcome)
"""


def test_jobs_overlap_within_the_cores_and_an_error_ends_only_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCHEDULE], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    events = [line.split() for line in done.stdout.splitlines() if not line.startswith("outcome")]
    busy, most = 0, 0
    for event, threads in events:
        busy += int(threads) if event == "start" else -int(threads)
        assert busy <= 4
        most = max(most, busy)
    assert (busy, most) == (0, 4)
    assert sorted(threads for event, threads in events if event == "start") == ["1", "1", "1", "2", "3", "4"]
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.startswith("outcome")] == [
        "1 int 1",
        "2 FixtureFailed synthetic-2-1: the process that gates it ended with 7 in the middle; look for the "
        "out-of-memory killer; a traceback, if there is one, is above",
        "3 NoRecordError there: none; freeze one",
        "1 int 1",
        "4 int 4",
        "1 int 1",
    ]


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of the product with two native records in `frozen/`; tests must not edit it."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("frozen"))
    for case in (SMALL, OTHER):
        done = checkout.qualgate("freeze", "--case", case, *NATIVE, "--reason", "for the tests")
        assert done.returncode == 0, done.stderr
    return checkout


def results(checkout: Checkout, runs: str) -> dict[str, Any]:
    """The hashes of the runs in a folder, by case."""
    found = {}
    for path in (checkout.folder / runs).glob("*/record.json"):
        record = json.loads(path.read_bytes())
        found[record["case"]["name"]] = {name: record["result"]["metadata"][name] for name in HASHES}
    return found


def test_bits_are_the_same_alone_and_side_by_side(frozen: Checkout) -> None:
    for case in (SMALL, OTHER):
        done = frozen.qualgate("gate", "--case", case, *NATIVE, "--runs-dir", "alone")
        assert done.returncode == 0, done.stderr
    done = frozen.qualgate(
        "gate", "--cases", f"{SMALL},{OTHER}", "--cores", "2", *NATIVE, "--runs-dir", "together", "--json"
    )
    assert done.returncode == 0, done.stderr
    alone, together = results(frozen, "alone"), results(frozen, "together")
    assert set(together) == {SMALL, OTHER}
    assert together == alone
    assert together[SMALL] != together[OTHER]
    cases = json.loads(done.stdout)
    assert [(item["case"], item["exit_code"], item["error"]) for item in cases] == [
        (SMALL, 0, None),
        (OTHER, 0, None),
    ]
    assert all(item["verdict"]["level_reached"] == "bitwise" for item in cases)


def test_all_is_every_case_of_the_records_once(frozen: Checkout) -> None:
    folder = frozen.folder / "frozen"
    done = frozen.qualgate(
        "gate", "--cases", "all", "--numerics", "native", "--record",
        str(next(folder.glob(f"{SMALL}-*.json"))), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [item["case"] for item in json.loads(done.stdout)] == [SMALL]


def test_a_case_without_a_record_does_not_stop_the_others(frozen: Checkout) -> None:
    done = frozen.qualgate("gate", "--cases", f"{UNKNOWN},{SMALL}", *NATIVE, "--junit", "both.xml")
    assert done.returncode == ExitCode.NO_RECORD
    assert last_line(done).startswith(f"qualgate: 1 of 2 cases not qualified; no verdict: {UNKNOWN}:")
    assert f"qualified: {SMALL}: level bitwise reached" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "native" in line] == [UNKNOWN, SMALL]
    suites = ElementTree.fromstring((frozen.folder / "both.xml").read_bytes())  # noqa: S314  our own
    assert [(suite.get("name"), suite.get("errors")) for suite in suites] == [
        (f"{UNKNOWN}.native", "1"),
        (f"{SMALL}.native", "0"),
    ]


def test_failing_cases_are_shown_whole_below_the_table(frozen: Checkout, tmp_path: Path) -> None:
    broken = Checkout.copy(tmp_path)
    (tmp_path / "frozen").mkdir()
    for path in (frozen.folder / "frozen").iterdir():
        (tmp_path / "frozen" / path.name).write_bytes(path.read_bytes())
    broken.edit("fixture/numerics/native.py", "0.05 / math", "0.06 / math")
    done = broken.qualgate("gate", "--cases", f"{SMALL},{OTHER}", *NATIVE, "--markdown", "both.md")
    assert done.returncode == ExitCode.DISQUALIFIED
    assert last_line(done).startswith(
        f"qualgate: 2 of 2 cases not qualified; disqualified: {SMALL}: first difference in "
    )
    assert done.stdout.count("hash group") == 2
    assert done.stdout.count("level asked bitwise, reached") == 2
    assert (tmp_path / "both.md").read_text().count("### ✗ qualgate:") == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--cases", "digits,digits"), "--cases: found 'digits,digits', expected each case once"),
        (("--cases", "digits", "--case", "mnist-0"), "--cases: goes with none of"),
        (("--cores", "2"), "--cores: belongs to --cases"),
        (("--cases", "digits", "--cores", "0"), "--cores: found 0, expected at least 1"),
        (("--cases", "digits", "--cores", "1", "--threads", "2"), "digits runs with 2 threads"),
        (("--cases", "digits,"), "--case: found ''"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(
    frozen: Checkout, arguments: tuple[str, ...], line: str
) -> None:
    done = frozen.qualgate("gate", *arguments, "--runs-dir", "refused")
    assert done.returncode == ExitCode.USAGE
    assert line in last_line(done)
    assert not (frozen.folder / "refused").exists()


# --- the end of it --------------------------------------------------------------------------------


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that run, zombies left out."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state != b"Z":
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


def eventually(condition: Any, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


@pytest.mark.parametrize(
    ("number", "returncode"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 130, id="SIGTERM"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_a_stopped_gate_leaves_no_process(
    frozen: Checkout, tmp_path: Path, number: signal.Signals, returncode: int
) -> None:
    # Tasks long enough to be stopped in: repeats without an end in sight.
    command = frozen.command(
        "gate", "--cases", f"{SMALL},{OTHER}", "--cores", "2", *NATIVE, "--repeats", "1000000",
        "--runs-dir", str(tmp_path),
    )  # fmt: skip
    gate = subprocess.Popen(
        command, cwd=frozen.folder, env=frozen.environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        # Two schedulers' children, each with a task process that has started.
        eventually(lambda: len(descendants(gate.pid)) >= 4)
        started = descendants(gate.pid)
        gate.send_signal(number)
        _, said = gate.communicate(timeout=60)
    finally:
        gate.kill()
    assert gate.returncode == returncode
    if returncode == 130:
        assert said.splitlines()[-1] == f"qualgate: {number.name} arrived and the run was stopped"
        assert not alive(started)
    eventually(lambda: not alive(started))  # the kernel's kill is no wait


def test_a_case_whose_process_is_killed_is_an_error_of_that_case(frozen: Checkout, tmp_path: Path) -> None:
    command = frozen.command(
        "gate", "--cases", f"{SMALL},{OTHER}", "--cores", "2", *NATIVE, "--runs-dir", str(tmp_path)
    )
    gate = subprocess.Popen(
        command, cwd=frozen.folder, env=frozen.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        eventually(lambda: len(descendants(gate.pid)) >= 4)
        children = Path(f"/proc/{gate.pid}/task/{gate.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        said, errors = gate.communicate(timeout=120)
    finally:
        gate.kill()
    assert gate.returncode == ExitCode.RUN_FAILED, errors
    assert "1 of 2 cases not qualified" in errors
    assert "ended with -9 in the middle" in errors
    assert "bitwise" in said
