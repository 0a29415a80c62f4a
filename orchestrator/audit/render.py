"""An audit as a person reads it. Pure; `rich` loads only where there is something to tabulate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from orchestrator.models import AuditedFile, AuditReport


def sound_line(file: AuditedFile) -> str:
    """A file without findings in one line, with what was checked."""
    head = f"sound: {file.record_file}: {file.record_kind}"
    if not file.rules:
        return f"{head}, by its schema alone: nothing in it can be derived"
    checked = f"{file.rules} rules in {file.checks} places"
    artefacts = f", {file.artefacts} files beside it" if file.artefacts is not None else ""
    if file.record_kind == "run-record.v2" and file.artefacts is None:
        artefacts = "; the record alone, for its run folder is not here"
    return f"{head}, {checked}{artefacts}"


def first_finding(report: AuditReport) -> str:
    """The audit's failure in one line: the first finding, and how many there are."""
    broken = [file for file in report.files if file.findings]
    first, count = broken[0].findings[0], sum(len(file.findings) for file in broken)
    more = f" ({count} findings in {len(broken)} of {len(report.files)} files)" if count > 1 else ""
    return (
        f"{broken[0].record_file}: at {first.path}: found {first.found}, expected {first.expected} "
        f"[{first.rule}]{more}"
    )


def findings_table(file: AuditedFile) -> Table:
    """The findings of one file, one row each."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"{file.record_file}: {file.record_kind}, {len(file.findings)} finding(s)"
    table = Table(
        title=Text(title, style="bold red"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name, style in (("path", "bold"), ("rule", "cyan"), ("expected", "green"), ("found", "red")):
        table.add_column(name, style=style, overflow="fold")
    for finding in file.findings:
        # As plain text: brackets in a path are no markup.
        row = (finding.path, finding.rule, finding.expected, finding.found)
        table.add_row(*(Text(value) for value in row))
    return table
