"""`qualgate doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import JsonOption


def doctor(
    records: Annotated[
        list[Path] | None,
        typer.Option("--records", help="More folders of frozen records.", show_default="qualification"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine can do, which records apply, and what to do about the rest."""
    from dataclasses import asdict, astuple

    from orchestrator.doctor import examine
    from orchestrator.render import fact_table

    usual = Path("qualification")
    facts = examine(records if records is not None else [usual] if usual.is_dir() else [])
    if as_json:
        print_json([asdict(fact) for fact in facts])
    else:
        print_parts(fact_table(astuple(fact) for fact in facts))
