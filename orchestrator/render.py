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
    Bisection,
    CudaMemory,
    Difference,
    Divergence,
    Energy,
    FixtureResult,
    GroupVerdict,
    ProcessMemory,
    Repetition,
    Score,
    StackChange,
    TensorDifference,
    Unavailable,
    Verdict,
)
from orchestrator.trace import place_text

if TYPE_CHECKING:
    from orchestrator.models import RunRecord
    from orchestrator.published import DrawVerdict
    from orchestrator.verdict import Evidence

GROUP_TITLES = {
    "input_hashes": "inputs",
    "initial_parameter_sha256": "initial parameters",
    "epoch_permutation_sha256": "epoch permutations",
    "final_parameter_sha256": "final parameters",
    "final_velocity_sha256": "velocities",
    "state_vector_sha256": "state vector",
    "scores_sha256": "scores",
    "predictions_sha256": "predictions",
}
_BEFORE_TRAINING = ("input_hashes", "initial_parameter_sha256", "epoch_permutation_sha256")
_NAMES_SHOWN = 8
MARKS = {True: Text("✓", style="bold green"), False: Text("✗", style="bold red")}


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
    where, then = f"in {first.field}", ""
    at: Difference | Divergence = first
    parted = verdict.first_divergence
    # What goes into the training comes before its first step.
    if parted is not None and not first.field.startswith(_BEFORE_TRAINING):
        where, at, then = f"at {place_text(parted)}", parted, f", then in {first.field}"
    return (
        f"disqualified: {verdict.case}: first difference {where}: "
        f"frozen {short(at.expected)}, found {short(at.found)}{then}{reason}"
    )


def _kind(verdict: Verdict) -> str:
    if verdict.difference_kind == "nondeterminism":
        if verdict.repetition is None or verdict.repetition.same_bits:
            return "nondeterminism: the bits moved between invocations of one process"
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
    table = new_table(_title(verdict, record))
    table.add_column("hash group")
    table.add_column("fields", justify="right")
    table.add_column("equal", justify="center")
    table.add_column("first difference", overflow="fold")
    for group in verdict.groups:
        table.add_row(
            GROUP_TITLES[group.group],
            str(group.fields),
            MARKS[not group.differences],
            first_of(group),
        )
    parts: list[RenderableType] = [table, _levels(verdict)]
    if verdict.first_divergence is not None:
        parts.append(Text(divergence_line(verdict.first_divergence), style="yellow"))
    if verdict.repetition is not None:
        style = "yellow" if verdict.repetition.same_bits else "bold yellow"
        parts.append(Text(repetition_line(verdict.repetition), style=style))
    parts += [Text(line, style="yellow") for line in change_lines(verdict)]
    parts += [Text(f"note: {note}", style="dim") for note in verdict.notes]
    if record is not None and record.result is not None:
        parts.append(Text(costs(record.result, record)))
    return Group(*parts)


def new_table(title: str) -> Table:
    """An empty table in the style of all of ours."""
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def _title(verdict: Verdict, record: RunRecord | None) -> str:
    if record is None or record.result is None:
        return f"{verdict.found} against {verdict.expected}"
    settings = record.settings
    where = record.result.gpu or f"cpu, {settings.vector}, {settings.threads} thread(s)"
    return f"{verdict.case} · {record.case.numerics} · {where}"


def first_of(group: GroupVerdict) -> str:
    """A group's first difference, its hashes cut short, and how many more there are; empty for none."""
    if not group.differences:
        return ""
    first, others = group.differences[0], len(group.differences) - 1
    more = f" (+{others} more)" if others else ""
    field = first.field.removeprefix(group.group).removeprefix(".")
    name = f"{field}: " if field else ""
    return f"{name}{short(first.expected)} → {short(first.found)}{more}"


def divergence_line(parted: Divergence) -> str:
    """The first training step that differs, with both digests, in one line."""
    digests = f"{short(parted.expected)} → {short(parted.found)}"
    return f"first training step that differs: {place_text(parted)}: {digests}"


def bisection_lines(found: Bisection) -> list[str]:
    """Where two trainings part, and by how much where both tensors were kept."""
    if found.divergence is None:
        lines = [f"no training step differs: {found.first}, {found.second}"]
    else:
        lines = [f"{found.first}, {found.second}: {divergence_line(found.divergence)}"]
    if found.difference is not None:
        lines += _tensor_lines(found.difference)
    lines += [f"kept: {file}" for file in found.kept_files]
    return [*lines, *(f"note: {note}" for note in found.notes)]


def _tensor_lines(item: TensorDifference) -> list[str]:
    shape = " x ".join(str(size) for size in item.shape)
    ulp = item.largest_ulp_distance
    size = "" if ulp is None else f", largest distance {ulp} ULP"
    place = ", ".join(str(index) for index in item.index)
    return [
        f"{item.tensor} ({item.dtype}, {shape}): {item.differing} of {item.elements} elements differ{size}",
        f"at [{place}]: {item.first} and {item.second}",
    ]


def _levels(verdict: Verdict) -> Text:
    style = "bold green" if verdict.qualified else "bold red"
    return Text.assemble(
        "level asked ",
        (verdict.level_asked, "bold"),
        ", reached ",
        (verdict.level_reached or "none", style),
    )


def repetition_line(repetition: Repetition) -> str:
    """What the second fresh process of a failed gate gave, in one line."""
    if repetition.same_bits:
        return "run again in a fresh process: the same bits came back"
    first = repetition.differences[0]
    return (
        f"run again in a fresh process: other bits in {first.field}: "
        f"{short(first.expected)}, then {short(first.found)}"
    )


def change_lines(verdict: Verdict) -> list[str]:
    """What is not as it was when the record was frozen: files and kernels by name, versions by value."""
    lines = []
    if verdict.source_changes:
        lines.append(f"sources that differ: {_names(verdict.source_changes)}")
    if verdict.level_reached != "bitwise" and verdict.stack_changes:
        moved = [f"{c.what} {c.frozen or 'absent'} → {c.found or 'absent'}" for c in verdict.stack_changes]
        lines.append(f"stack that differs: {', '.join(moved)}")
    if verdict.kernel_changes:
        lines.append(f"vendor kernels that give other bits: {_names(verdict.kernel_changes)}")
    return lines


def _names(changes: Sequence[StackChange]) -> str:
    shown = ", ".join(item.what for item in changes[:_NAMES_SHOWN])
    others = len(changes) - _NAMES_SHOWN
    return f"{shown} and {others} more" if others > 0 else shown


def short(value: str) -> str:
    """A hash or digest as its first twelve digits; anything else as it is."""
    is_hash = len(value) in (32, 64) and not value.strip("0123456789abcdef")
    return value[:12] + "…" if is_hash else value


def costs(result: FixtureResult, record: RunRecord) -> str:
    """Time, memory, energy and score of a run, in one line."""
    parts = [f"process {record.duration_s:.1f} s"]
    if result.timing is not None:
        parts.append(f"{result.timing.scope} {median(result.timing.repeat_ms):.1f} ms (median)")
    match result.memory:
        case CudaMemory() as memory:
            peak = memory.prepare_and_invoke_peak_allocated_bytes
            parts.append(f"peak {mebibytes(peak)} allocated")
        case ProcessMemory() as memory:
            peak = memory.prepare_and_invoke_peak_resident_bytes
            added = memory.added_peak_over_entry_resident_bytes
            parts.append(f"peak {mebibytes(peak)} resident ({mebibytes(added)} added by the task)")
        case Unavailable() as memory:
            parts.append(f"memory not measured: {memory.unavailable}")
    match result.energy:
        case Energy() as energy:
            adjusted = energy.summary.idle_adjusted_mj_per_task
            spread = energy.quality.idle_adjusted_mj_per_task
            interval = f"95 % interval {spread.confidence_95_low:.1f} to {spread.confidence_95_high:.1f}"
            parts.append(
                f"{adjusted.mean:.1f} mJ per task above idle (sample SD {adjusted.sample_sd:.1f}, {interval})"
            )
            if energy.quality.needs_more_trials:
                parts.append("the spread is too wide: measure again with more --trials")
        case Unavailable() as energy:
            parts.append(f"energy not measured: {energy.unavailable}")
        case None:
            pass
    if isinstance(record.score, Score):
        score = record.score
        share = 100 * score.correct / score.total
        parts.append(f"{score.correct} of {score.total} queries correct ({share:.1f} %)")
    return " · ".join(parts)


def mebibytes(count: int) -> str:
    """Bytes in MiB, with one decimal."""
    return f"{count / 2**20:.1f} MiB"


def side_by_side(expected: Evidence, found: Evidence, verdict: Verdict) -> Table:
    """Every field of both sides, in the order of the computation, then whatever else differs."""
    table = new_table("field by field")
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
                table.add_row(field, short(before[field]), short(after[field]), MARKS[True])
            else:
                values = " (values equal)" if item.values_equal else ""
                found_text = short(item.found) + values
                table.add_row(item.field, short(item.expected), found_text, MARKS[False])
    for item in verdict.other_differences:
        table.add_row(item.field, short(item.expected), short(item.found), MARKS[False])
    return table


def draw_table(verdicts: Sequence[DrawVerdict]) -> Table:
    """Published draws: facts compared and correct queries, one row a draw."""
    table = new_table("published draws")
    for name in ("draw", "facts", "equal", "correct", "first difference"):
        table.add_column(name)
    for verdict in verdicts:
        first = verdict.differences[0] if verdict.differences else None
        table.add_row(
            str(verdict.draw),
            str(verdict.compared),
            MARKS[verdict.qualified],
            f"{verdict.correct} of {verdict.total}",
            "" if first is None else f"{first.field}: {first.expected} → {first.found}",
        )
    return table


def fact_table(rows: Iterable[tuple[str, str, bool, str, str]]) -> Table:
    """Facts by section: whether each is there, what was found, and what to do about one that is missing."""
    table = new_table("this machine")
    table.add_column("what", overflow="fold")
    table.add_column("", justify="center")
    table.add_column("found", overflow="fold")
    table.add_column("what to do", overflow="fold", style="dim")
    last = ""
    for section, what, available, found, remedy in rows:
        if section != last:
            table.add_section()
            table.add_row(Text(section, style="bold"))
            last = section
        table.add_row(f"  {what}", MARKS[available], found, remedy)
    return table
