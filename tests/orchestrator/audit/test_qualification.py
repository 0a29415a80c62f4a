"""A frozen record of a fresh run, and one lie at a time in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.audit.evidence import audit_path
from orchestrator.codec import check_model, content_sha256, encode
from orchestrator.models import QualificationRecord
from orchestrator.qualification import freeze, shipped_records
from orchestrator.runner import Run
from tests.orchestrator.audit.lies import GONE, Json, Lie, audit_json, other_hash, planted, plus

CASE = "cases[0]"

LIES = [
    Lie("platform_key.threads", "64", "qualification.platform-key"),
    Lie("platform.torch", "2.5.1", "qualification.platform-key", "platform_key.torch"),
    Lie("platform.numpy", "1.0", "platform.versions"),
    Lie("levels", ["bitwise", "bitwise"], "qualification.levels-once"),
    Lie("cases", lambda cases: cases * 2, "qualification.cases-once"),
    Lie(f"{CASE}.case.numerics", "portable", "qualification.numerics"),
    Lie(f"{CASE}.settings.mkl_cbwr", "AVX512", "qualification.settings"),
    Lie(f"{CASE}.config_file_sha256", other_hash, "hashes.config-file"),
    Lie(f"{CASE}.case.config.seed", 12, "hashes.config-file", f"{CASE}.config_file_sha256"),
    Lie(f'{CASE}.hashes.final_parameter_sha256["head.bias"]', GONE, "hashes.parameter-names"),
    Lie(f"{CASE}.hashes.epoch_permutation_sha256", lambda hashes: hashes[:1], "hashes.permutation-count"),
    Lie(f"{CASE}.hashes.predictions_sha256", other_hash, "hashes.integer-value-digest",
        f"{CASE}.arrays.predictions_sha256.value_sha256"),
    Lie(f"{CASE}.arrays.state_vector_sha256.shape", [7555], "hashes.array-shape"),
    Lie(f"{CASE}.arrays.state_vector_sha256.dtype", "float64", "hashes.array-dtype"),
    Lie(f"{CASE}.arrays.state_vector_sha256", GONE, "hashes.array-names"),
    Lie(f"{CASE}.train_count", plus(1), "run.counts"),
    Lie(f"{CASE}.score.total", 99, "run.score-total"),
    Lie(f"{CASE}.runs", lambda runs: [runs[0], runs[0]], "qualification.runs-differ"),
    Lie(f"{CASE}.runs[1].finished_at_utc", "2099-01-01T00:00:00.000000+00:00", "qualification.times"),
]  # fmt: skip


@pytest.fixture(scope="module")
def frozen(fresh: Run) -> QualificationRecord:
    """Frozen from one run and a second that agrees with it, for no other reason than this test."""
    return freeze([fresh, replace(fresh, record_sha256="0" * 64)], reason="for the tests", levels=["bitwise"])


def resealed(record: Json) -> Json:
    """The record with the content hash that it would have been frozen with."""
    model = check_model(record, QualificationRecord, "a record")
    return {**record, "content_sha256": content_sha256(model)}


def test_a_frozen_record_is_clean(frozen: QualificationRecord) -> None:
    assert audit_json(frozen.model_dump(), QualificationRecord) == []


def test_the_shipped_records_are_clean() -> None:
    report = audit_path(shipped_records())
    assert report.sound, [file.findings for file in report.files]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_is_found_by_its_rule_under_a_new_seal(lie: Lie, frozen: QualificationRecord) -> None:
    truth = frozen.model_dump()
    lying = planted(truth, lie.path, lie.value)
    assert lying != truth
    findings = audit_json(resealed(lying), QualificationRecord)
    assert lie.found_in(findings), findings


@pytest.mark.parametrize(
    "lie",
    [
        Lie("reason", "another", "qualification.content-hash", "content_sha256"),
        Lie(f"{CASE}.hashes.scores_sha256", other_hash, "qualification.content-hash", "content_sha256"),
        Lie("content_sha256", other_hash, "qualification.content-hash"),
    ],
    ids=str,
)
def test_any_edit_breaks_the_seal(lie: Lie, frozen: QualificationRecord) -> None:
    findings = audit_json(planted(frozen.model_dump(), lie.path, lie.value), QualificationRecord)
    assert lie.found_in(findings), findings


def test_a_superseded_record_that_is_another_one_is_found(
    frozen: QualificationRecord, tmp_path: Path
) -> None:
    (tmp_path / "old.json").write_bytes(encode(frozen))
    lying = frozen.model_dump() | {"supersedes": {"file": "old.json", "file_sha256": "0" * 64}}
    (tmp_path / "new.json").write_text(json.dumps(resealed(lying)))
    report = audit_path(tmp_path)
    assert [f.rule for file in report.files for f in file.findings] == ["qualification.supersedes"]
