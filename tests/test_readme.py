"""The README keeps its word: its commands exist, its table of exit codes is the code's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def console_commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    return [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]


def options_of(command: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", command, "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"COLUMNS": "200", "TERM": "dumb"},
    )  # fmt: skip
    return set(re.findall(r"--[a-z-]+", done.stdout))


def test_the_two_commands_come_first() -> None:
    assert console_commands()[:2] == ["make gate", "make test"]


@pytest.mark.parametrize("line", [c for c in console_commands() if c.startswith("qualgate")])
def test_every_option_in_the_readme_exists(line: str) -> None:
    words = shlex.split(line)
    assert {word for word in words if word.startswith("--")} <= options_of(words[1])


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_table_of_exit_codes_is_the_codes() -> None:
    table = README.split("## Exit codes")[1].split("##")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)] == list(ExitCode)


def test_ci_runs_the_readme_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
