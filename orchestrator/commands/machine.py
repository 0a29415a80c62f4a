"""`qualgate doctor`."""

from __future__ import annotations

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import JsonOption, RecordsOption, records_folders


def doctor(
    records: RecordsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine can do, which records apply, and what to do about the rest."""
    from dataclasses import asdict, astuple

    from orchestrator.doctor import examine
    from orchestrator.render import fact_table

    facts = examine(records_folders(records))
    if as_json:
        print_json([asdict(fact) for fact in facts])
    else:
        print_parts(fact_table(astuple(fact) for fact in facts))
