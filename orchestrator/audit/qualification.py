"""A frozen record: its own hash, its platform key, and each case by itself. Pure."""

from __future__ import annotations

from datetime import datetime

from orchestrator.audit.environment import audit_versions
from orchestrator.audit.findings import Findings, fields
from orchestrator.audit.hashes import audit_arrays, audit_key_sets
from orchestrator.audit.run import audit_counts, audit_score
from orchestrator.audit.trace import audit_frozen_trace
from orchestrator.codec import content_sha256
from orchestrator.fingerprint import platform_key
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import canonical_text
from orchestrator.models import FrozenCase, QualificationRecord, Retirement


def audit_qualification(record: QualificationRecord, path: str, found: Findings) -> None:
    """Everything that a frozen record says of itself."""
    derived = content_sha256(record)
    found.equal("qualification.content-hash", f"{path}.content_sha256", record.content_sha256, derived)
    key = platform_key(record.platform, record.numerics)
    found.same_fields("qualification.platform-key", f"{path}.platform_key", record.platform_key, key)
    audit_versions(record.platform, record.software, f"{path}.platform", found)
    levels = list(dict.fromkeys(record.levels))
    found.equal("qualification.levels-once", f"{path}.levels", record.levels, levels)
    names = [frozen.case.name for frozen in record.cases]
    found.equal("qualification.cases-once", f"{path}.cases", names, list(dict.fromkeys(names)))
    for index, frozen in enumerate(record.cases):
        _audit_case(record, frozen, f"{path}.cases[{index}]", found)


def audit_retirement(record: Retirement, path: str, found: Findings) -> None:
    """A retirement is as it was written."""
    derived = content_sha256(record)
    found.equal("retirement.content-hash", f"{path}.content_sha256", record.content_sha256, derived)


def _audit_case(record: QualificationRecord, frozen: FrozenCase, path: str, found: Findings) -> None:
    config = frozen.case.config
    counts = frozen.train_count, frozen.test_count
    found.equal("qualification.numerics", f"{path}.case.numerics", frozen.case.numerics, record.numerics.name)
    names = ("device", "workspace", "threads", "vector", "onednn_isa", "mkl_cbwr")
    found.same_fields(
        "qualification.settings",
        f"{path}.settings",
        fields(frozen.settings, *names),
        fields(record.platform, *names),
    )
    found.equal(
        "hashes.config-file",
        f"{path}.config_file_sha256",
        frozen.config_file_sha256,
        bytes_sha256(canonical_text(config.model_dump())),
    )
    audit_key_sets(frozen.hashes, config, f"{path}.hashes", found)
    audit_arrays(frozen.hashes, frozen.arrays, config, counts, path, found)
    audit_counts(frozen.case.data, frozen, path, found)
    audit_frozen_trace(frozen, path, found)
    audit_score(frozen.score, frozen.test_count, f"{path}.score", found)
    _audit_runs(record, frozen, f"{path}.runs", found)


def _audit_runs(record: QualificationRecord, frozen: FrozenCase, path: str, found: Findings) -> None:
    """At least two different processes, all of them ended before the record was frozen."""
    digests = [run.record_sha256 for run in frozen.runs]
    found.equal("qualification.runs-differ", path, digests, list(dict.fromkeys(digests)))
    frozen_at = datetime.fromisoformat(record.frozen_at_utc)
    for index, run in enumerate(frozen.runs):
        finished = datetime.fromisoformat(run.finished_at_utc)
        found.require(
            "qualification.times",
            f"{path}[{index}].finished_at_utc",
            finished <= frozen_at,
            run.finished_at_utc,
            f"at most {record.frozen_at_utc}, when the record was frozen",
        )
