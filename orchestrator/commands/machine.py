"""`qualgate doctor`."""

from __future__ import annotations

from orchestrator.commands.console import print_json, print_parts
from orchestrator.commands.options import (
    JsonOption,
)


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can do, which records apply, and what to do about the rest."""
    from dataclasses import asdict

    from orchestrator.doctor import examine
    from orchestrator.render import fact_table

    facts = examine()
    if as_json:
        print_json([asdict(fact) for fact in facts])
    else:
        print_parts(fact_table("this machine", [(f.what, f.found, f.remedy) for f in facts]))
