"""The README keeps its word: the two commands come first, its tables are the code's, and it stays short."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.cli import app
from orchestrator.errors import ExitCode
from tests.documents import commands

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text()


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_two_commands_come_first() -> None:
    assert commands(README)[:2] == ["make gate", "make test"]


def test_ci_runs_the_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_table_of_commands_is_the_command_lines() -> None:
    cells = re.findall(r"^\| (`.*?`) \|", section("Commands"), flags=re.MULTILINE)
    shown = [name for cell in cells for name in re.findall(r"`(?:qualgate )?(\w+)", cell)]
    single = [
        command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands
    ]
    groups = [str(group.name) for group in app.registered_groups]
    assert sorted(shown) == sorted([*single, *groups])


def test_the_table_of_exit_codes_is_the_codes() -> None:
    table = section("Exit codes")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)] == list(ExitCode)


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= 250
