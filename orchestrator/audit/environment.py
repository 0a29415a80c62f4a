"""The environment: as built, as attested, and as the settings and the platform say. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.audit.findings import Findings, fields
from orchestrator.environment import (
    ATTESTATION_VARIABLE,
    NumericSettings,
    numeric_variables,
    switches_numerics,
)
from orchestrator.hashing import bytes_sha256
from orchestrator.models import FixtureResult, FixtureResultV1, Platform, RunRecord, RunRecordV1, Software


def audit_environment(record: RunRecordV1 | RunRecord, path: str, found: Findings) -> None:
    """Workspace everywhere the same; in version 2 every variable against every setting."""
    result = record.result
    if result is not None:
        at = f"{path}.result.cublas_workspace_config"
        found.equal("environment.workspace", at, result.cublas_workspace_config, record.workspace)
        found.equal(
            "environment.set-externally",
            f"{path}.result.environment_was_set_externally",
            result.environment_was_set_externally,
            True,
        )
    if isinstance(record, RunRecord):
        _audit_built(record, path, found)
        if record.result is not None:
            _audit_attested(record, record.result, f"{path}.result", found)
            _audit_settings(record, record.result.platform, f"{path}.result.platform", found)


def _audit_built(record: RunRecord, path: str, found: Findings) -> None:
    settings, place = record.settings, f"{path}.environment"
    found.equal("environment.workspace", f"{path}.settings.workspace", settings.workspace, record.workspace)
    variables = dict(record.environment.variables)
    digest = variables.pop(ATTESTATION_VARIABLE, None)
    found.equal("environment.digest", f"{place}.sha256", record.environment.sha256, _sha256(variables))
    found.equal(
        "environment.digest-passed-on",
        f"{place}.variables.{ATTESTATION_VARIABLE}",
        digest,
        record.environment.sha256,
    )
    # Every switch at the settings' value, and no other one: a name that moves bits needs a setting.
    wanted = numeric_variables(NumericSettings(**settings.model_dump()))
    held = {name: value for name, value in variables.items() if name in wanted or switches_numerics(name)}
    found.same_fields("environment.settings", f"{place}.variables", held, wanted)


def _sha256(variables: Mapping[str, str]) -> str:
    # The rule of `fixture.digests.environment_sha256`, in the two lines that it takes: that module needs
    # NumPy, which an audit of records does not.
    text = json.dumps(dict(sorted(variables.items())), separators=(",", ":"), ensure_ascii=True)
    return bytes_sha256(text.encode())


def _audit_attested(record: RunRecord, result: FixtureResult, path: str, found: Findings) -> None:
    attested, place = result.environment, f"{path}.environment"
    built = {n: v for n, v in record.environment.variables.items() if n != ATTESTATION_VARIABLE}
    found.same_fields("environment.attested", f"{place}.variables", attested.variables, built)
    found.equal("environment.digest", f"{place}.sha256", attested.sha256, _sha256(attested.variables))
    found.equal(
        "environment.digest-passed-on",
        f"{place}.expected_sha256",
        attested.expected_sha256,
        record.environment.sha256,
    )
    found.equal("environment.unchanged", f"{place}.changed_during_run", attested.changed_during_run, [])


def _audit_settings(record: RunRecord, platform: Platform, path: str, found: Findings) -> None:
    """The platform that the task process measured is the one that the settings asked for."""
    names = ("device", "workspace", "threads", "vector", "onednn_isa", "mkl_cbwr")
    found.same_fields("environment.platform", path, fields(platform, *names), fields(record.settings, *names))


def audit_platform(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """Device and versions, which a result says in several places."""
    if not isinstance(result, FixtureResult):
        return
    platform, place = result.platform, f"{path}.platform"
    on_cuda = result.device == "cuda"
    found.equal("platform.device", f"{place}.device", platform.device, result.device)
    found.equal("platform.gpu", f"{place}.gpu", platform.gpu, result.gpu)
    found.equal("platform.gpu", f"{path}.gpu", result.gpu is not None, on_cuda)
    found.equal("platform.gpu", f"{path}.cuda_device_index", result.cuda_device_index is not None, on_cuda)
    for name in ("compute_capability", "cublas", "driver"):
        given = getattr(platform, name) is not None
        found.equal("platform.cuda-facts", f"{place}.{name}", given, on_cuda)
    audit_versions(platform, result.software, place, found)
    found.equal(
        "platform.workspace",
        f"{path}.cublas_workspace_config",
        result.cublas_workspace_config,
        platform.workspace,
    )
    # torch refuses every product under :0:0 on CUDA, so that it is let warn there and nowhere else.
    lenient = on_cuda and platform.workspace == ":0:0"
    found.equal(
        "platform.deterministic-mode",
        f"{path}.torch_deterministic_mode",
        result.torch_deterministic_mode,
        "warn" if lenient else "error",
    )


def audit_versions(platform: Platform, software: Software, path: str, found: Findings) -> None:
    """Versions that platform and software both name."""
    names = ("torch", "numpy", "cuda")
    found.same_fields("platform.versions", path, fields(platform, *names), fields(software, *names))
