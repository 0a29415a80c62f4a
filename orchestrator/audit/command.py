"""The command line against what the record says was run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from orchestrator.audit.findings import Findings
from orchestrator.models import Energy, EnergyV1, FixtureResult, FixtureResultV1, RunRecord, RunRecordV1

_FIRST = "--input"
_FLAGS = frozenset({"--energy", "--trace"})
_CUDA_RANGE, _CPU_RANGE = "cudaProfilerStart/cudaProfilerStop", "torch.profiler"


def audit_command(record: RunRecordV1 | RunRecord, path: str, found: Findings) -> None:
    """Mode, scope, repeats, energy and files, as asked and as recorded."""
    options = fixture_options(record.command)
    place = f"{path}.command"
    repeated = [name for name, count in Counter(_names(record.command)).items() if count > 1]
    found.equal("command.options-once", place, repeated, [])
    for name in ("--input", "--config", "--output"):
        found.require("command.files", place, bool(options.get(name)), options.get(name), f"{name} FILE")
    found.equal("command.mode", place, options.get("--mode"), record.action)
    found.equal("command.scope", place, options.get("--scope"), record.scope)
    repeats = options.get("--repeats") or ""
    found.require(
        "command.repeats", place, repeats.isdecimal() and repeats.strip("0") != "", repeats, "1 or more"
    )
    if isinstance(record, RunRecord):
        found.equal("command.device", place, options.get("--device"), record.settings.device)
        found.equal("command.numerics", place, options.get("--numerics"), record.case.numerics)
    if record.result is not None:
        _audit_result(record, record.result, options, path, found)


def fixture_options(command: Sequence[str]) -> dict[str, str | None]:
    """The fixture's own options with their values; a launcher's, which come before them, are not."""
    words = list(command[command.index(_FIRST) :]) if _FIRST in command else []
    options: dict[str, str | None] = {}
    while words:
        name = words.pop(0)
        takes_value = name not in _FLAGS and bool(words)
        options.setdefault(name, words.pop(0) if takes_value else None)
    return options


def _names(command: Sequence[str]) -> list[str]:
    start = command.index(_FIRST) if _FIRST in command else 0
    return [word for word in command[start:] if word.startswith("--")]


def _audit_result(
    record: RunRecordV1 | RunRecord,
    result: FixtureResultV1 | FixtureResult,
    options: dict[str, str | None],
    path: str,
    found: Findings,
) -> None:
    place = f"{path}.result"
    found.equal("command.mode", f"{place}.mode", result.mode, record.action)
    found.equal("command.scope", f"{place}.requested_scope", result.requested_scope, record.scope)
    found.equal("command.energy", f"{path}.command", "--energy" in options, result.energy is not None)
    if isinstance(result.energy, Energy):
        asked = options.get("--trials")
        found.equal("command.trials", f"{place}.energy.trials", str(len(result.energy.trials)), asked)
    trace = result.trace if isinstance(result, FixtureResult) else None
    found.equal("command.trace", f"{path}.command", "--trace" in options, trace is not None)
    output = PurePath(options.get("--output") or "")
    found.equal(
        "command.predictions-file",
        f"{place}.predictions_file",
        result.predictions_file,
        f"{output.stem}.predictions.npy",
    )
    repeats = options.get("--repeats")
    if result.profile is not None:
        found.equal("command.repeats", f"{place}.profile.repeats", str(result.profile.repeats), repeats)
    if isinstance(result, FixtureResult) and result.timing is not None:
        timed = str(len(result.timing.repeat_ms))
        found.equal("command.repeats", f"{place}.timing.repeat_ms", timed, repeats)
    _audit_printed(record, result, options, path, found)


def _audit_printed(
    record: RunRecordV1 | RunRecord,
    result: FixtureResultV1 | FixtureResult,
    options: dict[str, str | None],
    path: str,
    found: Findings,
) -> None:
    """The fixture prints each trial's result and its last line; both are numbers and names of the record."""
    if isinstance(record, RunRecord) and not record.streams.stdout.text_is_complete:
        return
    printed = record.stdout.splitlines()
    lines = [f"Completed {result.mode}/{result.requested_scope}: {options.get('--output')}"]
    if isinstance(result.energy, EnergyV1 | Energy):
        lines += [
            f"Energy trial {trial.trial} {trial.idle_adjusted_mj_per_task} mJ/task"
            for trial in result.energy.trials
        ]
    for line in lines:
        found.require(
            "command.printed", f"{path}.stdout", line in printed, record.stdout, f"the line {line!r}"
        )


def audit_mode(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """What a result holds is what its mode and scope leave: times, or energy, or a profiled range."""
    measured = result.mode == "measure"
    found.equal(
        "command.profile-in-profile-mode", f"{path}.profile", result.profile is not None, not measured
    )
    if result.energy is not None:
        asked = (result.mode, result.requested_scope)
        found.equal("command.energy-mode", f"{path}.energy", asked, ("measure", "task"))
    if isinstance(result, FixtureResult):
        timed = measured and not isinstance(result.energy, Energy)
        found.equal("command.timing", f"{path}.timing", result.timing is not None, timed)
        if result.timing is not None:
            scope = result.timing.scope
            found.equal("command.scope", f"{path}.timing.scope", scope, result.requested_scope)
    if result.profile is None:
        return
    profile, place = result.profile, f"{path}.profile"
    on_cuda = result.device == "cuda"
    found.equal("command.scope", f"{place}.scope", profile.scope, result.requested_scope)
    found.equal(
        "command.profile-range", f"{place}.range", profile.range, _CUDA_RANGE if on_cuda else _CPU_RANGE
    )
    if profile.scope == "training":
        # The range holds one sequence of all epochs, however often it was asked for.
        found.equal("command.profile-range", f"{place}.repeats", profile.repeats, 1)
