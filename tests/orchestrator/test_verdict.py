"""The judgement: which level the differences leave, which difference comes first, and why it may be so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import codec
from orchestrator.errors import EvidenceError
from orchestrator.models import (
    ArrayFacts,
    Config,
    HashGroup,
    Level,
    Platform,
    QualificationRecord,
    RunRecord,
    RunRecordV1,
    Verdict,
)
from orchestrator.verdict import (
    COMPUTATION_ORDER,
    Evidence,
    compare_groups,
    evidence_of_frozen,
    evidence_of_run,
    judge,
    level_to_ask,
)
from tests import strategies as samples

# Said once more, in the order in which the task computes them.
ORDER: tuple[HashGroup, ...] = (
    "input_hashes",
    "initial_parameter_sha256",
    "epoch_permutation_sha256",
    "final_parameter_sha256",
    "final_velocity_sha256",
    "state_vector_sha256",
    "scores_sha256",
    "predictions_sha256",
)
# One field of each group, and the level that is left when it alone differs.
FIELDS: dict[str, tuple[HashGroup, Level | None]] = {
    "input_hashes.train_images": ("input_hashes", None),
    "input_hashes.train_labels": ("input_hashes", None),
    "input_hashes.test_images": ("input_hashes", None),
    "initial_parameter_sha256.weights.0": ("initial_parameter_sha256", "predictions"),
    "epoch_permutation_sha256.1": ("epoch_permutation_sha256", None),
    "final_parameter_sha256.head.bias": ("final_parameter_sha256", "predictions"),
    "final_velocity_sha256.weights.3": ("final_velocity_sha256", "predictions"),
    "state_vector_sha256": ("state_vector_sha256", "predictions"),
    "scores_sha256": ("scores_sha256", "predictions"),
    "predictions_sha256": ("predictions_sha256", None),
}
OTHER = samples.digest(1000)


def seed() -> Evidence:
    """The seed's evidence: version 1, so without arrays, platform or key."""
    return evidence_of_run(RunRecordV1.model_validate(samples.seed_run()), "seed.json")


def run(label: str = "run.json") -> Evidence:
    """A version 2 run's evidence, with all of the seed's hashes."""
    record = samples.run_record()
    metadata = {**samples.seed_run()["result"]["metadata"], "arrays": {}}
    record["result"]["metadata"] = metadata
    record["result"]["same_process_reference_hashes_matched"] = list(ORDER)
    return evidence_of_run(RunRecord.model_validate(record), label)


def with_fields(evidence: Evidence, changed: Mapping[str, str | None]) -> Evidence:
    """The evidence with fields changed, added, or (None) left out."""
    groups: dict[HashGroup, dict[str, str]] = {name: dict(fields) for name, fields in evidence.groups.items()}
    for name, value in changed.items():
        group = next(group for group in ORDER if name.split(".")[0] == group)
        if value is None:
            del groups[group][name]
        else:
            groups[group][name] = value
    return replace(evidence, groups=groups)


def with_arrays(evidence: Evidence, **facts: Any) -> Evidence:
    """The evidence with facts of the scores' array."""
    sound = {"dtype": "float32", "shape": [10000, 10], "value_sha256": samples.digest(4)}
    return replace(evidence, arrays={"scores_sha256": ArrayFacts.model_validate({**sound, **facts})})


def with_platform(evidence: Evidence, **facts: Any) -> Evidence:
    return replace(evidence, platform=Platform.model_validate({**samples.platform(), **facts}))


def differing(verdict: Verdict) -> list[str]:
    return [item.field for group in verdict.groups for item in group.differences]


# --- levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["bitwise", "predictions"])
def test_equal_evidence_is_bitwise_whatever_was_asked(asked: Level) -> None:
    verdict = judge(run(), run("again.json"), asked)
    assert (verdict.level_asked, verdict.level_reached, verdict.qualified) == (asked, "bitwise", True)
    assert verdict.first_difference is None
    assert [group.group for group in verdict.groups] == list(ORDER)
    assert [group.fields for group in verdict.groups] == [3, 6, 2, 6, 6, 1, 1, 1]
    assert (differing(verdict), verdict.other_differences, verdict.notes) == ([], [], [])
    assert (verdict.difference_kind, verdict.repetition) == (None, None)


@pytest.mark.parametrize(("name", "group", "level"), [(n, *rest) for n, rest in FIELDS.items()], ids=FIELDS)
def test_one_differing_field_leaves_its_groups_level(
    name: str, group: HashGroup, level: Level | None
) -> None:
    found = with_fields(run(), {name: OTHER})
    verdict = judge(run(), found, "bitwise")
    assert verdict.level_reached == level
    assert not verdict.qualified
    assert verdict.first_difference is not None
    assert verdict.first_difference.field == name
    assert verdict.first_difference.expected == run().groups[group][name]
    assert verdict.first_difference.found == OTHER
    assert differing(verdict) == [name]
    assert judge(run(), found, "predictions").qualified == (level == "predictions")


@given(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1))
def test_the_lowest_level_counts_and_the_first_in_the_computation_is_named(names: set[str]) -> None:
    verdict = judge(run(), with_fields(run(), dict.fromkeys(names, OTHER)), "bitwise")
    in_order = sorted(names, key=lambda name: list(FIELDS).index(name))
    levels = {FIELDS[name][1] for name in names}
    assert verdict.first_difference is not None
    assert verdict.first_difference.field == in_order[0]
    assert sorted(differing(verdict)) == sorted(names)
    assert verdict.level_reached == (None if None in levels else "predictions")


def test_the_order_is_the_computations_and_not_the_records() -> None:
    # Records list predictions before scores; the task computes scores first.
    assert COMPUTATION_ORDER == ORDER
    found = with_fields(run(), {"predictions_sha256": OTHER, "scores_sha256": OTHER})
    assert differing(judge(run(), found, "bitwise")) == ["scores_sha256", "predictions_sha256"]


def test_one_hash_of_ten_thousand_predictions_is_no_match_rate() -> None:
    found = with_fields(run(), {"predictions_sha256": OTHER})
    assert not judge(run(), found, "predictions").qualified


# --- missing and extra fields --------------------------------------------------------------------


@pytest.mark.parametrize("missing_in", ["expected", "found"])
@pytest.mark.parametrize(
    "name", ["final_parameter_sha256.weights.3", "epoch_permutation_sha256.1", "input_hashes.test_images"]
)
def test_a_field_that_one_side_lacks_is_a_difference(missing_in: str, name: str) -> None:
    whole, part = run(), with_fields(run(), {name: None})
    expected, found = (part, whole) if missing_in == "expected" else (whole, part)
    verdict = judge(expected, found, "bitwise")
    assert differing(verdict) == [name]
    assert not verdict.qualified
    assert verdict.first_difference is not None
    absent = {"expected": verdict.first_difference.expected, "found": verdict.first_difference.found}
    assert absent[missing_in] == "absent"
    group = next(item for item in verdict.groups if item.differences)
    assert group.fields == len(whole.groups[group.group])


def test_another_depth_is_told_by_the_parameters_that_it_adds() -> None:
    added = {
        f"{group}.weights.{number}": OTHER
        for group in ("initial_parameter_sha256", "final_parameter_sha256", "final_velocity_sha256")
        for number in (4, 5)
    }
    deeper = with_fields(run(), added)
    deeper = replace(deeper, config=Config.model_validate({**samples.CONFIG, "depth": 3}))
    verdict = judge(run(), deeper, "bitwise")
    assert sorted(differing(verdict)) == sorted(added)
    assert [item.field for item in verdict.other_differences] == ["config.depth"]
    assert (verdict.other_differences[0].expected, verdict.other_differences[0].found) == ("2", "3")


@pytest.mark.parametrize("group", ORDER)
def test_a_comparison_of_nothing_is_an_error(group: HashGroup) -> None:
    empty = replace(run(), groups={**run().groups, group: {}})
    with pytest.raises(EvidenceError, match=f"nothing to compare in {group}"):
        compare_groups(empty, empty)
    absent = replace(run(), groups={name: run().groups[name] for name in ORDER if name != group})
    with pytest.raises(EvidenceError, match=f"nothing to compare in {group}"):
        judge(absent, absent, "predictions")


@pytest.mark.parametrize("group", ["scores_sha256", "predictions_sha256"])
def test_a_group_that_one_side_lacks_is_a_difference_and_no_error(group: HashGroup) -> None:
    verdict = judge(run(), replace(run(), groups={**run().groups, group: {}}), "bitwise")
    assert differing(verdict) == [group]


def test_a_failed_run_leaves_nothing_to_compare() -> None:
    record = RunRecord.model_validate(samples.failed_run_record())
    with pytest.raises(EvidenceError, match=r"^run\.json: the run failed and left no result"):
        evidence_of_run(record, "run.json")


# --- what a raw hash leaves out ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "field", "expected", "found"),
    [
        ({"dtype": "int32"}, "scores_sha256 (dtype)", "float32", "int32"),
        ({"shape": [10, 10000]}, "scores_sha256 (shape)", "[10000, 10]", "[10, 10000]"),
        ({"dtype": "int32", "shape": [1]}, "scores_sha256 (dtype)", "float32", "int32"),
    ],
    ids=["dtype", "shape", "both"],
)
def test_another_dtype_or_shape_is_a_difference_though_the_hashes_are_equal(
    facts: dict[str, Any], field: str, expected: str, found: str
) -> None:
    verdict = judge(with_arrays(run()), with_arrays(run(), **facts), "bitwise")
    assert not verdict.qualified
    first = verdict.first_difference
    assert first is not None
    assert (first.field, first.expected, first.found, first.values_equal) == (field, expected, found, None)


def test_bits_that_differ_where_the_values_are_equal_are_told_and_still_disqualify() -> None:
    verdict = judge(with_arrays(run()), with_arrays(with_fields(run(), {"scores_sha256": OTHER})), "bitwise")
    assert not verdict.qualified
    assert verdict.first_difference is not None
    assert verdict.first_difference.values_equal is True
    assert any("only signs of zeros changed" in note for note in verdict.notes)


@pytest.mark.parametrize("known", ["both", "one"])
def test_values_that_differ_or_are_unknown_are_not_said_to_be_equal(known: str) -> None:
    changed = with_fields(run(), {"scores_sha256": OTHER})
    found = with_arrays(changed, value_sha256=OTHER) if known == "both" else changed
    verdict = judge(with_arrays(run()), found, "bitwise")
    assert verdict.first_difference is not None
    assert verdict.first_difference.values_equal is (False if known == "both" else None)
    assert not any("signs of zeros" in note for note in verdict.notes)


# --- version 1 records ---------------------------------------------------------------------------

IMAGES = ("input_hashes.train_images", "input_hashes.test_images")


@pytest.mark.parametrize("seed_is", ["expected", "found"])
@pytest.mark.parametrize("name", IMAGES)
def test_image_hashes_of_a_version_1_record_are_listed_and_not_demanded(seed_is: str, name: str) -> None:
    other = with_fields(run(), {name: OTHER})
    expected, found = (seed(), other) if seed_is == "expected" else (other, seed())
    verdict = judge(expected, found, "predictions")
    assert (verdict.level_reached, verdict.qualified) == ("predictions", True)
    assert differing(verdict) == [name]
    assert any("listed, not demanded" in note for note in verdict.notes)


def test_image_hashes_are_demanded_between_two_version_2_records() -> None:
    verdict = judge(run(), with_fields(run(), dict.fromkeys(IMAGES, OTHER)), "predictions")
    assert (verdict.level_reached, verdict.qualified) == (None, False)
    assert not any("listed, not demanded" in note for note in verdict.notes)


@pytest.mark.parametrize(
    "name", ["input_hashes.train_labels", "epoch_permutation_sha256.0", "predictions_sha256"]
)
def test_everything_else_is_demanded_of_a_version_1_record_too(name: str) -> None:
    verdict = judge(seed(), with_fields(run(), {IMAGES[0]: OTHER, name: OTHER}), "predictions")
    assert (verdict.level_reached, verdict.qualified) == (None, False)


def test_differing_images_of_a_version_1_record_are_never_bitwise() -> None:
    verdict = judge(seed(), with_fields(run(), {IMAGES[0]: OTHER}), "bitwise")
    assert (verdict.level_reached, verdict.qualified) == ("predictions", False)


# --- which level to ask --------------------------------------------------------------------------


def test_bits_are_demanded_where_the_keys_are_equal() -> None:
    assert level_to_ask(run(), run()) == "bitwise"


def test_bits_are_not_demanded_across_platforms() -> None:
    assert run().key is not None
    assert level_to_ask(run(), replace(run(), key={**(run().key or {}), "threads": "2"})) == "predictions"


@pytest.mark.parametrize("sides", [("seed", "run"), ("run", "seed"), ("seed", "seed")], ids="-".join)
def test_bits_are_not_demanded_where_a_key_is_unknown(sides: tuple[str, str]) -> None:
    build = {"seed": seed, "run": run}
    assert level_to_ask(build[sides[0]](), build[sides[1]]()) == "predictions"


# --- change or nondeterminism --------------------------------------------------------------------


def test_the_same_wrong_bits_again_are_a_change() -> None:
    found = with_fields(run(), {"scores_sha256": OTHER})
    verdict = judge(run(), found, "bitwise", repetition=found)
    assert (verdict.difference_kind, verdict.qualified) == ("change", False)
    assert verdict.repetition is not None
    assert (verdict.repetition.same_bits, verdict.repetition.differences) == (True, [])


@pytest.mark.parametrize("again", [samples.digest(2000), None], ids=["other-wrong-bits", "the-right-bits"])
def test_other_bits_the_second_time_are_nondeterminism_and_both_hashes_are_told(again: str | None) -> None:
    found = with_fields(run(), {"scores_sha256": OTHER})
    second = run() if again is None else with_fields(run(), {"scores_sha256": again})
    verdict = judge(run(), found, "bitwise", repetition=second)
    assert (verdict.difference_kind, verdict.qualified) == ("nondeterminism", False)
    assert verdict.repetition is not None
    assert not verdict.repetition.same_bits
    difference = verdict.repetition.differences[0]
    assert (difference.field, difference.expected, difference.found) == (
        "scores_sha256",
        OTHER,
        second.groups["scores_sha256"]["scores_sha256"],
    )


@pytest.mark.parametrize("asked", ["bitwise", "predictions"])
def test_hashes_that_moved_within_one_process_never_qualify(asked: Level) -> None:
    verdict = judge(run(), replace(run(), unstable_groups=("scores_sha256",)), asked)
    assert (verdict.level_reached, verdict.qualified) == ("bitwise", False)
    assert verdict.difference_kind == "nondeterminism"
    assert any("between invocations of one process: scores_sha256" in note for note in verdict.notes)


def test_unstable_bits_stay_nondeterminism_though_they_came_back() -> None:
    found = replace(with_fields(run(), {"scores_sha256": OTHER}), unstable_groups=("scores_sha256",))
    assert judge(run(), found, "bitwise", repetition=found).difference_kind == "nondeterminism"


def test_the_groups_that_did_not_match_in_the_process_are_the_unstable_ones() -> None:
    record = samples.run_record()
    record["result"]["same_process_reference_hashes_matched"] = [
        name for name in ORDER if name not in ("scores_sha256", "input_hashes")
    ]
    evidence = evidence_of_run(RunRecord.model_validate(record), "run.json")
    assert evidence.unstable_groups == ("input_hashes", "scores_sha256")
    assert seed().unstable_groups == ()


# --- explanations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "library", "other"),
    [
        ("initial_parameter_sha256.weights.0", "torch", "2.13.0"),
        ("epoch_permutation_sha256.0", "numpy", "2.3.0"),
    ],
)
def test_a_moved_random_stream_is_explained_by_its_librarys_version(
    field: str, library: str, other: str
) -> None:
    found = replace(with_fields(run(), {field: OTHER}), software={**run().software, library: other})
    old = run().software[library]
    (note,) = judge(run(), found, "bitwise").notes
    assert note.startswith(field.split(".")[0])
    assert f"{library} {old} -> {other}" in note


@pytest.mark.parametrize(
    ("field", "library"),
    [
        ("initial_parameter_sha256.weights.0", "numpy"),
        ("epoch_permutation_sha256.0", "torch"),
        ("final_parameter_sha256.weights.0", "torch"),
    ],
)
def test_a_version_is_not_blamed_for_a_stream_that_is_not_its_own(field: str, library: str) -> None:
    found = replace(with_fields(run(), {field: OTHER}), software={**run().software, library: "9.9"})
    verdict = judge(with_platform(run()), with_platform(found, **{library: "9.9"}), "bitwise")
    assert verdict.notes == []
    assert [change.what for change in verdict.stack_changes] == [library]


def test_equal_versions_are_not_blamed() -> None:
    found = with_fields(run(), {"initial_parameter_sha256.weights.0": OTHER})
    assert judge(run(), found, "bitwise").notes == []


def test_the_callers_notes_come_first() -> None:
    found = replace(run(), unstable_groups=("scores_sha256",))
    assert judge(run(), found, "bitwise", notes=("asked by the caller",)).notes[0] == "asked by the caller"


def test_changes_of_stack_sources_and_kernels_are_told_apart_in_the_frozen_order() -> None:
    expected = replace(with_platform(run()), sources={"task.py": "a", "energy.py": "b", "gone.py": "c"})
    probes = {"exp": samples.digest(61), "matmul": samples.digest(51)}
    found = with_platform(run(), threads=2, cpu_model="AMD EPYC 9654", kernel_probes=probes)
    found = replace(
        found,
        sources={"new.py": "e", "energy.py": "d", "task.py": "a2"},
        software={"numpy": "2.3.0", "torch": "2.6.0", "python": "3.11.15", "cuda": None},
    )
    verdict = judge(expected, found, "bitwise")
    sources = [(change.what, change.frozen, change.found) for change in verdict.source_changes]
    assert sources == [
        ("task.py", "a", "a2"),
        ("energy.py", "b", "d"),
        ("gone.py", "c", None),
        ("new.py", None, "e"),
    ]
    assert [change.what for change in verdict.kernel_changes] == ["matmul", "exp"]
    stack = [change.what for change in verdict.stack_changes]
    assert [what for what in stack if what in ("cpu_model", "threads")] == ["cpu_model", "threads"]
    assert "kernel_probes" not in stack
    # The bits are equal: none of this costs the level.
    assert (verdict.level_reached, verdict.qualified) == ("bitwise", True)


def test_a_faulty_chip_is_seen_though_no_bit_of_the_task_moved() -> None:
    found = with_platform(run(), kernel_probes={"matmul": OTHER, "exp": samples.digest(6)})
    (change,) = judge(with_platform(run()), found, "bitwise").kernel_changes
    assert (change.what, change.frozen, change.found) == ("matmul", samples.digest(5), OTHER)


def test_a_record_without_platform_has_no_kernel_changes_and_still_its_software() -> None:
    verdict = judge(seed(), replace(run(), software={**seed().software, "torch": "2.13.0"}), "predictions")
    assert verdict.kernel_changes == []
    assert [change.what for change in verdict.stack_changes] == ["torch"]


def test_what_is_no_hash_group_is_told_beside_the_groups() -> None:
    found = replace(run(), predictions_file_sha256=OTHER)
    verdict = judge(run(), found, "bitwise")
    assert [item.field for item in verdict.other_differences] == ["predictions_file_sha256"]


# --- records to evidence and back ----------------------------------------------------------------


def test_a_frozen_case_and_the_run_that_it_was_frozen_from_are_equal() -> None:
    record = QualificationRecord.model_validate(samples.qualification())
    frozen = evidence_of_frozen(record, record.cases[0], "frozen.json")
    ran = evidence_of_run(RunRecord.model_validate(samples.run_record()), "run.json")
    assert frozen.groups == ran.groups
    assert list(frozen.groups) == list(ORDER)
    verdict = judge(frozen, ran, "bitwise")
    assert (verdict.level_reached, verdict.case) == ("bitwise", "mnist-0")
    assert (verdict.expected, verdict.found) == ("frozen.json", "run.json")


def test_the_seed_compared_with_itself_is_bitwise() -> None:
    assert judge(seed(), seed(), "bitwise").level_reached == "bitwise"


@pytest.mark.parametrize("name", FIELDS)
def test_every_verdict_is_a_sound_record(name: str) -> None:
    found = with_fields(run(), {name: OTHER})
    verdict = judge(run(), found, "bitwise", repetition=run(), notes=("said",))
    assert codec.decode(codec.encode(verdict), "verdict.json") == verdict
