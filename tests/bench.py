"""`make bench`: what qualgate costs beside what it stands on.

The orchestrator beside the bare fixture, the task beside ordinary autograd, portable numerics and a trace
beside the task without them, imports beside the bare interpreter.

Every comparison is made in one run, its sides taking turns, and given as medians and ratios: absolute
times of a shared machine say little. Nothing here passes or fails.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_ROUNDS = 5
_ROOT = Path(__file__).parents[1]

# Runs a command of ours and prints its own peak resident size, which `wait4` would mix with its child's.
_WITH_PEAK = """
import atexit, resource, sys
atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr))
from orchestrator.cli import main
main()
"""

# Ordinary autograd with stored activations and torch.optim.SGD, and the task in its forms, taking turns.
_TASK = """
import json, statistics, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import torch
import torch.nn.functional as F
import numerics
from graph import prepare_execution, run_task
from inputs import read_archive, read_config
from task import QUERY_CHUNK, PreparedTask

torch.use_deterministic_algorithms(True)
config, _ = read_config(Path(sys.argv[3]))
inputs = read_archive(Path(sys.argv[2]))

def prepared(name, trace):
    return PreparedTask(config, inputs, torch.device("cpu"), numerics.load(name), trace=trace)

forms = [(name, trace) for name in numerics.NUMERICS for trace in (False, True)]
executions = {form: prepare_execution(prepared(*form)) for form in forms}
task = executions["native", False].task

def forward(x, parameters):
    *weights, head, bias = parameters
    left, right = x[:, :41], x[:, 41:]
    for a, b in zip(weights[::2], weights[1::2]):
        left = left + config.alpha * F.linear(right.relu(), a)
        right = right + config.alpha * F.linear(left.relu(), b)
    return F.linear(torch.cat((left, right), 1), head, bias)

def autograd():
    lift = lambda raw: F.pad(4 * raw - 0.5, (0, 1))
    x, q = lift(task.raw), lift(task.raw_query)
    parameters = [p.clone().requires_grad_() for p in task.initial]
    optimizer = torch.optim.SGD(parameters, lr=config.learning_rate, momentum=config.momentum)
    for order in task.orders:
        for batch in torch.split(order, config.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(forward(x[batch], parameters), task.labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        return torch.cat([forward(part, parameters) for part in torch.split(q, QUERY_CHUNK)]).argmax(1)

works = {f"{name}{', traced' * trace}": lambda e=e: run_task(e) for (name, trace), e in executions.items()}
works["autograd"] = autograd
times = {name: [] for name in works}
for _ in range(int(sys.argv[4])):
    for name, work in works.items():
        start = time.perf_counter()
        work()
        times[name].append((time.perf_counter() - start) * 1e3)
print(json.dumps({name: statistics.median(values) for name, values in times.items()}))
"""


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _checked(command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=_ROOT)


def _orchestrated(folder: Path) -> tuple[dict[str, object], int]:
    """A whole `qualgate run`; returns its record and the orchestrator's own peak in KiB."""
    command = [sys.executable, "-c", _WITH_PEAK, "run", "--quiet", "--json", "--runs-dir", str(folder)]
    done = _checked(command)
    return json.loads(done.stdout), int(done.stderr.split()[-1])


def _bare(record: dict[str, object]) -> None:
    """The very command that the orchestrator ran, in the very environment, by itself."""
    environment = record["environment"]
    assert isinstance(environment, dict)
    _checked(list(record["command"]), environment["variables"])  # type: ignore[call-overload]


def bench_orchestrator(table: Table, folder: Path) -> None:
    """Wall time and peak memory of `qualgate run` beside the bare fixture's."""
    record, _ = _orchestrated(folder)
    whole, bare, peaks = [], [], []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        _, peak = _orchestrated(folder)
        whole.append(time.perf_counter() - start)
        peaks.append(peak / 1024)
        bare.append(_seconds(lambda: _bare(record)))
    whole_s, bare_s = statistics.median(whole), statistics.median(bare)
    more = statistics.median(w - b for w, b in zip(whole, bare, strict=True))
    table.add_row(
        "qualgate run, digits", f"{whole_s:.2f} s", f"bare fixture {bare_s:.2f} s", f"{more:+.2f} s"
    )
    table.add_row("orchestrator's own peak", f"{statistics.median(peaks):.0f} MiB", "", "")


def bench_task(table: Table, folder: Path) -> None:
    """Time and memory of the task on one CPU thread: each form beside the one that it adds to."""
    # As large as an MNIST draw; the images are made up, so that no download is needed.
    for name, case in (("digits", "digits"), ("10,000 of 9x9", "synthetic-10000-10000")):
        records = {numerics: _record(case, numerics, folder) for numerics in ("native", "portable")}
        record = records["native"]
        at = {key: record["command"][record["command"].index(key) + 1] for key in ("--input", "--config")}
        arguments = [str(_ROOT / "fixture"), at["--input"], at["--config"], str(_ROUNDS)]
        script = [sys.executable, "-c", _TASK, *arguments]
        times = json.loads(_checked(script, record["environment"]["variables"]).stdout)
        for form, beside in (
            ("native", "autograd"), ("native, traced", "native"),
            ("portable", "native"), ("portable, traced", "portable"),
        ):  # fmt: skip
            ours, theirs = times[form], times[beside]
            measured = (f"{ours:.1f} ms", f"{beside} {theirs:.1f} ms", f"x {ours / theirs:.2f}")
            table.add_row(f"task, {name}, {form}", *measured)
        peaks = {
            numerics: record["result"]["memory"]["prepare_and_invoke_peak_resident_bytes"] / 2**20
            for numerics, record in records.items()
        }
        table.add_row(
            f"peak memory, {name}, portable", f"{peaks['portable']:.0f} MiB",
            f"native {peaks['native']:.0f} MiB", f"x {peaks['portable'] / peaks['native']:.2f}",
        )  # fmt: skip


def _record(case: str, numerics: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "orchestrator", "run", "--case", case, "--numerics", numerics]
    done = _checked([*command, "--quiet", "--json", "--runs-dir", str(folder)])
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def bench_start(table: Table) -> None:
    """Time to an answer of the commands that need no torch, beside the bare interpreter."""
    commands = {
        "qualgate --help": ["-m", "orchestrator", "--help"],
        "qualgate schema": ["-m", "orchestrator", "schema"],
        "import orchestrator.models": ["-c", "import orchestrator.models"],
    }
    times: dict[str, list[float]] = {name: [] for name in ("python", *commands)}
    for _ in range(_ROUNDS):
        times["python"].append(_seconds(lambda: _checked([sys.executable, "-c", ""])))
        for name, arguments in commands.items():
            times[name].append(_seconds(lambda a=arguments: _checked([sys.executable, *a])))  # type: ignore[misc]
    floor = statistics.median(times.pop("python"))
    for name, values in times.items():
        middle = statistics.median(values)
        table.add_row(name, f"{middle:.2f} s", f"bare interpreter {floor:.2f} s", f"{middle - floor:+.2f} s")


def main() -> None:
    """Run every benchmark and print one table."""
    table = Table(title=f"medians of {_ROUNDS} rounds, {os.cpu_count()} cores", title_justify="left")
    for column in ("what", "median", "beside", "difference or ratio"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as name:
        bench_start(table)
        bench_orchestrator(table, Path(name))
        bench_task(table, Path(name))
    Console().print(table)


if __name__ == "__main__":
    main()
