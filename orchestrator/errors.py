"""The tree of qualgate's errors and its exit codes.

    QualgateError
    ├── UsageError            2    wrong use: arguments, settings, configuration values
    │   └── InputError        2    a file that the user named cannot be read or understood
    ├── NoRecordError         3    no frozen record applies to this platform or case
    ├── RunError              4    the run could not be completed
    │   ├── FixtureFailed     4    the task process ended with an error, a signal or no result
    │   ├── RunTimedOut       4    the task process ran out of time and was killed
    │   └── StorageError      4    evidence could not be written (full disk, no permission)
    ├── EvidenceError         5    a record breaks its schema, its audit or an artefact hash
    └── Interrupted         130    Ctrl-C or SIGTERM; the task process is gone

Rules: an error is raised where the fault is known and caught in one place, `cli.main`, which prints
`str(error)` as one line and exits with `error.exit_code`. A verdict is a value, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The process exit codes of every command."""

    QUALIFIED = 0
    DISQUALIFIED = 1
    USAGE = 2
    NO_RECORD = 3
    RUN_FAILED = 4
    EVIDENCE_BROKEN = 5
    INTERRUPTED = 130


# First what leaves the least known: no evidence to trust, no run, no input, nothing to compare with.
_WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.EVIDENCE_BROKEN,
    ExitCode.RUN_FAILED,
    ExitCode.USAGE,
    ExitCode.NO_RECORD,
    ExitCode.DISQUALIFIED,
    ExitCode.QUALIFIED,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code of several outcomes together, of which there is at least one."""
    return min(codes, key=_WORST_FIRST.index)


class QualgateError(Exception):
    """A fault that ends a command: what happened, where, and what to do about it.

    Args:
        what: What happened, with found and expected values where there are any.
        where: The file, the place in it, or the setting at fault; empty when there is none.
        remedy: What the user can do; empty when the rest says it.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        """The error as one line, whatever line breaks its parts hold."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        line = f"{head}; {self.remedy}" if self.remedy else head
        return " ".join(line.split())


class UsageError(QualgateError):
    """Wrong use: an argument, a setting or a combination that is refused before any work."""

    exit_code = ExitCode.USAGE


class InputError(UsageError):
    """A file named by the user that cannot be read, or is not what it should be."""


class NoRecordError(QualgateError):
    """No frozen record applies, so there is nothing to judge against."""

    exit_code = ExitCode.NO_RECORD


class RunError(QualgateError):
    """The run could not be completed, so there is nothing to judge."""

    exit_code = ExitCode.RUN_FAILED


class FixtureFailed(RunError):
    """The task process ended with an error or a signal, or left no result."""


class RunTimedOut(RunError):
    """The task process ran out of time; its whole process group was killed."""


class StorageError(RunError):
    """Evidence could not be written; what was there before is unchanged."""


class EvidenceError(QualgateError):
    """A record or an artefact is not what it claims to be."""

    exit_code = ExitCode.EVIDENCE_BROKEN


class Interrupted(QualgateError):
    """Ctrl-C or SIGTERM arrived; the task process and its group are gone."""

    exit_code = ExitCode.INTERRUPTED
