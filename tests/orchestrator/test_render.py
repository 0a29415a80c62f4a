"""What a person reads: the first line of a verdict, its remedy, and a run's costs."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from orchestrator.models import RunRecord, Verdict
from orchestrator.render import costs, headline, remedy, verdict_table
from tests import strategies as samples


def verdict(**changed: Any) -> Verdict:
    return Verdict.model_validate({**samples.verdict(), **changed})


def text_of(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(renderable)
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written


DIFFERENCE = {
    "field": "scores_sha256",
    "expected": "a" * 64,
    "found": "b" * 64,
    "values_equal": None,
}


def failed(**changed: Any) -> Verdict:
    sound: dict[str, Any] = {
        "qualified": False,
        "level_asked": "bitwise",
        "level_reached": "predictions",
        "first_difference": DIFFERENCE,
        "first_divergence": None,
        "difference_kind": None,
        "repetition": None,
        "source_changes": [],
        "stack_changes": [],
        "kernel_changes": [],
    }
    return verdict(**{**sound, **changed})


CHANGE = {"what": "task.py", "frozen": "0" * 64, "found": "1" * 64}


def test_a_failure_names_the_field_and_both_hashes_first() -> None:
    line = headline(failed())
    assert "first difference in scores_sha256: frozen aaaaaaaaaaaa…, found bbbbbbbbbbbb…" in line
    assert "\n" not in line


PARTED = {
    "epoch": 1, "step": 17, "tensor": "gradients.weights.2", "expected": "c" * 32, "found": "d" * 32,
}  # fmt: skip


def test_a_traced_failure_names_the_step_first_and_then_the_hash() -> None:
    line = headline(failed(first_divergence=PARTED))
    where = "first difference at epoch 1, step 17, in gradients.weights.2: frozen cccccccccccc…, found dddd"
    assert where in line
    assert "then in scores_sha256" in line
    assert "epoch 1, step 17, in gradients.weights.2" in text_of(
        verdict_table(failed(first_divergence=PARTED))
    )


@pytest.mark.parametrize("group", ["input_hashes", "initial_parameter_sha256", "epoch_permutation_sha256"])
def test_what_goes_into_the_training_differs_before_its_first_step(group: str) -> None:
    before = {**DIFFERENCE, "field": f"{group}.0"}
    line = headline(failed(first_difference=before, first_divergence=PARTED))
    assert f"first difference in {group}.0: frozen aaaaaaaaaaaa…" in line


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"source_changes": [CHANGE]}, "sources that differ: task.py", id="source"),
        pytest.param({"kernel_changes": [CHANGE]}, "vendor kernels that differ: task.py", id="kernel"),
        pytest.param({}, "came back in a second fresh process", id="unexplained"),
    ],
)
def test_a_change_says_what_changed(changed: dict[str, Any], said: str) -> None:
    again = {"same_bits": True, "differences": [], "first_divergence": None}
    assert said in headline(failed(difference_kind="change", repetition=again, **changed))


def test_nondeterminism_is_not_called_a_change() -> None:
    again = {"same_bits": False, "differences": [DIFFERENCE], "first_divergence": None}
    line = headline(failed(difference_kind="nondeterminism", repetition=again, source_changes=[CHANGE]))
    assert "nondeterminism" in line
    assert "a change" not in line


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"source_changes": [CHANGE]}, "undo the change", id="source"),
        pytest.param({"stack_changes": [CHANGE]}, "the stack moved", id="stack"),
        pytest.param({}, "suspect the machine", id="nothing"),
    ],
)
def test_the_remedy_follows_the_cause(changed: dict[str, Any], said: str) -> None:
    line = remedy(failed(**changed), "runs/1")
    assert said in line
    assert "runs/1" in line


def test_many_changed_sources_are_counted_and_not_listed() -> None:
    changes = [{**CHANGE, "what": f"file{index}.py"} for index in range(30)]
    assert "and 22 more" in text_of(verdict_table(failed(source_changes=changes)))


def test_brackets_in_a_name_are_text_and_not_markup() -> None:
    assert "runs/[1]" in text_of(verdict_table(verdict(found="runs/[1]")))


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        pytest.param(samples.run_record, "resident", id="cpu"),
        pytest.param(samples.cuda_run_record, "allocated", id="cuda"),
        pytest.param(samples.rapl_run_record, "mJ per task above idle", id="energy"),
    ],
)
def test_costs_state_what_was_measured_and_in_what_words(sample: Any, said: str) -> None:
    record = RunRecord.model_validate(sample())
    assert record.result is not None
    assert said in costs(record.result, record)


def test_energy_that_was_not_measured_is_said_so() -> None:
    sample = samples.run_record()
    sample["result"]["energy"] = {"unavailable": "no counter", "remedy": ""}
    record = RunRecord.model_validate(sample)
    assert record.result is not None
    assert "energy not measured: no counter" in costs(record.result, record)
