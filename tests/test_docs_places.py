"""What the documents point at is there: files, names in them, links, make targets, options of commands."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, commands, name_of
from tests.orchestrator.checkout import ROOT

_ROOMS = ("orchestrator", "fixture", "schemas", "tests", "docs")


def test_there_are_documents() -> None:
    assert {"README.md", "docs/records.md", "docs/ci/README.md"} <= {name_of(path) for path in DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_file_that_is_named_exists(document: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(_ROOMS)})/[\w./-]*)`", document.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


@cache
def names_in(file: str) -> frozenset[str]:
    """What a module defines at its top: functions, classes and variables."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def places(text: str) -> list[tuple[str, str]]:
    """Each "`name` in `file.py`", "`name` and `name` in `file.py`", "beside `name` in `file.py`"."""
    flat = " ".join(text.split())
    pairs = re.findall(r"((?:`\w+`(?:,| and)? )+)in `([\w./-]+\.py)`", flat)
    return [(name, file) for names, file in pairs for name in re.findall(r"`(\w+)`", names)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_name_in_a_file_is_defined_there(document: Path) -> None:
    named = places(document.read_text())
    assert [place for place in named if place[0] not in names_in(place[1])] == []


def test_the_guide_to_additions_names_its_places() -> None:
    found = places((ROOT / "docs" / "adding-a-case.md").read_text())
    assert ("_case_of_source", "orchestrator/cases.py") in found
    assert len(found) > 20
    assert "no_such_name" not in names_in("orchestrator/cases.py")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = document if not path else document.parent / path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def anchors(document: Path) -> set[str]:
    """The anchors that a Markdown renderer gives to a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_make_target_exists(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^\$ )make ([a-z-]+)", document.read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@cache
def options_of(command: str) -> frozenset[str]:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *command.split(), "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"COLUMNS": "200", "TERM": "dumb"},
    )  # fmt: skip
    return frozenset(re.findall(r"--[a-z-]+", done.stdout))


def command_lines(document: Path) -> list[str]:
    """Every `qualgate` command of a document: in its console blocks, and within its sentences."""
    flat = " ".join(document.read_text().split())
    in_blocks = [line for line in commands(document) if line.startswith("qualgate ")]
    return in_blocks + re.findall(r"`(qualgate [^`]+)`", flat)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_command_and_option_exists(document: Path) -> None:
    for line in command_lines(document):
        words = shlex.split(line)[1:]
        command = " ".join(words[:2]) if words[0] == "study" else words[0]
        assert {word for word in words if word.startswith("--")} <= options_of(command), line
