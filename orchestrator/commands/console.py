"""What every command says: lines and tables on stdout, and one line on stderr when it fails."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from orchestrator.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_parts(*parts: RenderableType) -> None:
    """Print lines and tables on stdout."""
    from rich.console import Console

    # Lines stay whole for grep and logs; only tables follow the terminal's width.
    console = Console(highlight=False, markup=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def print_json(value: Any) -> None:
    """Print a JSON value on stdout, in canonical form."""
    from orchestrator.json_text import canonical_text

    sys.stdout.write(canonical_text(value).decode())


def finish(code: ExitCode, line: str) -> NoReturn:
    """End a command with a code and its line."""
    raise typer.Exit(complain(code, line))


def complain(code: ExitCode, line: str) -> ExitCode:
    """Print the one line that every non-zero exit ends with."""
    print(f"qualgate: {' '.join(line.split())}", file=sys.stderr)
    return code
