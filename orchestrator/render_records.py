"""Frozen records as a person reads them: one record, their chains, and two side by side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.fingerprint import key_text
from orchestrator.lineage import Chain
from orchestrator.models import FrozenCase, GroupVerdict, QualificationRecord, Score, StackChange, Verdict
from orchestrator.qualification import FrozenFile
from orchestrator.record_diff import RecordDiff
from orchestrator.render import GROUP_TITLES, MARKS, divergence_line, first_of, new_table, short
from orchestrator.reports import escape_markdown, markdown_table
from orchestrator.verdict import fields_of

_DATE = len("2026-09-14")


def log_lines(found: Sequence[Chain], is_signed: Callable[[FrozenFile], bool]) -> list[Text]:
    """Every chain of frozen records, newest first, a blank line between two chains."""
    lines = []
    for number, chain in enumerate(found):
        if number:
            lines.append(Text(""))
        for index, file in enumerate(chain.files):
            newer = chain.files[index - 1].path.name if index else None
            lines += _log_entry(file, newer, is_signed=is_signed(file))
        if chain.before is not None:
            lines.append(Text(f"{chain.before}  {_before(chain)}", style="dim"))
    return lines


def _before(chain: Chain) -> str:
    if chain.forks:
        return "superseded twice: listed above, with its other successor"
    return "superseded; its file is not here"


def _log_entry(file: FrozenFile, newer: str | None, *, is_signed: bool) -> list[Text]:
    record = file.record
    style = "bold green" if newer is None and file.retirement is None else "dim"
    head = f"{file.path.name}  {record.frozen_at_utc[:_DATE]}  "
    signed = ", signed" if is_signed else ""
    cases = ", ".join(frozen.case.name for frozen in record.cases)
    return [
        Text.assemble((head, "bold"), (state_of(file, newer), style), signed),
        Text(f"    {cases}; {_platform(record)}"),
        Text(f"    {record.reason}"),
    ]


def state_of(file: FrozenFile, newer: str | None) -> str:
    """What a record is to the gate: current, superseded or retired, and why."""
    if file.retirement is not None:
        return f"retired: {file.retirement.reason}"
    return "current" if newer is None else f"superseded by {newer}"


def _platform(record: QualificationRecord) -> str:
    if record.numerics.name == "portable":
        return f"portable {record.numerics.version}: every machine"
    platform = record.platform
    where = platform.gpu or f"{platform.cpu_vendor}, {platform.vector}, {platform.threads} thread(s)"
    return f"native {record.numerics.version}: {where}, torch {platform.torch}"


def record_parts(file: FrozenFile, newer: str | None, *, is_signed: bool) -> list[RenderableType]:
    """One frozen record: what it is, then each of its cases."""
    record = file.record
    facts = new_table(file.path.name)
    facts.add_column("what")
    facts.add_column("frozen", overflow="fold")
    old = record.supersedes
    for row in (
        ("name", record.name),
        ("frozen at", record.frozen_at_utc),
        ("reason", record.reason),
        ("state", state_of(file, newer)),
        ("supersedes", "nothing" if old is None else f"{old.file}, {short(old.file_sha256)}"),
        ("signed", "yes: qualgate verify says by whom" if is_signed else "no"),
        ("levels", ", ".join(record.levels)),
        ("platform key", key_text(record.platform_key)),
        ("software", ", ".join(f"{name} {value}" for name, value in record.software.model_dump().items())),
        ("sources", f"{len(record.source_sha256)} files"),
        ("file", f"SHA-256 {file.sha256}"),
    ):
        facts.add_row(*row)
    return [facts, *(_case_table(frozen) for frozen in record.cases)]


def _case_table(frozen: FrozenCase) -> Table:
    table = new_table(f"case {frozen.case.name}")
    table.add_column("what")
    table.add_column("frozen", overflow="fold")
    config = ", ".join(f"{name} {value}" for name, value in frozen.case.config.model_dump().items())
    table.add_row("data", ", ".join(f"{k} {v}" for k, v in frozen.case.data.model_dump().items()))
    table.add_row("config", config)
    settings = frozen.settings.model_dump()
    table.add_row("settings", ", ".join(f"{k} {v}" for k, v in settings.items() if v is not None))
    table.add_row("examples", f"{frozen.train_count} training, {frozen.test_count} queries")
    if isinstance(frozen.score, Score):
        table.add_row("correct", f"{frozen.score.correct} of {frozen.score.total}")
    table.add_row("runs", f"{len(frozen.runs)} fresh processes agreed")
    if frozen.trace is not None:
        trace = frozen.trace
        table.add_row("trace", f"{trace.epochs} epochs of {trace.steps_per_epoch} steps, {trace.file}")
    for group, values in fields_of(frozen.hashes).items():
        digests = list(values.values())
        more = f" and {len(digests) - 1} more" if len(digests) > 1 else ""
        table.add_row(GROUP_TITLES[group], short(digests[0]) + more)
    return table


# --- two records ----------------------------------------------------------------------------------


def diff_headline(diff: RecordDiff) -> str:
    """What two frozen records have in common, in one line."""
    if diff.same_bits:
        return f"same bits: {diff.old}, {diff.new}"
    changed = [verdict.case for verdict in diff.verdicts if verdict.level_reached != "bitwise"]
    cases = [*changed, *diff.removed_cases, *diff.added_cases]
    return f"other bits: {diff.old}, {diff.new}: {', '.join(cases)}"


def diff_parts(diff: RecordDiff) -> list[RenderableType]:
    """Two frozen records: the hash groups of each case, then what may have changed them."""
    parts: list[RenderableType] = [Text(diff_headline(diff), style="bold")]
    for verdict in diff.verdicts:
        table = new_table(f"case {verdict.case}")
        for name in ("hash group", "fields", "equal", "first difference"):
            table.add_column(name, overflow="fold")
        for group in verdict.groups:
            table.add_row(
                GROUP_TITLES[group.group], _changed(group), MARKS[not group.differences], first_of(group)
            )
        parts.append(table)
    return [*parts, *(Text(line) for line in _diff_lines(diff))]


def diff_markdown(diff: RecordDiff) -> str:
    """The same for a pull request."""
    mark = "same bits" if diff.same_bits else "other bits"
    lines = [f"### qualgate diff: {mark}", ""]
    for verdict in diff.verdicts:
        rows = [
            (GROUP_TITLES[group.group], _changed(group), first_of(group) or "equal")
            for group in verdict.groups
        ]
        table = markdown_table(("hash group", "changed", "first difference"), rows)
        lines += [f"Case {escape_markdown(verdict.case)}:", "", table, ""]
    lines += [f"- {escape_markdown(line)}" for line in _diff_lines(diff)]
    return "\n".join(lines) + "\n"


def _changed(group: GroupVerdict) -> str:
    return f"{len(group.differences)} of {group.fields}"


def _diff_lines(diff: RecordDiff) -> list[str]:
    follows = "supersedes it" if diff.succeeds else "does not name it as its predecessor"
    lines = [f"{diff.new} {follows}: {diff.reason}"]
    lines += [f"case {name} is gone" for name in diff.removed_cases]
    lines += [f"case {name} is new" for name in diff.added_cases]
    for verdict in diff.verdicts:
        if verdict.first_divergence is not None:
            lines.append(f"case {verdict.case}: {divergence_line(verdict.first_divergence)}")
        lines += [
            f"{d.field}: {d.expected} → {d.found}" for d in verdict.other_differences if "config" in d.field
        ]
        lines += [f"note: {note}" for note in verdict.notes]
    lines += [_change_text("setting", change) for change in diff.settings]
    if diff.verdicts:
        lines += _stack_lines(diff.verdicts[0])
    return lines


def _stack_lines(verdict: Verdict) -> list[str]:
    """Sources, versions and kernels; they are a record's, so that every case's verdict has the same."""
    return [
        *(_change_text("source", change) for change in verdict.source_changes),
        *(_change_text("stack", change) for change in verdict.stack_changes),
        *(_change_text("vendor kernel", change) for change in verdict.kernel_changes),
    ]


def _change_text(what: str, change: StackChange) -> str:
    return f"{what} {change.what}: {short(change.frozen or 'absent')} → {short(change.found or 'absent')}"
