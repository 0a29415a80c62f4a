"""A qualification's verdict as a table and in one line. Pure."""

from __future__ import annotations

from rich.table import Table

from orchestrator.models import QualificationRecord, QualificationVerdict, Unavailable
from orchestrator.render import new_table


def verdict_line(verdict: QualificationVerdict) -> str:
    """Passed or failed, with the first draw that does not reach the required accuracy."""
    required = f"the required {verdict.required_accuracy_percent:g} %"
    short = [draw for draw in verdict.draws if not draw.reached]
    if not short:
        return f"passed: {verdict.name}: every draw reaches {required}"
    first = short[0]
    return (
        f"failed: {verdict.name}: {len(short)} of {len(verdict.draws)} draws below {required}, first "
        f"{first.case} with {first.score.correct} of {first.score.total} ({first.accuracy_percent:.2f} %)"
    )


def accuracy_table(verdict: QualificationVerdict, frozen: QualificationRecord) -> Table:
    """One row a draw with the hash of its predictions, then the total."""
    table = new_table(f"{frozen.name} · torch {frozen.software.torch}")
    table.add_column("draw")
    for name in ("correct", "accuracy"):
        table.add_column(name, justify="right")
    table.add_column("reached", justify="center")
    table.add_column("predictions")
    for draw, case in zip(verdict.draws, frozen.cases, strict=True):
        table.add_row(
            draw.case,
            f"{draw.score.correct} of {draw.score.total}",
            f"{draw.accuracy_percent:.2f} %",
            "✓" if draw.reached else "✗",
            f"{case.hashes.predictions_sha256[:12]}…",
        )
    table.add_section()
    total = verdict.score
    table.add_row("total", f"{total.correct} of {total.total}", f"{verdict.mean_accuracy_percent:.2f} %")
    return table


def spread_line(verdict: QualificationVerdict) -> str:
    """Mean, sample standard deviation and what was required, in one line."""
    spread = verdict.sample_sd_percent
    said = f"none ({spread.unavailable})" if isinstance(spread, Unavailable) else f"{spread:.2f} points"
    return (
        f"mean {verdict.mean_accuracy_percent:.2f} %, sample SD {said}, "
        f"required {verdict.required_accuracy_percent:g} % of every draw"
    )
