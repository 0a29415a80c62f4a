"""The portability check itself: what it finds to run, what it says of what it cannot, and when it fails.

That the bits are portable is what `make portability-check` finds; here its parts are held to their word.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.availability import Unavailable
from orchestrator.environment import default_settings
from orchestrator.models import Hashes
from tests import emulation, portability
from tests.emulation import MACHINES, Guest, Workshop
from tests.portability import Failed, Row, judge, settings_of, vector_units

AVX2 = frozenset({"avx2", "fma"})
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
X86 = default_settings("x86_64")
ABSENT = Unavailable("no such thing", "make portability-check INSTALL=1")


@pytest.fixture(scope="module")
def frozen() -> Hashes:
    return portability.frozen_hashes()


def changed(hashes: Hashes, **groups: Any) -> Hashes:
    return Hashes.model_validate(hashes.model_dump() | groups)


# --- what can be run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "flags", "usable", "lacking"),
    [
        ("x86_64", AVX512, ["default", "avx2", "avx512"], []),
        ("x86_64", AVX2, ["default", "avx2"], ["avx512"]),
        ("x86_64", AVX2 - {"fma"}, ["default"], ["avx2", "avx512"]),
        # Without these torch has no AVX-512 kernels, whatever else of it the CPU has.
        ("x86_64", AVX512 - {"avx512vl"}, ["default", "avx2"], ["avx512"]),
        ("aarch64", frozenset({"asimd"}), ["default"], []),
    ],
)
def test_a_vector_unit_is_asked_for_where_the_cpu_has_it(
    machine: str, flags: frozenset[str], usable: list[str], lacking: list[str]
) -> None:
    units = vector_units(machine, flags)
    assert [unit for unit, why in units.items() if why is None] == usable
    assert [unit for unit, why in units.items() if why is not None] == lacking


def test_a_missing_unit_names_the_flags_that_the_cpu_lacks() -> None:
    why = vector_units("x86_64", AVX512 - {"avx512vl", "avx512dq"})["avx512"]
    assert isinstance(why, Unavailable)
    assert why.reason == "the CPU has no avx512dq, avx512vl"


def test_settings_are_every_combination_of_threads_and_code_paths() -> None:
    settings = settings_of("x86_64", "avx2")
    assert {(each.threads, each.mkl_cbwr) for each in settings} == {
        (threads, code_path) for threads in (1, 2, 4) for code_path in ("COMPATIBLE", "AVX2", "AUTO")
    }
    assert len(settings) == 9
    assert {each.vector for each in settings} == {"avx2"}


def test_without_mkl_only_threads_are_left() -> None:
    assert [(each.threads, each.mkl_cbwr) for each in settings_of("aarch64", "default")] == [
        (1, "AUTO"),
        (2, "AUTO"),
        (4, "AUTO"),
    ]


# --- what cannot be run -----------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_no_emulator_is_a_cause_and_a_remedy(machine: emulation.Machine, tmp_path: Path) -> None:
    guest = Workshop(tmp_path / "empty", False, "make it").guest(machine, path_env=str(tmp_path))
    assert isinstance(guest, Unavailable)
    assert f"no qemu-{machine.name} on PATH" in guest.reason
    assert "apt-get install qemu-user" in guest.remedy


def test_no_root_for_an_emulator_that_is_there_is_a_cause_and_a_remedy(tmp_path: Path) -> None:
    emulator = tmp_path / "qemu-aarch64"
    emulator.touch(mode=0o755)
    guest = Workshop(tmp_path / "empty", False, "make it").guest(MACHINES[0], path_env=str(tmp_path))
    assert guest == Unavailable("no arm64 Python with NumPy", "make it")


def test_nothing_is_downloaded_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "_checked", lambda _: pytest.fail("a program was started"))
    assert Workshop(tmp_path, False, "make it").torch("2.5.1") == Unavailable("no torch 2.5.1", "make it")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_is_a_cause_and_leaves_no_half_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Looking in indexes\nERROR: No matching distribution found\n"
    attempts = []

    def fail(command: Sequence[str]) -> str:
        attempts.append(command)
        raise subprocess.CalledProcessError(1, command, stderr=said)

    monkeypatch.setattr(emulation, "_checked", fail)
    workshop = Workshop(tmp_path, True, "make it")
    for _ in range(2):  # what is left of the first try is not taken for a torch
        made = workshop.torch("9.9")
        assert isinstance(made, Unavailable)
        assert made.reason == "no torch 9.9: ERROR: No matching distribution found"
    assert len(attempts) == 2


def test_what_is_whole_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(emulation, "_checked", commands.append)
    workshop = Workshop(tmp_path, True, "make it")
    first, count = workshop.torch("2.5.1"), len(commands)
    assert count == 2  # a virtual environment, and what goes into it
    assert workshop.torch("2.5.1") == first == tmp_path / "torch-2.5.1" / "bin/python"
    assert len(commands) == count


def test_the_launcher_of_an_emulated_torch_changes_no_variable(tmp_path: Path) -> None:
    """The fixture attests the environment that it was started with: the launcher may not add to it."""
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/python3").symlink_to("python3.11")
    part = tmp_path / "torch-2.5.1-aarch64"
    part.mkdir()
    (part / "complete").touch()
    emulator = tmp_path / "qemu-aarch64"
    emulator.write_text(f"#!{sys.executable} -IS\nimport json, os, sys\n"
                        "print(json.dumps([sys.argv[1:], dict(os.environ)]))\n")  # fmt: skip
    emulator.chmod(0o755)
    launcher = Workshop(tmp_path, False, "").guest_torch(Guest(MACHINES[0], emulator, root), "2.5.1")
    assert isinstance(launcher, Path)
    environment = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [launcher, "-I", "a b"], env=environment, capture_output=True, text=True, check=True
    )
    arguments, seen = json.loads(done.stdout)
    assert seen == environment
    assert arguments[:2] == ["-L", str(root)]
    assert arguments[-3:] == [str(part / "bin/python3"), "-I", "a b"]


# --- judging ----------------------------------------------------------------------------------------


def test_equal_hashes_pass_and_are_counted(frozen: Hashes) -> None:
    other = changed(frozen, state_vector_sha256="1" * 64)
    rows = [
        Row("here", X86, native=frozen, portable=frozen),
        Row("here", X86, native=other, portable=frozen),
        Row("NumPy", None, native=None, portable=frozen),
        Row("elsewhere", None, native=ABSENT, portable=ABSENT),
    ]
    judgement = judge(rows, frozen)
    assert (judgement.native, judgement.portable, judgement.faults) == (2, 1, [])
    assert judgement.exit_code == 0


def test_one_portable_hash_that_differs_fails(frozen: Hashes) -> None:
    other = changed(frozen, state_vector_sha256="1" * 64)
    judgement = judge([Row("a", X86, frozen, frozen), Row("b", X86, frozen, other)], frozen)
    assert (judgement.portable, judgement.exit_code) == (2, 1)
    assert judgement.faults == [
        "b, avx2, 1 thread(s), MKL_CBWR=AVX2: portable: state_vector_sha256 is not the frozen record's"
    ]


def test_one_hash_that_is_not_the_frozen_one_fails(frozen: Hashes) -> None:
    other = changed(frozen, state_vector_sha256="1" * 64)
    judgement = judge([Row("a", X86, frozen, other)], frozen)
    assert (judgement.portable, judgement.exit_code) == (1, 1)


@pytest.mark.parametrize("group", ["scores_sha256", "predictions_sha256"])
def test_every_group_counts_and_not_the_state_alone(group: str, frozen: Hashes) -> None:
    judgement = judge([Row("a", X86, frozen, changed(frozen, **{group: "1" * 64}))], frozen)
    assert (judgement.portable, judgement.exit_code) == (1, 1)
    assert group in judgement.faults[0]


def test_a_missing_or_further_field_counts(frozen: Hashes) -> None:
    orders = frozen.epoch_permutation_sha256
    for found in (orders[:-1], [*orders, orders[0]]):
        assert judge([Row("a", X86, frozen, changed(frozen, epoch_permutation_sha256=found))], frozen).faults


def test_a_run_that_broke_off_fails(frozen: Hashes) -> None:
    judgement = judge([Row("a", X86, Failed("out of memory"), frozen)], frozen)
    assert judgement.exit_code == 1
    assert "native broke off: out of memory" in judgement.faults[0]


def test_nothing_compared_fails(frozen: Hashes) -> None:
    assert judge([Row("a", None, ABSENT, ABSENT)], frozen).exit_code == 1


# --- the command, with a double for the processes ------------------------------------------------------


class Processes:
    """Stands where processes are started: answers like `qualgate run`, or like the NumPy script."""

    def __init__(self, hashes: Hashes, portable_on_4_threads: Hashes | None = None) -> None:
        self.hashes, self.on_4_threads = hashes, portable_on_4_threads or hashes
        self.commands: list[list[str]] = []

    def __call__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        groups: dict[str, Any] = self.hashes.model_dump()
        if "orchestrator" in command:
            if command[command.index("--threads") + 1] == "4" and "portable" in command:
                groups = self.on_4_threads.model_dump()
            groups = {"result": {"metadata": groups | {"train_count": 1297}}}
        return subprocess.CompletedProcess(list(command), 0, json.dumps(groups), "")


def run_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: Processes, *arguments: str) -> int:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(portability, "execute", processes)
    return portability.main(["--folder", str(tmp_path / "empty"), *arguments])


def test_the_command_says_what_it_ran_and_what_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], frozen: Hashes
) -> None:
    processes = Processes(frozen)
    assert run_main(monkeypatch, tmp_path, processes, "--torch", "2.5.1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("here: ")
    assert lines[-1] == "native: 1 different hashes; portable: 1"
    not_run = [line for line in lines if line.startswith("not run: ")]
    for what, remedy in (
        ("torch 2.5.1", "make portability-check INSTALL=1"),
        ("aarch64 under qemu", "apt-get install qemu-user"),
        ("s390x under qemu", "apt-get install qemu-user"),
    ):
        (line,) = [line for line in not_run if line.startswith(f"not run: {what}")]
        assert remedy in line
    named = [command[command.index("--numerics") + 1] for command in processes.commands if "run" in command]
    assert named.count("native") == named.count("portable") == len(named) // 2
    assert sum(frozen.state_vector_sha256[:12] in line for line in lines) == len(named) // 2 + 1


def test_the_command_runs_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], frozen: Hashes
) -> None:
    for part in ("torch-2.5.1", "torch-2.5.1-aarch64", "aarch64-root", "s390x-root"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "complete").touch()
    for machine in MACHINES:
        (tmp_path / f"qemu-{machine.name}").touch(mode=0o755)
    processes = Processes(frozen)
    assert run_main(monkeypatch, tmp_path, processes, "--torch", "2.5.1", "--folder", str(tmp_path)) == 0
    assert not [
        line for line in capsys.readouterr().out.splitlines() if "under qemu" in line and "not" in line
    ]
    by_numpy = [command[0] for command in processes.commands if "orchestrator" not in command]
    assert by_numpy == [sys.executable, *(str(tmp_path / f"qemu-{machine.name}") for machine in MACHINES)]
    pythons = {
        command[command.index("--python") + 1] for command in processes.commands if "--python" in command
    }
    others = {str(tmp_path / "torch-2.5.1/bin/python"), str(tmp_path / "torch-2.5.1-aarch64/launch")}
    assert pythons == {sys.executable} | others


def test_the_command_fails_when_one_portable_hash_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], frozen: Hashes
) -> None:
    other = changed(frozen, state_vector_sha256="1" * 64)
    assert run_main(monkeypatch, tmp_path, Processes(frozen, other)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "native: 1 different hashes; portable: 2"
    assert any(line.startswith("wrong: here, default, 4 thread(s)") for line in lines)


def test_the_table_names_every_setting_and_the_first_digits(frozen: Hashes) -> None:
    rows = [Row("here", X86, Failed("x"), frozen), Row("elsewhere", None, ABSENT, ABSENT)]
    printed = io.StringIO()
    portability.print_rows(rows, judge(rows, frozen), Console(width=140, file=printed))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.getvalue().splitlines()]
    assert ["here", "avx2", "1", "AVX2", "broke off", frozen.state_vector_sha256[:12]] in lines
    assert ["elsewhere", "", "", "", "not run", "not run"] in lines


# --- the NumPy implementation, alone ------------------------------------------------------------------


def test_numpy_alone_gives_every_hash_of_the_frozen_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: Hashes
) -> None:
    imports: list[str] = []

    def listening(
        command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = execute(command, env)
        imports.extend(line.split("|")[-1].strip() for line in done.stderr.splitlines())
        return done

    execute = portability.execute
    monkeypatch.setattr(portability, "execute", listening)
    portability.write_inputs(tmp_path)
    assert portability.run_numpy([sys.executable, "-X", "importtime"], tmp_path) == frozen
    assert "numpy_portable" in imports
    assert "torch" not in imports
