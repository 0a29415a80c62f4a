"""Several gated cases as a person and a program read them. Pure: values in, tables and JSON out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from orchestrator.errors import ExitCode, QualgateError
from orchestrator.models import Case, Verdict
from orchestrator.render import GROUP_TITLES, first_of, headline, new_table


@dataclass(frozen=True)
class GatedCase:
    """One case of several: its verdict, or the error that kept it from one, and the seconds that it took."""

    case: Case
    outcome: Verdict | QualgateError
    duration_s: float

    @property
    def exit_code(self) -> ExitCode:
        """What a gate of this case alone would have ended with."""
        if isinstance(self.outcome, QualgateError):
            return self.outcome.exit_code
        return ExitCode.QUALIFIED if self.outcome.qualified else ExitCode.DISQUALIFIED

    @property
    def line(self) -> str:
        """The outcome in one line, as a gate of this case alone says it."""
        if isinstance(self.outcome, QualgateError):
            return f"no verdict: {self.case.name}: {self.outcome}"
        return headline(self.outcome)


def cases_table(cases: Sequence[GatedCase]) -> Table:
    """One row a case."""
    table = new_table("cases")
    for name in ("case", "numerics", "asked", "reached"):
        table.add_column(name)
    table.add_column("first difference", overflow="fold")
    table.add_column("time", justify="right")
    for item in cases:
        verdict = item.outcome
        if isinstance(verdict, QualgateError):
            cells = ("", "no verdict", f"exit code {verdict.exit_code}: {verdict.what}")
        else:
            cells = (verdict.level_asked, verdict.level_reached or "none", _first(verdict))
        table.add_row(item.case.name, item.case.numerics, *cells, f"{item.duration_s:.1f} s")
    return table


def _first(verdict: Verdict) -> str:
    for group in verdict.groups:
        if group.differences:
            return f"{GROUP_TITLES[group.group]}: {first_of(group)}"
    return ""


def cases_json(cases: Sequence[GatedCase]) -> list[dict[str, Any]]:
    """One object a case; of `verdict` and `error`, the one that there is not is null."""
    return [
        {
            "case": item.case.name,
            "numerics": item.case.numerics,
            "exit_code": int(item.exit_code),
            "error": str(item.outcome) if isinstance(item.outcome, QualgateError) else None,
            "verdict": item.outcome.model_dump() if isinstance(item.outcome, Verdict) else None,
        }
        for item in cases
    ]
