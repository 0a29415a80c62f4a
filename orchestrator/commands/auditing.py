"""`qualgate audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import JsonOption
from orchestrator.errors import ExitCode


def audit(
    path: Annotated[
        Path, typer.Argument(help="A record, or a folder with runs and frozen records at any depth.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Derive again whatever a record says that can be derived, and list what does not hold."""
    from orchestrator.audit.evidence import audit_path
    from orchestrator.audit.render import findings_table, first_finding, sound_line

    report = audit_path(path)
    if as_json:
        print_json(report.model_dump())
    else:
        for line in (sound_line(file) for file in report.files if not file.findings):
            print(line)
        if not report.sound:
            print_parts(*(findings_table(file) for file in report.files if file.findings))
    if not report.sound:
        finish(ExitCode.EVIDENCE_BROKEN, first_finding(report))
