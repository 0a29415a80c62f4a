"""A profiled run: on CUDA under Nsight Compute, on a CPU with torch's profiler inside the fixture.

Beside a run's usual evidence, its folder then holds

    ncu-query-metrics.txt     the metrics that this Nsight Compute knows of the GPUs present
    ncu-query-metrics.err     what it printed to stderr meanwhile
    profile.ncu-rep           Nsight Compute's own report of the range

Without a working Nsight Compute the fixture runs bare, and the record says why there are no counters.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from orchestrator import ncu, probe
from orchestrator.availability import Unavailable
from orchestrator.environment import NumericSettings, build_environment
from orchestrator.hashing import file_sha256
from orchestrator.models import (
    CacheTraffic,
    Case,
    EvidenceFile,
    FixtureResult,
    NcuCounter,
    NcuProfile,
    NcuQuantity,
)
from orchestrator.models import Unavailable as RecordedUnavailable
from orchestrator.process import ProcessOutcome, run_process
from orchestrator.runner import Run, RunOptions, run_case

_QUERY_TIMEOUT_S = 120.0
_QUERY_FILE = "ncu-query-metrics.txt"
# Relative to the run folder: in a path of ours, `%` would be a macro of Nsight Compute's.
_REPORT_FILE = "profile.ncu-rep"
_LONGEST_LINE_CHARACTERS = 1 << 20


def profile_case(
    case: Case, settings: NumericSettings, options: RunOptions, folder: Path, *, under_ncu: bool
) -> Run:
    """Run a case with its range profiled; `options.mode` is `profile`, `folder` an empty run folder.

    Raises:
        What `run_case` raises. A profiler that is missing or fails is a finding of the record.
    """
    if not under_ncu:
        return run_case(case, settings, options, folder)
    launcher = probe.find_ncu(options.inherited.get("PATH", ""))
    if isinstance(launcher, Path):
        # A launcher whose installation is gone is found, and cannot say its version.
        version = probe.ncu_version(launcher)
        launcher = version if isinstance(version, Unavailable) else launcher
    if isinstance(launcher, Unavailable):
        return run_case(case, settings, options, folder, profiler=MissingNcu(launcher))
    supported = _query_metrics(launcher, settings, options, folder)
    metrics = ncu.choose_metrics(
        frozenset() if isinstance(supported, RecordedUnavailable) else _supported_metrics(folder)
    )
    profiler = NcuProfiler(launcher, metrics, supported, options, folder)
    return run_case(case, settings, options, folder, profiler=profiler)


@dataclass(frozen=True)
class MissingNcu:
    """The profiler of a run that has none: the fixture runs bare."""

    cause: Unavailable

    @property
    def command(self) -> Sequence[str]:
        """Nothing stands before the fixture's command."""
        return ()

    def findings(self, _: ProcessOutcome, __: FixtureResult | None) -> RecordedUnavailable:
        """Why there are no counters."""
        return _recorded(self.cause)


@dataclass(frozen=True)
class NcuProfiler:
    """Nsight Compute around the fixture, with the metrics to ask for."""

    launcher: Path
    metrics: dict[NcuQuantity, str]
    supported: EvidenceFile | RecordedUnavailable
    options: RunOptions
    folder: Path

    @property
    def command(self) -> Sequence[str]:
        """Nsight Compute's part of the command line."""
        return ncu.ncu_command(str(self.launcher), self.metrics.values(), _REPORT_FILE)

    def findings(self, outcome: ProcessOutcome, result: FixtureResult | None) -> NcuProfile:
        """Counters, and what they tell, from the streams that the run left."""
        streams = (outcome.stdout.path, outcome.stderr.path)
        output = ncu.read_output(chain.from_iterable(map(lines_of, streams)))
        cells = ncu.read_cells(output, outcome.returncode)
        if isinstance(cells, RecordedUnavailable):
            return self._profile(output, cells, cells, {}, cells)
        counters = ncu.read_counters(cells, self.metrics)
        traffic: CacheTraffic | RecordedUnavailable
        if result is None:
            traffic = RecordedUnavailable(
                unavailable="the run left no result that the counters could belong to", remedy=""
            )
        else:
            traffic = ncu.other_device(cells, result) or ncu.cache_traffic(
                counters, self.options.scope, self.options.repeats
            )
        passes = ncu.read_passes(output, cells)
        return self._profile(output, counters, passes, ncu.device_attributes(cells), traffic)

    def _profile(
        self,
        output: ncu.Output,
        counters: list[NcuCounter] | RecordedUnavailable,
        passes: int | RecordedUnavailable,
        device_attributes: dict[str, str],
        traffic: CacheTraffic | RecordedUnavailable,
    ) -> NcuProfile:
        return NcuProfile(
            command=list(self.command),
            counters=counters,
            passes=passes,
            device_attributes=device_attributes,
            traffic=traffic,
            report=_evidence(self.folder / _REPORT_FILE),
            supported_metrics=self.supported,
            messages=output.messages,
        )


def _query_metrics(
    launcher: Path, settings: NumericSettings, options: RunOptions, folder: Path
) -> EvidenceFile | RecordedUnavailable:
    """Keep what `ncu --query-metrics` prints, asked in the environment that the run will have."""
    environment = build_environment(
        settings,
        inherited=options.inherited,
        machine=platform.machine(),
        pass_through=options.pass_through,
        under_profiler=True,
    )
    outcome = run_process(
        [str(launcher), "--query-metrics"],
        env=environment.variables,
        cwd=folder,
        stdout_path=folder / _QUERY_FILE,
        stderr_path=(folder / _QUERY_FILE).with_suffix(".err"),
        timeout_s=_QUERY_TIMEOUT_S,
    )
    if outcome.timed_out or outcome.returncode != 0:
        how = "did not end in time" if outcome.timed_out else f"ended with {outcome.returncode}"
        return RecordedUnavailable(
            unavailable=f"{launcher} --query-metrics {how}", remedy=f"read {_QUERY_FILE} in the run folder"
        )
    return _evidence(folder / _QUERY_FILE)


def _supported_metrics(folder: Path) -> frozenset[str]:
    return ncu.supported_metrics(lines_of(folder / _QUERY_FILE))


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file of any size; one that is longer than any of Nsight Compute's comes in pieces."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        while line := file.readline(_LONGEST_LINE_CHARACTERS):
            yield line


def _evidence(path: Path) -> EvidenceFile | RecordedUnavailable:
    if not path.is_file():
        return RecordedUnavailable(unavailable=f"ncu left no file {path.name}", remedy="read its output")
    return EvidenceFile(file=path.name, sha256=file_sha256(path))


def _recorded(found: Unavailable) -> RecordedUnavailable:
    return RecordedUnavailable(unavailable=found.reason, remedy=found.remedy)
