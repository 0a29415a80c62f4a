"""Every command in the documents runs as it is written, and gives the output that is shown for it.

Each document is followed from top to bottom in a copy of the product of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from tests.documents import DOCUMENTS, Command, Edit, commands, name_of, steps
from tests.orchestrator.checkout import ROOT, SHARED, Checkout

# What is not run here, and where it is. MNIST's commands are run where its files are.
NOT_RUN = {
    "make gate": "installs torch from the network; the command that it runs then is run here",
    "make test": "is this test's own run",
    "qualgate qualify mnist-medium --out evidence-mnist --idx-dir mnist": "takes 22 runs",
    "make portability-check": "takes minutes; tests/test_portability.py runs parts of it",
    "make portability-check INSTALL=1": "downloads gigabytes",
    'make portability-check INSTALL=1 TORCHES="2.5.1 2.8.0"': "downloads gigabytes",
}
MNIST = SHARED / "mnist"


def needs_mnist(line: str) -> bool:
    return "--idx-dir" in line


FOLLOWED = [
    document
    for document in DOCUMENTS
    if any(line not in NOT_RUN and not needs_mnist(line) for line in commands(document))
]
WITH_MNIST = [document for document in DOCUMENTS if any(map(needs_mnist, commands(document)))]


class Shell:
    """A folder with a copy of the product, whose `qualgate` is the command on PATH; one command at a time."""

    def __init__(self, folder: Path) -> None:
        self.checkout = Checkout.copy(folder)
        tools = folder / "tools"
        tools.mkdir()
        qualgate = tools / "qualgate"
        qualgate.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m orchestrator "$@"\n')
        qualgate.chmod(0o755)
        environment = self.checkout.environment()
        # Unset what would make a gate here report to a CI service that runs this test.
        for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            environment.pop(name, None)
        # Wide: a table that is cut to a narrow terminal would not show what it is checked for.
        self.environment = {
            **environment,
            "PATH": f"{tools}{os.pathsep}{environment['PATH']}",
            "COLUMNS": "200",
        }
        self.last_code = 0

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line in bash, after an exit with the last line's code: `$?` is what a user would see."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.last_code})\n{line}"],
            cwd=self.checkout.folder, env=self.environment, text=True, timeout=300, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.last_code = done.returncode
        return done

    def apply(self, edit: Edit) -> None:
        done = subprocess.run(
            ["git", "apply", "--whitespace=error", "-"],
            cwd=self.checkout.folder, input=edit.text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{edit.text}"

    def follow(self, step: Command | Edit, following: Command | Edit | None) -> None:
        """Do one step of a document and check what the document says of it."""
        if isinstance(step, Edit):
            self.apply(step)
            return
        done = self.run(step.line)
        told = f"$ {step.line}\n{done.stdout}\nexit code {done.returncode}"
        assert (missing := step.first_missing(done.stdout)) is None, f"not in the output: {missing}\n{told}"
        code_is_shown = isinstance(following, Command) and following.line == "echo $?"
        assert done.returncode == 0 or code_is_shown, told


@pytest.mark.parametrize("document", FOLLOWED, ids=name_of)
def test_a_document_can_be_followed_as_written(document: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    todo = [
        step
        for step in steps(document)
        if isinstance(step, Edit) or (step.line not in NOT_RUN and not needs_mnist(step.line))
    ]
    for step, following in zip(todo, [*todo[1:], None], strict=True):
        shell.follow(step, following)


@pytest.mark.skipif(not MNIST.exists(), reason=f"MNIST's files are not in {MNIST}")
@pytest.mark.parametrize("document", WITH_MNIST, ids=name_of)
def test_the_commands_with_mnist_run_as_written(document: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "mnist").symlink_to(MNIST)
    for step in steps(document):
        if isinstance(step, Command) and step.line not in NOT_RUN and needs_mnist(step.line):
            shell.follow(step, None)


def test_what_is_not_run_is_in_a_document() -> None:
    written = {line for document in DOCUMENTS for line in commands(document)}
    assert set(NOT_RUN) - written == set()


def test_every_exit_code_has_an_example_that_gives_it() -> None:
    document = ROOT / "docs" / "exit-codes.md"
    sections = re.findall(r"^## (\d+): .*?(?=^## |\Z)", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    shown = [step.shown for step in steps(document) if isinstance(step, Command) and step.line == "echo $?"]
    assert list(map(int, sections)) == list(ExitCode)
    assert sorted({int(code) for (code,) in shown}) == sorted(ExitCode)


def test_output_that_is_not_there_is_noticed() -> None:
    command = Command("", ("first …", "third"))
    assert command.first_missing("first line\nsecond\n  third\n") is None
    assert command.first_missing("first line\nsecond\n") == "third"
    assert command.first_missing("third\nfirst line\n") == "third"
    assert command.first_missing("not the first line\nthird\n") == "first …"
