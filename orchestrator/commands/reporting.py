"""Where a gate's reports go: the files that were asked for, and GitHub's summary and log.

Rules
- A file that cannot be written is refused before anything runs.
- From then on no report is stale or missing: the files say that the gate has not finished until it has,
  whatever ends it, and an error ends up in them as its one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.errors import QualgateError, StorageError, UsageError

if TYPE_CHECKING:
    from orchestrator.reports import Report

JunitOption = Annotated[Path | None, typer.Option("--junit", help="Write a JUnit report to this file.")]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", help="Write a Markdown report to this file.")
]
GithubOption = Annotated[
    bool, typer.Option("--github", help="In GitHub Actions: a step summary, and an annotation on failure.")
]


@dataclass(frozen=True)
class Reports:
    """The places that the reports of gate `name` go to; `summary` is GitHub's file, `annotate` its log."""

    name: str
    junit: Path | None
    markdown: Path | None
    summary: Path | None
    annotate: bool

    def write(self, *reports: Report) -> None:
        """Write the reports, one a case, to every place.

        Raises:
            StorageError: when one cannot be written.
        """
        from orchestrator.reports import junit

        # A name that is no text, such as a folder's in another encoding, must not cost the report.
        text = "\n".join(report.markdown for report in reports).encode(errors="replace")
        if self.junit is not None:
            _replace(self.junit, junit(reports))
        if self.markdown is not None:
            _replace(self.markdown, text)
        if self.summary is not None:
            _append(self.summary, text + b"\n")
        if self.annotate:
            # On stderr, which GitHub reads too: stdout may hold JSON.
            for line in [line for report in reports for line in report.annotations]:
                print(line, file=sys.stderr, flush=True)

    def open(self) -> None:
        """Say in the files that the gate has not finished, and so find out whether they can be written.

        Raises:
            UsageError: naming the place that cannot.
        """
        from orchestrator.reports import error_report

        unfinished = "the gate has not finished: it is still running, or it was killed"
        try:
            replace(self, summary=None, annotate=False).write(
                error_report(self.name, "Unfinished", unfinished)
            )
            if self.summary is not None:
                _append(self.summary, b"")
        except StorageError as error:
            raise UsageError(
                error.what, where=error.where, remedy="name a file that can be written"
            ) from error


@contextmanager
def reporting(name: str, *, junit: Path | None, markdown: Path | None, github: bool) -> Iterator[Reports]:
    """The reports of gate `name`; an error that ends it is written to them on its way.

    Raises:
        UsageError: for a place that cannot be written, before anything has run.
    """
    summary = os.environ.get("GITHUB_STEP_SUMMARY") if github else None
    reports = Reports(
        name=name,
        junit=None if junit is None else _target("--junit", junit),
        markdown=None if markdown is None else _target("--markdown", markdown),
        summary=Path(summary) if summary else None,
        annotate=github and os.environ.get("GITHUB_ACTIONS") == "true",
    )
    if reports.junit is not None and reports.junit == reports.markdown:
        raise UsageError(f"--markdown: found {markdown}, expected another file than --junit's")
    reports.open()
    try:
        yield reports
    except QualgateError as error:
        from orchestrator.reports import error_report

        # The gate's own error counts; where it cannot be written, the file still says "not finished".
        with suppress(StorageError):
            reports.write(error_report(name, type(error).__name__, str(error)))
        raise


def _target(option: str, path: Path) -> Path:
    """The file behind a path: it gets replaced, so a link is followed and a device or pipe is refused."""
    try:
        target = path.resolve()
        usable = target.is_file() or not target.exists()
    except (OSError, RuntimeError) as error:
        # A name too long, a folder that is not ours; a RuntimeError is a loop of links.
        raise UsageError(f"{option}: cannot be written: {error}", where=str(path)) from error
    if not usable:
        raise UsageError(f"{option}: found {path}, which is no regular file, expected a file to replace")
    return target


def _replace(path: Path, data: bytes) -> None:
    from orchestrator.store import make_folder, write_atomically

    make_folder(path.parent)
    write_atomically(path, data)


def _append(path: Path, data: bytes) -> None:
    """Other commands of the same GitHub step have their say in its summary too, so it is not replaced."""
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        what = f"GITHUB_STEP_SUMMARY cannot be written: {error.strerror or error}"
        raise StorageError(what, where=str(path)) from error
