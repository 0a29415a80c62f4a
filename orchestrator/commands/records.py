"""Commands that read records: `qualgate compare` and `qualgate schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.console import finish, print_json, print_parts
from orchestrator.commands.options import (
    JsonOption,
    check_choice,
)
from orchestrator.errors import ExitCode, UsageError


def compare(
    first: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    second: Annotated[Path, typer.Argument(help="A run record or a frozen record.")],
    level: Annotated[
        str | None,
        typer.Option("--level", help="bitwise or predictions; by the platforms when not given."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two records field by field, in the order of the computation."""
    from typing import cast

    from orchestrator.comparison import load_side
    from orchestrator.costs import compare_costs
    from orchestrator.models import Level
    from orchestrator.render import headline, side_by_side, verdict_table
    from orchestrator.render_costs import costs_table
    from orchestrator.verdict import judge, level_to_ask

    if level is not None:
        check_choice("--level", level, ("bitwise", "predictions"))
    sides = load_side(first), load_side(second)
    expected, found = (side.evidence for side in sides)
    asked = cast("Level", level) if level is not None else level_to_ask(expected, found)
    verdict = judge(expected, found, asked)
    if as_json:
        print_json(verdict.model_dump())
    else:
        print_parts(headline(verdict), verdict_table(verdict), side_by_side(expected, found, verdict))
        runs = [side.run for side in sides if side.run is not None]
        costs = compare_costs(*runs) if len(runs) == 2 else []
        if costs:
            print_parts(costs_table(costs))
    if not verdict.qualified:
        finish(ExitCode.DISQUALIFIED, headline(verdict))


def schema(
    kind: Annotated[str | None, typer.Argument(help="A schema to print, e.g. run-record.v2.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write every schema there.")] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Compare this folder with the models.")
    ] = None,
) -> None:
    """Print, write or check the JSON Schemas of the records."""
    from orchestrator.codec import KINDS
    from orchestrator.schema_export import export, schema_of, stale

    if check is not None:
        if not check.is_dir():
            raise UsageError("no such folder", where=str(check))
        names = stale(check)
        if names:
            line = f"{check}: not what the models say: {', '.join(names)}; run qualgate schema --out {check}"
            finish(ExitCode.EVIDENCE_BROKEN, line)
        print_parts(f"{check}: {len(KINDS)} schemas, all as the models say")
    elif out is not None:
        if not out.is_dir():
            raise UsageError("no such folder", where=str(out))
        for name in export(out):
            print_parts(f"written: {out / name}")
    elif kind is not None:
        known = {item.schema_file.removesuffix(".schema.json"): item for item in KINDS}
        if kind not in known:
            raise UsageError(f"found {kind!r}, expected one of {', '.join(known)}")
        print_json(schema_of(known[kind]))
    else:
        for item in KINDS:
            print(item.schema_file.removesuffix(".schema.json"))
