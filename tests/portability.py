"""`make portability-check`: one case under every setting of this machine, and on machines it can emulate.

Runs the digits case, native and portable, for each vector unit x threads x MKL code path; with other torch
releases; and under qemu on other architectures, by the torch implementation and by the NumPy one. Prints
what was set against the state hash that came out. Exit code 0 when every portable run gave all eight hash
groups of the shipped frozen record, 1 when one did not or broke off. What cannot be run here is a row that
says so, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from orchestrator import probe
from orchestrator.availability import Unavailable
from orchestrator.cases import config_text, named_case
from orchestrator.datasets.dataset import write_archive
from orchestrator.environment import NumericSettings, default_settings
from orchestrator.models import Hashes
from orchestrator.qualification import frozen_cases, load_folders, shipped_records
from orchestrator.runner import RunOptions, load_dataset
from orchestrator.verdict import COMPUTATION_ORDER, fields_of
from tests.emulation import MACHINES, Guest, Machine, Workshop

_ROOT = Path(__file__).parents[1]
_CASE = "digits"
_THREADS = (1, 2, 4)
_MKL_CODE_PATHS = ("COMPATIBLE", "AVX2", "AUTO")
_TIMEOUT_S = 3600  # an emulated machine is some fifty times slower
_DIGITS_SHOWN = 12

# torch believes a vector unit that it is told to use, so none is asked for that the CPU lacks. The flags are
# those that torch itself looks for.
_FLAGS_OF_UNIT: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {
        "default": frozenset(),
        "avx2": frozenset({"avx2", "fma"}),
        "avx512": frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"}),
    }
}


# --- what can be run ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """A run that broke off, with the last line that it said."""

    cause: str


Outcome = Hashes | Failed | Unavailable


@dataclass(frozen=True)
class Row:
    """What was set, and what came out. `native` is None where there is only portable numerics."""

    where: str
    settings: NumericSettings | None
    native: Outcome | None
    portable: Outcome

    @property
    def name(self) -> str:
        """The row in a few words."""
        if self.settings is None:
            return self.where
        chosen = self.settings
        return f"{self.where}, {chosen.vector}, {chosen.threads} thread(s), MKL_CBWR={chosen.mkl_cbwr}"


def vector_units(machine: str, flags: frozenset[str]) -> dict[str, Unavailable | None]:
    """The units of that architecture (`platform.machine()`), each with what the CPU lacks for it.

    `flags` are the words of /proc/cpuinfo.
    """
    units = _FLAGS_OF_UNIT.get(machine, {"default": frozenset()})
    return {
        unit: Unavailable(f"the CPU has no {', '.join(sorted(missing))}", "run on a CPU that has them")
        if (missing := needed - flags)
        else None
        for unit, needed in units.items()
    }


def settings_of(machine: str, unit: str) -> list[NumericSettings]:
    """Every thread count and MKL code path under one vector unit; MKL exists on x86 only."""
    plain = replace(default_settings(machine), vector=unit)
    code_paths = _MKL_CODE_PATHS if machine == "x86_64" else (plain.mkl_cbwr,)
    return [
        replace(plain, threads=threads, mkl_cbwr=code_path)
        for threads in _THREADS
        for code_path in code_paths
    ]


# --- running --------------------------------------------------------------------------------------


def execute(command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout and wait for it."""
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT, env=env)


def run_torch(numerics: str, settings: NumericSettings, runs: Path, python: str) -> Outcome:
    """`qualgate run` with that interpreter's torch; its hashes."""
    done = execute([
        sys.executable, "-m", "orchestrator", "run", "--case", _CASE, "--numerics", numerics,
        "--threads", str(settings.threads), "--vector", settings.vector, "--mkl-cbwr", settings.mkl_cbwr,
        "--onednn-isa", settings.onednn_isa, "--python", python, "--repeats", "1",
        "--timeout", str(_TIMEOUT_S), "--runs-dir", str(runs), "--quiet", "--json",
    ])  # fmt: skip
    return _outcome(done, lambda record: record["result"]["metadata"])


def run_numpy(interpreter: Sequence[str], inputs: Path) -> Outcome:
    """The NumPy implementation under an interpreter, which may be an emulated machine's."""
    script = _ROOT / "tests/fixture/numpy_hashes.py"
    done = execute(
        [*interpreter, "-B", str(script), str(inputs / "input.npz"), str(inputs / "config.json")],
        {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(_ROOT / "fixture")},
    )
    return _outcome(done, lambda hashes: hashes)


def _outcome(done: subprocess.CompletedProcess[str], groups_in: Callable[[Any], dict[str, Any]]) -> Outcome:
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return Failed(lines[-1] if lines else f"exit code {done.returncode} without a word")
    groups = groups_in(json.loads(done.stdout))
    return Hashes.model_validate({name: groups[name] for name in COMPUTATION_ORDER})


def _both(where: str, settings: NumericSettings, runs: Path, python: str) -> Row:
    return Row(
        where,
        settings,
        native=run_torch("native", settings, runs, python),
        portable=run_torch("portable", settings, runs, python),
    )


def _not_run(where: str, why: Unavailable) -> Row:
    return Row(where, None, why, why)


def rows_of_this_machine(machine: str, flags: frozenset[str], runs: Path) -> Iterator[Row]:
    """The installed torch under every setting."""
    for unit, lacking in vector_units(machine, flags).items():
        if lacking is not None:
            yield _not_run(f"here, {unit}", lacking)
            continue
        for settings in settings_of(machine, unit):
            yield _both("here", settings, runs, sys.executable)


def rows_of_releases(
    releases: Sequence[str], workshop: Workshop, machine: str, flags: frozenset[str], runs: Path
) -> Iterator[Row]:
    """Other torch releases, under each vector unit."""
    for release in releases:
        python = workshop.torch(release)
        if isinstance(python, Unavailable):
            yield _not_run(f"torch {release}", python)
            continue
        for unit, lacking in vector_units(machine, flags).items():
            if lacking is None:  # else the first rows have said so
                settings = replace(default_settings(machine), vector=unit)
                yield _both(f"torch {release}", settings, runs, str(python))


def rows_of_machine(
    machine: Machine, releases: Sequence[str], workshop: Workshop, inputs: Path, runs: Path
) -> Iterator[Row]:
    """An emulated machine: the NumPy implementation, and torch where there are builds of it."""
    name = f"{machine.name} under qemu, {machine.byte_order}"
    guest = workshop.guest(machine, os.environ.get("PATH", ""))
    if isinstance(guest, Unavailable):
        yield _not_run(name, guest)
        return
    yield Row(f"{name}, NumPy", None, None, run_numpy(guest.command(), inputs))
    if machine.has_torch:
        yield from _rows_of_guest_torch(name, guest, releases, workshop, runs)


def _rows_of_guest_torch(
    name: str, guest: Guest, releases: Sequence[str], workshop: Workshop, runs: Path
) -> Iterator[Row]:
    for release in releases:
        launcher = workshop.guest_torch(guest, release)
        if isinstance(launcher, Unavailable):
            yield _not_run(f"{name}, torch {release}", launcher)
        else:
            settings = default_settings(guest.machine.name)
            yield _both(f"{name}, torch {release}", settings, runs, str(launcher))


# --- judging and printing ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """How many state hashes each numerics gave, and what speaks against portability."""

    native: int
    portable: int
    faults: list[str]

    @property
    def exit_code(self) -> int:
        """0 when nothing speaks against it."""
        return 1 if self.faults else 0


def judge(rows: Sequence[Row], frozen: Hashes) -> Judgement:
    """Hold every portable run against the frozen hashes, all eight groups. Nothing run is a fault too."""
    faults = []
    states: dict[str, set[str]] = {"native": set(), "portable": set()}
    for row in rows:
        for numerics, outcome in (("native", row.native), ("portable", row.portable)):
            if isinstance(outcome, Failed):
                faults.append(f"{row.name}: {numerics} broke off: {outcome.cause}")
            elif isinstance(outcome, Hashes):
                states[numerics].add(outcome.state_vector_sha256)
        if isinstance(row.portable, Hashes) and (field := _first_difference(row.portable, frozen)):
            faults.append(f"{row.name}: portable: {field} is not the frozen record's")
    if not states["portable"]:
        faults.append("no portable run finished: nothing was compared")
    return Judgement(len(states["native"]), len(states["portable"]), faults)


def _first_difference(found: Hashes, frozen: Hashes) -> str:
    """The first field, in the order of the computation, that differs; empty where none does."""
    here, there = fields_of(found), fields_of(frozen)
    for group in COMPUTATION_ORDER:
        for name in here[group] | there[group]:
            if here[group].get(name) != there[group].get(name):
                return name
    return ""


def frozen_hashes() -> Hashes:
    """The portable hashes of the shipped record.

    Raises:
        NoRecordError, EvidenceError: when there is none, or it is damaged.
    """
    case = named_case(_CASE).model_copy(update={"numerics": "portable"})
    _, frozen = frozen_cases(load_folders([shipped_records()]), case)[0]
    return frozen.hashes


def print_rows(rows: Sequence[Row], judgement: Judgement, console: Console) -> None:
    """The table, then what was not run and why, then what is wrong, then the count."""
    table = Table(box=box.MARKDOWN)
    for column in ("where", "vector", "threads", "MKL_CBWR", "native", "portable"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        chosen = row.settings
        set_to = (chosen.vector, str(chosen.threads), chosen.mkl_cbwr) if chosen else ("", "", "")
        table.add_row(row.where, *set_to, _cell(row.native), _cell(row.portable))
    console.print(table)
    for row in rows:
        if isinstance(row.portable, Unavailable):
            console.print(
                f"not run: {row.name}: {row.portable.reason}; {row.portable.remedy}", soft_wrap=True
            )
    for fault in judgement.faults:
        console.print(f"wrong: {fault}", soft_wrap=True)
    console.print(f"native: {judgement.native} different hashes; portable: {judgement.portable}")


def _cell(outcome: Outcome | None) -> str:
    match outcome:
        case Hashes():
            return outcome.state_vector_sha256[:_DIGITS_SHOWN]
        case Failed():
            return "broke off"
        case Unavailable():
            return "not run"
        case None:
            return "-"


# --- the command --------------------------------------------------------------------------------------


def write_inputs(folder: Path) -> None:
    """The case's input archive and configuration, as a run has them."""
    case = named_case(_CASE)
    write_archive(load_dataset(case.data, RunOptions()), folder / "input.npz")
    (folder / "config.json").write_bytes(config_text(case.config))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything that can be run here, print one table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.portability", description=__doc__)
    parser.add_argument("--torch", action="append", metavar="RELEASE", help="another torch release to try")
    parser.add_argument("--install", action="store_true", help="download what is missing into --folder")
    parser.add_argument(
        "--folder", type=Path, default=_ROOT / ".portability", help="where downloads are kept"
    )
    chosen = parser.parse_args(arguments)
    workshop = Workshop(chosen.folder.resolve(), chosen.install, "make portability-check INSTALL=1")
    machine, flags = platform.machine(), frozenset(Path("/proc/cpuinfo").read_text().split())
    frozen, releases = frozen_hashes(), chosen.torch or []
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        for row in _all_rows(machine, flags, releases, workshop, folder):
            rows.append(row)
            print(f"{row.name}: {_cell(row.native)}, {_cell(row.portable)}", file=sys.stderr, flush=True)
    judgement = judge(rows, frozen)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(f"here: {_this_machine()}", soft_wrap=True)
    print_rows(rows, judgement, console)
    return judgement.exit_code


def _this_machine() -> str:
    cpu, torch = probe.cpu_facts(), probe.package_version("torch")
    release = "no torch" if isinstance(torch, Unavailable) else f"torch {torch}"
    return f"{cpu.vendor} {cpu.model_name}, {cpu.affinity_cpus} CPUs, {release}"


def _all_rows(
    machine: str, flags: frozenset[str], releases: Sequence[str], workshop: Workshop, folder: Path
) -> Iterator[Row]:
    runs = folder / "runs"
    yield from rows_of_this_machine(machine, flags, runs)
    yield Row("here, NumPy", None, None, run_numpy([sys.executable], folder))
    yield from rows_of_releases(releases, workshop, machine, flags, runs)
    for emulated in MACHINES:
        yield from rows_of_machine(emulated, releases, workshop, folder, runs)


if __name__ == "__main__":
    sys.exit(main())
