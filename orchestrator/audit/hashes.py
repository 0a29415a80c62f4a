"""Hashes and what surrounds them: key sets, counts, facts of arrays, and whether they held still. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings, fields
from orchestrator.audit.task_layout import (
    CORE_SAVED_BYTES_PER_EXAMPLE,
    LIMITS,
    hashed_arrays,
    parameter_count,
    parameter_shapes,
)
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import canonical_text, member
from orchestrator.models import (
    ArrayFacts,
    Config,
    Energy,
    EnergyV1,
    FixtureResult,
    FixtureResultV1,
    Hashes,
    Metadata,
    MetadataV1,
)
from orchestrator.verdict import COMPUTATION_ORDER, fields_of

RUNS_BEFORE_REPEATS = 2
"""One invocation for the memory counts, one for the reference hashes."""
CALIBRATION_RUNS = 1

_PROCEDURE = {
    "fresh_initialization_per_run": True,
    "checkpoint_loaded": False,
    "normalization": "4*x-0.5 then append one zero coordinate",
    "optimizer": "SGD momentum; zero initial velocity; gradient mean cross entropy",
    "shuffle": "independent PCG64 permutation each epoch, seed-only",
    "augmentation": "none",
    "reversible_core": True,
    "retained_core_states": 1,
    "head_reversible": False,
    "input_lift_injective": True,
}


def audit_hashes(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """Every metadata of a result by itself, then each against the final one."""
    found.equal(
        "hashes.config-file",
        f"{path}.config_file_sha256",
        result.config_file_sha256,
        bytes_sha256(canonical_text(result.config.model_dump())),
    )
    for name, (low, high) in LIMITS.items():
        value = getattr(result.config, name)
        found.require(
            "hashes.config-limits", f"{path}.config.{name}", low <= value <= high, value, f"{low} to {high}"
        )
    for place, metadata in metadata_of(result, path):
        _audit_metadata(metadata, result.config, place, found)
        if metadata is not result.metadata:
            _audit_standstill(metadata, result.metadata, place, found)
    _audit_run_counts(result, path, found)
    _audit_matched_groups(result, path, found)


def metadata_of(result: FixtureResultV1 | FixtureResult, path: str) -> list[tuple[str, MetadataV1]]:
    """Every metadata that a result holds, with its path: the final one first."""
    held: list[tuple[str, MetadataV1]] = [(f"{path}.metadata", result.metadata)]
    if isinstance(result, FixtureResult):
        held.append((f"{path}.before_metadata", result.before_metadata))
    if isinstance(result.energy, EnergyV1 | Energy):
        held.append((f"{path}.energy.before_metadata", result.energy.before_metadata))
        held.append((f"{path}.energy.after_metadata", result.energy.after_metadata))
    return held


def _audit_metadata(metadata: MetadataV1, config: Config, path: str, found: Findings) -> None:
    found.same_fields("hashes.config", f"{path}.config", metadata.config.model_dump(), config.model_dump())
    found.same_fields("hashes.procedure", path, fields(metadata, *_PROCEDURE), _PROCEDURE)
    found.equal(
        "hashes.parameter-count", f"{path}.parameter_count", metadata.parameter_count, parameter_count(config)
    )
    found.equal(
        "hashes.core-saved-bytes",
        f"{path}.core_saved_bytes_per_example",
        metadata.core_saved_bytes_per_example,
        CORE_SAVED_BYTES_PER_EXAMPLE,
    )
    audit_key_sets(metadata, config, path, found)
    if isinstance(metadata, Metadata):
        counts = metadata.train_count, metadata.test_count
        audit_arrays(metadata, metadata.arrays, config, counts, path, found)


def audit_key_sets(hashes: MetadataV1 | Hashes, config: Config, path: str, found: Findings) -> None:
    """Which hashes there must be: one a parameter, and one an epoch."""
    names = parameter_shapes(config)
    for group in ("initial_parameter_sha256", "final_parameter_sha256", "final_velocity_sha256"):
        found.same_keys("hashes.parameter-names", f"{path}.{group}", getattr(hashes, group), names)
    epochs = len(hashes.epoch_permutation_sha256)
    found.require(
        "hashes.permutation-count",
        f"{path}.epoch_permutation_sha256",
        epochs == config.epochs,
        f"{epochs} hashes",
        f"{config.epochs}, one an epoch",
    )


def audit_arrays(
    hashes: Metadata | Hashes,
    arrays: dict[str, ArrayFacts],
    config: Config,
    counts: tuple[int, int],
    path: str,
    found: Findings,
) -> None:
    """Shape, dtype and value digest of every hashed array; `counts` are of training and query examples."""
    wanted = hashed_arrays(config, *counts)
    raw = {name: digest for group in fields_of(hashes).values() for name, digest in group.items()}
    found.same_keys("hashes.array-names", f"{path}.arrays", arrays, wanted)
    for name, facts in arrays.items():
        if name not in wanted:
            continue
        place = member(f"{path}.arrays", name)
        found.equal("hashes.array-shape", f"{place}.shape", facts.shape, list(wanted[name].shape))
        found.equal("hashes.array-dtype", f"{place}.dtype", facts.dtype, wanted[name].dtype)
        if wanted[name].dtype == "int64" and name in raw:
            # Integers have no negative zero, so both digests are of the same bytes.
            found.equal("hashes.integer-value-digest", f"{place}.value_sha256", facts.value_sha256, raw[name])


def _audit_standstill(metadata: MetadataV1, final: MetadataV1, path: str, found: Findings) -> None:
    """All metadata of one process are of one prepared task: only the runs are counted on."""
    before, after = metadata.model_dump(), final.model_dump()
    for name in ("run_count", "validation", "config"):  # counted, and audited, by themselves
        del before[name], after[name]
    found.same_fields("hashes.before-equals-after", path, before, after)
    found.equal("hashes.one-validation", f"{path}.validation", metadata.validation, final.validation)


def _audit_run_counts(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """Complete invocations, counted again from what the mode asks for."""
    runs = result.metadata.run_count
    at = f"{path}.metadata.run_count"
    found.require("hashes.run-count-at-least-2", at, runs >= 2, runs, "2 or more: hashes are compared")
    more: int | None = None
    if isinstance(result.energy, EnergyV1 | Energy):
        energy = result.energy
        more = CALIBRATION_RUNS + len(energy.trials) * energy.repeats_per_trial
        for name, metadata, count in (
            ("before_metadata", energy.before_metadata, RUNS_BEFORE_REPEATS),
            ("after_metadata", energy.after_metadata, RUNS_BEFORE_REPEATS + more),
        ):
            place = f"{path}.energy.{name}.run_count"
            found.equal("hashes.run-count", place, metadata.run_count, count)
    elif isinstance(result, FixtureResult):
        if result.profile is not None:
            more = result.profile.warmup_tasks + result.profile.repeats
        elif result.timing is not None:
            more = len(result.timing.repeat_ms)
    if more is not None:
        found.equal("hashes.run-count", at, runs, RUNS_BEFORE_REPEATS + more)
    if isinstance(result, FixtureResult):
        place = f"{path}.before_metadata.run_count"
        found.equal("hashes.run-count", place, result.before_metadata.run_count, RUNS_BEFORE_REPEATS)


def _audit_matched_groups(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """The groups said to be equal are those that are, of all eight."""
    matched: list[str] = list(COMPUTATION_ORDER)
    if isinstance(result, FixtureResult):
        before, after = result.before_metadata, result.metadata
        matched = [group for group in COMPUTATION_ORDER if getattr(before, group) == getattr(after, group)]
    claimed = result.same_process_reference_hashes_matched
    found.equal(
        "hashes.matched-groups",
        f"{path}.same_process_reference_hashes_matched",
        sorted(claimed),
        sorted(matched),
    )
