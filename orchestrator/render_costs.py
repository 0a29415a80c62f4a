"""Costs as a person reads them: a study's table, and two runs' costs side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.costs import CostComparison, Sample
from orchestrator.models import (
    CostRatio,
    StudyBits,
    StudyCost,
    StudyMemory,
    StudyReport,
    StudyRow,
    Unavailable,
)
from orchestrator.render import mebibytes, new_table

_STYLES = {"lower": "green", "higher": "red", "ambiguous": "yellow"}
_COUNTED = {
    "allocated": "bytes allocated, as torch's CUDA allocator counts them",
    "resident": "resident bytes of the whole process, libraries included",
}
_NOT_MEASURED = Text("not measured", style="dim")


def study_table(report: StudyReport) -> RenderableType:
    """A study: one row a setting, then what was left out and why something was not measured."""
    table = new_table(f"{report.case.name} · {report.case.numerics} · {report.processes} processes a setting")
    has_energy = any(isinstance(row.idle_adjusted_mj_per_task, StudyCost) for row in report.rows)
    table.add_column("setting", overflow="fold")
    table.add_column("level reached", overflow="fold")
    table.add_column("fields that differ", overflow="fold")
    table.add_column("peak", no_wrap=True)
    table.add_column("live", no_wrap=True)
    table.add_column("ms per task", overflow="fold")
    if has_energy:
        table.add_column("mJ per task above idle", overflow="fold")
    for row in report.rows:
        is_baseline = row.setting == report.baseline
        table.add_row(
            row.setting,
            _level(row, is_baseline=is_baseline),
            _fields(row),
            *_memory(row.memory, is_baseline=is_baseline),
            _cost(row.ms_per_task),
            *([_cost(row.idle_adjusted_mj_per_task)] if has_energy else []),
        )
    lines = [
        f"÷ is how many times less memory than {report.baseline}, x how many times its cost, with the 95 % "
        "interval over processes"
    ]
    counted = {row.memory.counted for row in report.rows if isinstance(row.memory, StudyMemory)}
    lines += [f"memory: {_COUNTED[word]}" for word in sorted(counted)]
    if any("ambiguous" in _verdicts(row) for row in report.rows):
        lines.append("ambiguous: the interval holds 1, so neither is known to cost less; raise --processes")
    lines += [f"left out: {item.setting}: {item.reason}" for item in report.left_out]
    lines += _reasons(report)
    return Group(table, *(Text(line, style="dim") for line in lines))


def _level(row: StudyRow, *, is_baseline: bool) -> Text:
    if isinstance(row.bits, Unavailable):
        return Text("failed" if row.failure else "not known", style="bold red")
    level = "baseline" if is_baseline else row.bits.level_reached or "none"
    text = Text(level, style="bold" if level in ("baseline", "bitwise") else "yellow")
    if not row.bits.same_in_every_process:
        text.append("; not the same bits in each process", style="bold red")
    if row.failure:
        text.append("; failed later", style="bold red")
    return text


def _fields(row: StudyRow) -> str:
    if row.failure:
        return row.failure
    if not isinstance(row.bits, StudyBits):
        return row.bits.unavailable
    if row.bits.first_difference is None:
        return f"0 of {row.bits.compared_fields}"
    counted = f"{row.bits.differing_fields} of {row.bits.compared_fields}"
    return f"{counted}, first {row.bits.first_difference.field}"


def _memory(memory: StudyMemory | Unavailable, *, is_baseline: bool) -> tuple[Text, Text]:
    if isinstance(memory, Unavailable):
        return _NOT_MEASURED, _NOT_MEASURED
    peak = _bytes(memory.peak_bytes, None if is_baseline else memory.peak_reduction)
    live = _bytes(memory.live_bytes, None if is_baseline else memory.live_reduction)
    return Text(peak), Text(live)


def _bytes(count: int, reduction: float | Unavailable | None) -> str:
    known = isinstance(reduction, int | float)
    return f"{mebibytes(count)}\n÷{reduction:.2f}" if known else mebibytes(count)


def _cost(cost: StudyCost | Unavailable) -> Text:
    if isinstance(cost, Unavailable):
        return _NOT_MEASURED
    text = Text(f"{cost.mean:.1f}")
    match cost.ratio:
        case CostRatio() as ratio:
            text.append(f"\n{ratio.estimate:.3f}x {_interval(ratio)}\n")
            text.append(ratio.verdict, style=_STYLES[ratio.verdict])
        case Unavailable():
            text.append("\nno ratio", style="dim")
        case None:
            pass
    return text


def _interval(ratio: CostRatio) -> str:
    high = "∞" if ratio.upper_95 is None else f"{ratio.upper_95:.3f}"
    return f"({ratio.lower_95:.3f} to {high})"


def _verdicts(row: StudyRow) -> list[str]:
    costs = (row.ms_per_task, row.idle_adjusted_mj_per_task)
    ratios = [cost.ratio for cost in costs if isinstance(cost, StudyCost)]
    return [ratio.verdict for ratio in ratios if isinstance(ratio, CostRatio)]


def _reasons(report: StudyReport) -> list[str]:
    """Why a cell has no number, each reason once, for rows that did run."""
    said: dict[str, None] = {}
    for row in report.rows:
        if isinstance(row.bits, Unavailable):
            continue
        for what, value in (
            ("memory", row.memory),
            ("time", row.ms_per_task),
            ("energy", row.idle_adjusted_mj_per_task),
        ):
            if isinstance(value, Unavailable):
                said[f"{what} not measured: {_reason(value)}"] = None
            elif isinstance(value, StudyCost) and isinstance(value.ratio, Unavailable):
                said[f"{what}: no ratio for {row.setting}: {_reason(value.ratio)}"] = None
    return list(said)


def _reason(value: Unavailable) -> str:
    return f"{value.unavailable}; {value.remedy}" if value.remedy else value.unavailable


def costs_table(rows: Sequence[CostComparison]) -> RenderableType:
    """The costs of two runs, and what their intervals leave out."""
    table = new_table("costs")
    for name in ("mean of", "first", "second", "second / first", "95 % interval", "second is"):
        table.add_column(name, overflow="fold")
    for row in rows:
        ratio = row.ratio
        if isinstance(ratio, CostRatio):
            verdict = Text(ratio.verdict, style=_STYLES[ratio.verdict])
            cells = (f"{ratio.estimate:.3f}x", _interval(ratio), verdict)
        else:
            cells = ("not known", "", Text(_reason(ratio), style="dim"))
        table.add_row(row.what, _mean(row.first), _mean(row.second), *cells)
    note = (
        "note: each side is one process; its repeats or trials are not independent processes, so the "
        "interval leaves out what differs between processes, and neither side is called cheaper: "
        "qualgate study compares several"
    )
    return Group(table, Text(note, style="dim"))


def _mean(sample: Sample | Unavailable) -> str:
    if isinstance(sample, Unavailable):
        return "not measured"
    return f"{sum(sample.values) / len(sample.values):.3f} of {len(sample.values)}"
