"""Verdicts and facts as a person reads them: rich tables and single lines. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.models import (
    CudaMemory,
    Energy,
    FixtureResult,
    GroupVerdict,
    ProcessMemory,
    Score,
    StackChange,
    Unavailable,
    Verdict,
)

if TYPE_CHECKING:
    from orchestrator.models import RunRecord
    from orchestrator.published import DrawVerdict
    from orchestrator.verdict import Evidence

_TITLES = {
    "input_hashes": "inputs",
    "initial_parameter_sha256": "initial parameters",
    "epoch_permutation_sha256": "epoch permutations",
    "final_parameter_sha256": "final parameters",
    "final_velocity_sha256": "velocities",
    "state_vector_sha256": "state vector",
    "scores_sha256": "scores",
    "predictions_sha256": "predictions",
}
_NAMES_SHOWN = 8
_MARKS = {True: Text("✓", style="bold green"), False: Text("✗", style="bold red")}


def headline(verdict: Verdict) -> str:
    """The verdict in one line; a failure names the first field that differs, frozen and found."""
    if verdict.qualified:
        reached = verdict.level_reached
        more = "" if reached == verdict.level_asked else f" (asked: {verdict.level_asked})"
        return f"qualified: {verdict.case}: level {reached} reached{more} against {verdict.expected}"
    first = verdict.first_difference
    if first is None:
        return f"disqualified: {verdict.case}: the hashes moved between invocations of one process"
    reason = f"; {_kind(verdict)}" if verdict.difference_kind else ""
    return (
        f"disqualified: {verdict.case}: first difference in {first.field}: "
        f"frozen {_short(first.expected)}, found {_short(first.found)}{reason}"
    )


def _kind(verdict: Verdict) -> str:
    if verdict.difference_kind == "nondeterminism":
        return "nondeterminism: a second fresh process gave other bits again"
    if verdict.source_changes:
        return f"a change: the same bits came back; sources that differ: {_names(verdict.source_changes)}"
    if verdict.kernel_changes:
        kernels = _names(verdict.kernel_changes)
        return f"a change: the same bits came back; vendor kernels that differ: {kernels}"
    return "a change: the same bits came back in a second fresh process"


def remedy(verdict: Verdict, folder: str) -> str:
    """What to do about a failed gate, in one line."""
    if verdict.difference_kind == "nondeterminism":
        return f"evidence in {folder}; look for a race, a library default or a faulty chip"
    if verdict.source_changes:
        return f"evidence in {folder}; undo the change, or freeze the new bits with a reason"
    if verdict.stack_changes or verdict.kernel_changes:
        return f"evidence in {folder}; the stack moved: go back to it, or freeze a record for the new one"
    return f"evidence in {folder}; sources and stack are the frozen ones: suspect the machine"


def verdict_table(verdict: Verdict, record: RunRecord | None = None) -> RenderableType:
    """The verdict as a table: one row a hash group, then differences, changes and costs."""
    table = _table(_title(verdict, record))
    table.add_column("hash group")
    table.add_column("fields", justify="right")
    table.add_column("equal", justify="center")
    table.add_column("first difference", overflow="fold")
    for group in verdict.groups:
        table.add_row(
            _TITLES[group.group],
            str(group.fields),
            _MARKS[not group.differences],
            _first_of(group),
        )
    parts: list[RenderableType] = [table, _levels(verdict)]
    if verdict.repetition is not None:
        parts.append(_repetition(verdict))
    parts += _change_lines(verdict)
    parts += [Text(f"note: {note}", style="dim") for note in verdict.notes]
    if record is not None and record.result is not None:
        parts.append(Text(costs(record.result, record)))
    return Group(*parts)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def _title(verdict: Verdict, record: RunRecord | None) -> str:
    if record is None or record.result is None:
        return f"{verdict.found} against {verdict.expected}"
    settings = record.settings
    where = record.result.gpu or f"cpu, {settings.vector}, {settings.threads} thread(s)"
    return f"{verdict.case} · {record.case.numerics} · {where}"


def _first_of(group: GroupVerdict) -> str:
    if not group.differences:
        return ""
    first, others = group.differences[0], len(group.differences) - 1
    more = f" (+{others} more)" if others else ""
    field = first.field.removeprefix(group.group).removeprefix(".")
    name = f"{field}: " if field else ""
    return f"{name}{_short(first.expected)} → {_short(first.found)}{more}"


def _levels(verdict: Verdict) -> Text:
    style = "bold green" if verdict.qualified else "bold red"
    return Text.assemble(
        "level asked ",
        (verdict.level_asked, "bold"),
        ", reached ",
        (verdict.level_reached or "none", style),
    )


def _repetition(verdict: Verdict) -> Text:
    assert verdict.repetition is not None  # noqa: S101  the caller has asked
    if verdict.repetition.same_bits:
        return Text("run again in a fresh process: the same bits came back", style="yellow")
    first = verdict.repetition.differences[0]
    return Text(
        f"run again in a fresh process: other bits in {first.field}: "
        f"{_short(first.expected)}, then {_short(first.found)}",
        style="bold yellow",
    )


def _change_lines(verdict: Verdict) -> list[RenderableType]:
    """What is not as it was when the record was frozen: files and kernels by name, versions by value."""
    lines = []
    if verdict.source_changes:
        lines.append(f"sources that differ: {_names(verdict.source_changes)}")
    if verdict.level_reached != "bitwise" and verdict.stack_changes:
        moved = [f"{c.what} {c.frozen or 'absent'} → {c.found or 'absent'}" for c in verdict.stack_changes]
        lines.append(f"stack that differs: {', '.join(moved)}")
    if verdict.kernel_changes:
        lines.append(f"vendor kernels that give other bits: {_names(verdict.kernel_changes)}")
    return [Text(line, style="yellow") for line in lines]


def _names(changes: Sequence[StackChange]) -> str:
    shown = ", ".join(item.what for item in changes[:_NAMES_SHOWN])
    others = len(changes) - _NAMES_SHOWN
    return f"{shown} and {others} more" if others > 0 else shown


def _short(value: str) -> str:
    """A hash as its first twelve digits; anything else as it is."""
    is_hash = len(value) == 64 and not value.strip("0123456789abcdef")
    return value[:12] + "…" if is_hash else value


def costs(result: FixtureResult, record: RunRecord) -> str:
    """Time, memory, energy and score of a run, in one line."""
    parts = [f"process {record.duration_s:.1f} s"]
    if result.timing is not None:
        parts.append(f"{result.timing.scope} {median(result.timing.repeat_ms):.1f} ms (median)")
    match result.memory:
        case CudaMemory() as memory:
            peak = memory.prepare_and_invoke_peak_allocated_bytes
            parts.append(f"peak {_mebibytes(peak)} allocated")
        case ProcessMemory() as memory:
            peak = memory.prepare_and_invoke_peak_resident_bytes
            added = memory.added_peak_over_entry_resident_bytes
            parts.append(f"peak {_mebibytes(peak)} resident ({_mebibytes(added)} added by the task)")
        case Unavailable() as memory:
            parts.append(f"memory not measured: {memory.unavailable}")
    match result.energy:
        case Energy() as energy:
            adjusted = energy.summary.idle_adjusted_mj_per_task
            parts.append(f"{adjusted.mean:.1f} mJ per task above idle (sample SD {adjusted.sample_sd:.1f})")
        case Unavailable() as energy:
            parts.append(f"energy not measured: {energy.unavailable}")
        case None:
            pass
    if isinstance(record.score, Score):
        score = record.score
        share = 100 * score.correct / score.total
        parts.append(f"{score.correct} of {score.total} queries correct ({share:.1f} %)")
    return " · ".join(parts)


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def side_by_side(expected: Evidence, found: Evidence, verdict: Verdict) -> Table:
    """Every field of both sides, in the order of the computation, then whatever else differs."""
    table = _table("field by field")
    for name in ("field", "first", "second"):
        table.add_column(name, overflow="fold")
    table.add_column("equal", justify="center")
    for group in verdict.groups:
        before, after = expected.groups[group.group], found.groups[group.group]
        # A difference in shape or dtype says so behind the field's name.
        faults = {item.field.partition(" ")[0]: item for item in group.differences}
        for field in [*before, *(name for name in after if name not in before)]:
            item = faults.get(field)
            if item is None:
                table.add_row(field, _short(before[field]), _short(after[field]), _MARKS[True])
            else:
                values = " (values equal)" if item.values_equal else ""
                found_text = _short(item.found) + values
                table.add_row(item.field, _short(item.expected), found_text, _MARKS[False])
    for item in verdict.other_differences:
        table.add_row(item.field, _short(item.expected), _short(item.found), _MARKS[False])
    return table


def draw_table(verdicts: Sequence[DrawVerdict]) -> Table:
    """Published draws: facts compared and correct queries, one row a draw."""
    table = _table("published draws")
    for name in ("draw", "facts", "equal", "correct", "first difference"):
        table.add_column(name)
    for verdict in verdicts:
        first = verdict.differences[0] if verdict.differences else None
        table.add_row(
            str(verdict.draw),
            str(verdict.compared),
            _MARKS[verdict.qualified],
            f"{verdict.correct} of {verdict.total}",
            "" if first is None else f"{first.field}: {first.expected} → {first.found}",
        )
    return table


def fact_table(title: str, rows: Iterable[tuple[str, str, str]]) -> Table:
    """Facts with what to do about each that is missing."""
    table = _table(title)
    table.add_column("what")
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold", style="dim")
    for row in rows:
        table.add_row(*row)
    return table
