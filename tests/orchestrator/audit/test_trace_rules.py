"""A traced run and a frozen record with its sidecar: clean, and one lie at a time in each."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.audit.evidence import audit_path
from orchestrator.cases import named_case
from orchestrator.environment import default_settings
from orchestrator.models import QualificationRecord, RunRecord
from orchestrator.qualification import shipped_records
from orchestrator.runner import Run, RunOptions, new_run_folder, run_case
from tests.orchestrator.audit.lies import Json, Lie, audit_json, planted, plus

TRACE = "result.trace"
LIES = [
    Lie(f"{TRACE}.epochs", plus(1), "trace.size"),
    Lie(f"{TRACE}.steps_per_epoch", plus(-1), "trace.size"),
    Lie(f"{TRACE}.tensors[4]", "loss", "trace.tensors"),
    Lie(f"{TRACE}.tensors", lambda names: names[:-1], "trace.tensors", f"{TRACE}.tensors[22]"),
    Lie(f"{TRACE}.chain_heads", lambda heads: heads[:1], "trace.chain-heads"),
    Lie(f"{TRACE}.same_process_chain_heads_matched", False, "trace.repeatable"),
    Lie(f"{TRACE}.kept_step.epoch", 2, "trace.kept-step"),
    Lie(f"{TRACE}.kept_step.step", 3, "trace.kept-step"),
]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Run:
    options = RunOptions(repeats=1, trace=True, keep_step=(1, 2))
    folder = new_run_folder(tmp_path_factory.mktemp("runs"), "traced")
    return run_case(named_case("synthetic-300-100"), default_settings(platform.machine()), options, folder)


def test_a_traced_run_is_clean(traced: Run) -> None:
    report = audit_path(traced.folder)
    assert report.sound, report.files[0].findings


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_about_a_trace_is_found_by_its_rule(traced: Run, lie: Lie) -> None:
    record: Json = json.loads((traced.folder / "record.json").read_bytes())
    findings = audit_json(planted(record, lie.path, lie.value), RunRecord)
    assert lie.found_in(findings), findings


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("damage", [flip, lambda data: data[:-16], None], ids=["flipped", "cut", "gone"])
def test_a_sidecar_that_is_not_the_records_is_found(
    traced: Run, tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(traced.folder, folder)
    sidecar = folder / "result.trace"
    if damage is None:
        sidecar.unlink()
    else:
        sidecar.write_bytes(damage(sidecar.read_bytes()))
    findings = audit_path(folder).files[0].findings
    assert {"trace.sidecar"} <= {finding.rule for finding in findings}


FROZEN_LIES = [
    Lie("cases[0].trace.epochs", plus(1), "trace.size"),
    Lie("cases[0].trace.tensors[0]", "batch", "trace.tensors"),
    Lie("cases[0].trace.chain_heads", lambda heads: heads[1:], "trace.chain-heads"),
]


def shipped() -> Path:
    (path,) = shipped_records().glob("digits-portable-*.json")
    return path


@pytest.mark.parametrize("lie", FROZEN_LIES, ids=str)
def test_a_lie_about_a_frozen_trace_is_found_by_its_rule(lie: Lie) -> None:
    record: Json = json.loads(shipped().read_bytes())
    findings = audit_json(planted(record, lie.path, lie.value), QualificationRecord)
    assert lie.found_in(findings), findings


def test_a_frozen_sidecar_may_be_missing_and_must_not_be_another(tmp_path: Path) -> None:
    record = json.loads(shipped().read_bytes())
    copied, name = tmp_path / shipped().name, record["cases"][0]["trace"]["file"]
    copied.write_bytes(shipped().read_bytes())
    assert audit_path(copied).sound
    (tmp_path / name).write_bytes(flip((shipped().parent / name).read_bytes()))
    assert [finding.rule for finding in audit_path(copied).files[0].findings] == ["trace.sidecar"]
    (tmp_path / name).write_bytes((shipped().parent / name).read_bytes())
    assert audit_path(copied).sound
