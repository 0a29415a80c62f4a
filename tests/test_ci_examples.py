"""docs/ci keeps its word: the examples fit the services' schemas, and their commands run as written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.orchestrator.checkout import ROOT, Checkout

EXAMPLES = ROOT / "docs" / "ci"
README = (EXAMPLES / "README.md").read_text()


def example(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


WORKFLOW = example("github-actions.yml")["jobs"]["gate"]
JOB = example("gitlab-ci.yml")["qualgate"]
((HOOK,),) = [repository["hooks"] for repository in example("pre-commit-config.yaml")["repos"]]
SCRIPTS: dict[str, list[str]] = {
    "github-actions.yml": [step["run"] for step in WORKFLOW["steps"] if "run" in step],
    "gitlab-ci.yml": JOB["script"],
    "pre-commit-config.yaml": ["make install", HOOK["entry"]],  # its first line asks for `make install`
}


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("github-actions.yml", "vendor.github-workflows"),
        ("github-actions.yml", "custom.github-workflows-require-timeout"),
        ("gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_an_example_fits_its_services_schema(name: str, schema: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, EXAMPLES / name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


# --- the commands run as written ------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A checkout in which an example's commands have run, and how they ended."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module", params=SCRIPTS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run one example's commands in a checkout, as its service would; only `make install` is a stand-in."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("ci"))
    tools = checkout.folder / "tools"
    tools.mkdir()
    # What `make install` leaves: the command, run by an interpreter that has torch.
    command = tools / "qualgate"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m orchestrator "$@"\n')
    command.chmod(0o755)
    make = tools / "make"
    make.write_text(
        '#!/bin/sh\n[ "$*" = install ] || exit 9\nmkdir -p .venv/bin\ncp tools/qualgate .venv/bin/\n'
    )
    make.chmod(0o755)
    environment = checkout.environment()
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(SCRIPTS[request.param])],
        cwd=checkout.folder,
        env={
            **environment,
            "PATH": f"{tools}:{environment['PATH']}",
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(checkout.folder / "summary.md"),
        },
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    return Ran(checkout.folder, done)


def test_the_commands_of_an_example_qualify_this_checkout(ran: Ran) -> None:
    assert ran.done.returncode == 0, ran.done.stderr
    assert ran.done.stdout.startswith("qualified: digits: level bitwise reached")


@pytest.mark.parametrize("ran", ["github-actions.yml"], indirect=True)
def test_the_workflow_leaves_its_summary_and_what_it_keeps(ran: Ran) -> None:
    assert (ran.folder / "summary.md").read_text().startswith("### ✓ qualgate: digits.portable")
    (upload,) = (step for step in WORKFLOW["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["if"] == "failure()"
    for path in upload["with"]["path"].split():
        assert (ran.folder / path).exists(), path


@pytest.mark.parametrize("ran", ["gitlab-ci.yml"], indirect=True)
def test_the_gitlab_job_leaves_what_it_keeps(ran: Ran) -> None:
    artifacts = JOB["artifacts"]
    for path in artifacts["paths"]:
        assert (ran.folder / path).exists(), path
    junit = ElementTree.parse(ran.folder / artifacts["reports"]["junit"]).getroot()  # noqa: S314  our own
    assert junit.get("failures") == "0"
    assert artifacts["when"] == "always"


# --- what a schema does not say -------------------------------------------------------------------


def test_the_workflow_may_only_read_and_pins_the_major_version_of_every_action() -> None:
    assert example("github-actions.yml")["permissions"] == {"contents": "read"}
    assert "permissions" not in WORKFLOW
    for uses in [step["uses"] for step in WORKFLOW["steps"] if "uses" in step]:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", uses)


@pytest.mark.parametrize("file", ["pyproject.toml", "Makefile"])
def test_caches_are_renewed_by_what_decides_the_installation(file: str) -> None:
    assert (ROOT / file).exists()
    (setup,) = (step for step in WORKFLOW["steps"] if "setup-python" in step.get("uses", ""))
    assert file in setup["with"]["cache-dependency-path"].split()
    assert file in JOB["cache"]["key"]["files"]


def test_the_hook_runs_for_every_file_that_decides_the_bits() -> None:
    folders = (("fixture", "*.py"), ("orchestrator/datasets", "*.py"), ("orchestrator/records", "*.json"))
    decisive = [
        path.relative_to(ROOT).as_posix()
        for folder, pattern in folders
        for path in (ROOT / folder).rglob(pattern)
    ]
    assert {folder for folder, _ in folders} <= {name.rpartition("/")[0] for name in decisive}
    assert [name for name in decisive if not re.search(HOOK["files"], name)] == []


@pytest.mark.parametrize(
    "name", ["README.md", "tests/fixture/test_task.py", "orchestrator/render.py", "docs/ci/README.md"]
)
def test_the_hook_does_not_run_for_other_files(name: str) -> None:
    assert (ROOT / name).exists()
    assert not re.search(HOOK["files"], name)


def test_the_hook_is_given_no_file_names() -> None:
    # pre-commit would add them to the command, and the gate takes none.
    assert HOOK["pass_filenames"] is False


def test_the_readme_links_every_example_and_names_only_options_that_exist() -> None:
    files = {path.name for path in EXAMPLES.iterdir()} - {"README.md"}
    assert set(re.findall(r"\]\(([^)]+)\)", README)) == files == set(SCRIPTS)
    help_text = subprocess.run(
        [sys.executable, "-m", "orchestrator", "gate", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"COLUMNS": "200", "TERM": "dumb"},
    ).stdout  # fmt: skip
    prose = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"--[a-z]+", prose)) <= set(re.findall(r"--[a-z]+", help_text))
