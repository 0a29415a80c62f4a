"""A validation as a person reads it: a table by numerics, depth and kind of tensor, and one line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from rich.table import Table

from orchestrator.models import TensorCheck, TensorKind, ValidatedCase, ValidationReport
from orchestrator.render import new_table


def validation_line(report: ValidationReport) -> str:
    """What was found, in one line; a failure names the first check that failed."""
    checks = [(case, check) for case in report.cases for check in case.checks]
    failed = [(case, check) for case, check in checks if not check.passed]
    where = report.platform.gpu or report.device
    if not failed:
        return f"validated: {where}: {len(checks):,} checks passed"
    case, check = failed[0]
    count = f"{len(failed):,} of {len(checks):,} checks failed"
    return f"not validated: {where}: {count}, first {_said_of(case, check)}"


def _said_of(case: ValidatedCase, check: TensorCheck) -> str:
    config = case.config
    place = f"{case.numerics}, depth {config.depth}, weight decay {config.weight_decay:g}, {check.name}"
    if check.largest_absolute_error is None:
        return f"{place}: NaN or infinite"
    error = f"largest error {check.largest_absolute_error:.2g}"
    if check.largest_ratio is None:
        return f"{place}: the second run left other bits, {error}"
    return (
        f"{place}: {error}, {check.largest_ratio:.3g} times the tolerance against {check.reference} autograd"
    )


def validation_table(report: ValidationReport) -> Table:
    """The worst ratio of error to tolerance, for each numerics, depth and kind of tensor."""
    where = report.platform.gpu or report.device
    tolerance = f"{report.absolute_tolerance:g} + {report.relative_tolerance:g} |x|"
    table = new_table(f"{where} against autograd, error over tolerance ({tolerance})")
    for name in ("numerics", "depth", "tensors"):
        table.add_column(name)
    for name in ("checks", "failed", "worst"):
        table.add_column(name, justify="right")
    table.add_column("where", overflow="fold")
    for numerics, depth, kind, checks in _rows(report):
        failed = sum(not check.passed for check in checks)
        worst = max(checks, key=_badness)
        table.add_row(
            numerics, str(depth), kind, f"{len(checks):,}", f"{failed:,}", _ratio(worst), _where(worst)
        )
    return table


def _rows(report: ValidationReport) -> Iterator[tuple[str, int, str, Sequence[TensorCheck]]]:
    for numerics, depth in dict.fromkeys((case.numerics, case.config.depth) for case in report.cases):
        checks = [
            check
            for case in report.cases
            if (case.numerics, case.config.depth) == (numerics, depth)
            for check in case.checks
        ]
        for kind in get_args(TensorKind):
            of_kind = [check for check in checks if check.kind == kind]
            if of_kind:
                yield numerics, depth, kind, of_kind


def _badness(check: TensorCheck) -> tuple[bool, float]:
    """Failures first, those without a number at their head; then by ratio."""
    if check.largest_ratio is None:
        return not check.passed, 0.0 if check.passed else float("inf")
    return not check.passed, check.largest_ratio


def _ratio(check: TensorCheck) -> str:
    if check.kind == "repetition":
        return "same bits" if check.passed else "other bits"
    return "not finite" if check.largest_ratio is None else f"{check.largest_ratio:.2g}"


def _where(check: TensorCheck) -> str:
    """The place without the kind, which the row has already."""
    if check.kind == "repetition" and check.passed:
        return ""
    return check.name.replace(f", {check.kind}.", ", ")
