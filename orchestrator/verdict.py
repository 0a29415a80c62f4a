"""The judgement: expected bits against found bits, level by level. Pure: values in, a `Verdict` out.

Rules
- `bitwise`: every field of all eight hash groups is equal, and so are shape and dtype beside each hash.
- `predictions`: inputs, epoch permutations and predictions are equal; state fields may differ and are
  listed. The images of a version 1 record were resized by a vendor's matrix product on their own machine,
  so where such a record takes part, differing image hashes are listed without costing the level.
- Exact means exact: there is no match rate. A comparison of nothing is an error.
- The first difference is the first in the order of the computation, not of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import EvidenceError
from orchestrator.fingerprint import changes, platform_key
from orchestrator.models import (
    ArrayFacts,
    Config,
    Difference,
    DifferenceKind,
    Divergence,
    FixtureResult,
    FrozenCase,
    GroupVerdict,
    Hashes,
    HashGroup,
    Level,
    Metadata,
    MetadataV1,
    Platform,
    QualificationRecord,
    Repetition,
    RunRecord,
    RunRecordV1,
    StackChange,
    Verdict,
)
from orchestrator.trace import Trace, can_compare, first_divergence

COMPUTATION_ORDER: tuple[HashGroup, ...] = (
    "input_hashes",
    "initial_parameter_sha256",
    "epoch_permutation_sha256",
    "final_parameter_sha256",
    "final_velocity_sha256",
    "state_vector_sha256",
    "scores_sha256",
    "predictions_sha256",
)

_DEMANDED_BY_PREDICTIONS: frozenset[HashGroup] = frozenset(
    {"input_hashes", "epoch_permutation_sha256", "predictions_sha256"}
)
_IMAGES = frozenset({"input_hashes.train_images", "input_hashes.test_images"})
ABSENT = "absent"


@dataclass(frozen=True)
class Evidence:
    """One side of a comparison, whatever record it came from.

    `groups` maps each hash group to its fields by full name (`final_parameter_sha256.weights.0`).
    `arrays` holds shape, dtype and value digest by the same names; empty where a version 1 record has none.
    `trace` has a digest of every tensor of every training step, where they were recorded.
    """

    label: str
    case_name: str
    config: Config
    groups: Mapping[HashGroup, Mapping[str, str]]
    arrays: Mapping[str, ArrayFacts]
    image_bits_comparable: bool
    predictions_file_sha256: str
    sources: Mapping[str, str]
    software: Mapping[str, object]
    platform: Platform | None
    key: Mapping[str, str] | None
    trace: Trace | None = None
    unstable_groups: tuple[str, ...] = field(default=())


def fields_of(hashes: Hashes | MetadataV1) -> dict[HashGroup, dict[str, str]]:
    """The eight groups with their fields by full name, in the order of the computation."""
    groups: dict[HashGroup, dict[str, str]] = {}
    for group in COMPUTATION_ORDER:
        value = getattr(hashes, group)
        if isinstance(value, str):
            groups[group] = {group: value}
        elif isinstance(value, list):
            groups[group] = {f"{group}.{index}": item for index, item in enumerate(value)}
        else:
            named = value if isinstance(value, dict) else value.model_dump()
            groups[group] = {f"{group}.{name}": item for name, item in named.items()}
    return groups


def evidence_of_run(record: RunRecord | RunRecordV1, label: str, trace: Trace | None = None) -> Evidence:
    """The evidence in a run record, with its trace where there is one.

    Raises:
        EvidenceError: when the run failed, so that there is nothing to compare.
    """
    result = record.result
    if result is None:
        raise EvidenceError("the run failed and left no result to compare", where=label)
    current = result if isinstance(result, FixtureResult) else None
    matched = result.same_process_reference_hashes_matched
    unstable: list[str] = [group for group in COMPUTATION_ORDER if group not in matched]
    if current and current.trace and not current.trace.same_process_chain_heads_matched:
        unstable.append("trace")
    return Evidence(
        label=label,
        case_name=record.case.name if isinstance(record, RunRecord) else "seed",
        config=result.config,
        groups=fields_of(result.metadata),
        arrays=result.metadata.arrays if isinstance(result.metadata, Metadata) else {},
        image_bits_comparable=current is not None,
        predictions_file_sha256=result.predictions_file_sha256,
        sources=result.source_sha256,
        software=result.software.model_dump(),
        platform=current.platform if current else None,
        key=platform_key(current.platform, current.numerics) if current else None,
        trace=trace,
        unstable_groups=tuple(unstable),
    )


def evidence_of_frozen(
    record: QualificationRecord, case: FrozenCase, label: str, trace: Trace | None = None
) -> Evidence:
    """The evidence in one case of a frozen record, with its trace where there is one."""
    return Evidence(
        label=label,
        case_name=case.case.name,
        config=case.case.config,
        groups=fields_of(case.hashes),
        arrays=case.arrays,
        image_bits_comparable=True,
        predictions_file_sha256=case.predictions_file_sha256,
        sources=record.source_sha256,
        software=record.software.model_dump(),
        platform=record.platform,
        key=record.platform_key,
        trace=trace,
    )


def compare_groups(expected: Evidence, found: Evidence) -> list[GroupVerdict]:
    """Each hash group with its differing fields, in the order of the computation.

    Raises:
        EvidenceError: when there is nothing to compare.
    """
    verdicts = []
    for group in COMPUTATION_ORDER:
        wanted, got = expected.groups.get(group, {}), found.groups.get(group, {})
        names = [*wanted, *(name for name in got if name not in wanted)]
        if not names:
            raise EvidenceError(f"nothing to compare in {group}", where=expected.label)
        differences = []
        for name in names:
            differences += _field_differences(name, wanted, got, expected, found)
        verdicts.append(GroupVerdict(group=group, fields=len(names), differences=differences))
    return verdicts


def _field_differences(
    name: str,
    wanted: Mapping[str, str],
    got: Mapping[str, str],
    expected: Evidence,
    found: Evidence,
) -> list[Difference]:
    before, after = expected.arrays.get(name), found.arrays.get(name)
    if before is not None and after is not None:
        for fact in ("dtype", "shape"):
            old, new = getattr(before, fact), getattr(after, fact)
            if old != new:
                return [
                    Difference(
                        field=f"{name} ({fact})",
                        expected=str(old),
                        found=str(new),
                        values_equal=None,
                    )
                ]
    old_hash, new_hash = wanted.get(name, ABSENT), got.get(name, ABSENT)
    if old_hash == new_hash:
        return []
    values_equal = None
    if before is not None and after is not None:
        values_equal = before.value_sha256 == after.value_sha256
    return [Difference(field=name, expected=old_hash, found=new_hash, values_equal=values_equal)]


def level_reached(groups: list[GroupVerdict], *, image_bits_comparable: bool = True) -> Level | None:
    """The highest level that the differences leave."""
    differing = [(group.group, item.field) for group in groups for item in group.differences]
    if not differing:
        return "bitwise"
    forgiven = frozenset() if image_bits_comparable else _IMAGES
    blocking = [
        name for group, name in differing if group in _DEMANDED_BY_PREDICTIONS and name not in forgiven
    ]
    return None if blocking else "predictions"


def level_to_ask(expected: Evidence, found: Evidence) -> Level:
    """Bits can be demanded only where the platform keys are known and equal."""
    comparable = expected.key is not None and expected.key == found.key
    return "bitwise" if comparable else "predictions"


def judge(
    expected: Evidence,
    found: Evidence,
    level_asked: Level,
    *,
    repetition: Evidence | None = None,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Judge found evidence against expected evidence at a level.

    Args:
        expected: The frozen or first side.
        found: The side under judgement.
        level_asked: What is demanded.
        repetition: A second fresh run of the found side, when the first one failed: the same wrong bits
            again are a change, others are nondeterminism.
        notes: What the caller wants said beside the verdict.
    """
    groups = compare_groups(expected, found)
    comparable = expected.image_bits_comparable and found.image_bits_comparable
    reached = level_reached(groups, image_bits_comparable=comparable)
    first = next((item for group in groups for item in group.differences), None)
    parted = first_divergence(expected.trace, found.trace)
    repeated = _repetition(found, repetition) if repetition is not None else None
    unstable = found.unstable_groups
    qualified = (reached == "bitwise" or reached == level_asked) and not unstable
    said = [*notes, *_explanations(groups, expected, found, comparable, parted)]
    kind: DifferenceKind | None = None
    if unstable or (repeated is not None and not repeated.same_bits):
        kind = "nondeterminism"
    elif repeated is not None:
        kind = "change"
    return Verdict(
        kind="verdict",
        schema_version=1,
        case=found.case_name,
        level_asked=level_asked,
        level_reached=reached,
        qualified=qualified,
        expected=expected.label,
        found=found.label,
        first_difference=first,
        first_divergence=parted,
        groups=groups,
        other_differences=_other_differences(expected, found),
        difference_kind=kind,
        repetition=repeated,
        source_changes=changes(expected.sources, found.sources),
        stack_changes=_stack_changes(expected, found),
        kernel_changes=_kernel_changes(expected, found),
        notes=said,
    )


def _repetition(found: Evidence, again: Evidence) -> Repetition:
    groups = compare_groups(found, again)
    differences = [item for group in groups for item in group.differences]
    return Repetition(
        same_bits=not differences,
        differences=differences,
        first_divergence=first_divergence(found.trace, again.trace),
    )


def _other_differences(expected: Evidence, found: Evidence) -> list[Difference]:
    pairs: list[tuple[str, object, object]] = [
        (f"config.{name}", value, getattr(found.config, name))
        for name, value in expected.config.model_dump().items()
    ]
    pairs.append(
        (
            "predictions_file_sha256",
            expected.predictions_file_sha256,
            found.predictions_file_sha256,
        )
    )
    return [
        Difference(field=name, expected=str(old), found=str(new), values_equal=None)
        for name, old, new in pairs
        if old != new
    ]


def _stack_changes(expected: Evidence, found: Evidence) -> list[StackChange]:
    frozen: dict[str, object] = dict(expected.software)
    current: dict[str, object] = dict(found.software)
    if expected.platform is not None and found.platform is not None:
        frozen |= expected.platform.model_dump(exclude={"kernel_probes"})
        current |= found.platform.model_dump(exclude={"kernel_probes"})
    return changes(frozen, current)


def _kernel_changes(expected: Evidence, found: Evidence) -> list[StackChange]:
    if expected.platform is None or found.platform is None:
        return []
    return changes(expected.platform.kernel_probes, found.platform.kernel_probes)


def _explanations(
    groups: list[GroupVerdict],
    expected: Evidence,
    found: Evidence,
    comparable: bool,
    parted: Divergence | None,
) -> list[str]:
    """What a person would want to be told first about the differences."""
    differing = {group.group for group in groups if group.differences}
    said = []
    versions = {name: (expected.software.get(name), new) for name, new in found.software.items()}
    for group, library in (
        ("initial_parameter_sha256", "torch"),
        ("epoch_permutation_sha256", "numpy"),
    ):
        old, new = versions[library]
        if group in differing and old != new:
            said.append(f"{group} differs: the random stream may have moved with {library} {old} -> {new}")
    if found.unstable_groups:
        said.append(
            "the hashes moved between invocations of one process: " + ", ".join(found.unstable_groups)
        )
    if differing and parted is None and can_compare(expected.trace, found.trace):
        said.append("every training step is the same: the difference arose after training")
    if any(item.values_equal for group in groups for item in group.differences):
        said.append("some bits differ where the values are equal: only signs of zeros changed")
    if not comparable and "input_hashes" in differing:
        said.append(
            "image hashes of a version 1 record hold the rounding of the resize on its own machine: "
            "listed, not demanded"
        )
    return said
