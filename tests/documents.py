"""What the documents hold that a test can check: commands with the output they show, and edits of sources.

The form
- A line of a `console` block that starts with `$ ` is a command for bash. The lines after it, up to the next
  command, are lines of its output in their order; others may stand between them. `…` stands for any text.
- A command ends with exit code 0, unless the next one is `echo $?`: that one shows the code.
- A `diff` block is an edit of this checkout, which `git apply` makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.orchestrator.checkout import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(console|diff)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def name_of(document: Path) -> str:
    """A document's path in the checkout: what a failing test calls it."""
    return document.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Command:
    """A command as a reader would type it, and the lines of output that the document shows."""

    line: str
    shown: tuple[str, ...]

    def first_missing(self, output: str) -> str | None:
        """The first shown line that the output does not have at its place; None when all are there."""
        found = iter(output.splitlines())
        for line in self.shown:
            pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
            if not any(pattern.fullmatch(text.strip()) for text in found):
                return line
        return None


@dataclass(frozen=True)
class Edit:
    """A change of the sources, in the form of a diff."""

    text: str


def steps(document: Path) -> list[Command | Edit]:
    """What a reader of the document does, from top to bottom."""
    found: list[Command | Edit] = []
    for language, text in _BLOCK.findall(document.read_text()):
        found += [Edit(text)] if language == "diff" else _commands(text)
    return found


def _commands(block: str) -> list[Command]:
    first, *others = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first.strip(), f"a console block starts with output: {first!r}"
    lines = [text.splitlines() for text in others]
    return [Command(line, tuple(shown)) for line, *shown in lines]


def commands(document: Path) -> list[str]:
    """Every command line of a document."""
    return [step.line for step in steps(document) if isinstance(step, Command)]
