"""A copy of the product that a test may break, and the command run from it in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
PACKAGES = ("orchestrator", "fixture", "schemas")


@dataclass(frozen=True)
class Checkout:
    """A folder with the three packages; `python -m orchestrator` there runs that copy and no other."""

    folder: Path

    @classmethod
    def copy(cls, folder: Path) -> Checkout:
        """Copy the product into an empty folder, without bytecode."""
        ignore = shutil.ignore_patterns("__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        return cls(folder)

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a source file; the old text must be there, once."""
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))

    def command(self, *arguments: str) -> list[str]:
        """The command line of `qualgate ARGUMENTS` from this copy."""
        return [sys.executable, "-m", "orchestrator", *arguments]

    def environment(self) -> dict[str, str]:
        """This process's environment, in which nothing points at another copy of the product."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "COLUMNS": "120",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def qualgate(self, *arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run `qualgate ARGUMENTS` in the copy's folder and wait for it."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The line that a non-zero exit ends with."""
    return done.stderr.strip().splitlines()[-1]
