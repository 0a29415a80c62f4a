"""The study of settings: which it runs, what its rows say of planted records, and real processes."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator import codec, models
from orchestrator.costs import compare_costs, times_ms
from orchestrator.environment import default_settings, mkl_branches
from orchestrator.errors import UsageError
from orchestrator.hashing import file_sha256
from orchestrator.models import (
    CostRatio,
    RunRecord,
    StudyBits,
    StudyCost,
    StudyMemory,
    StudyReport,
    StudyRow,
    Unavailable,
)
from orchestrator.render_costs import costs_table, study_table
from orchestrator.study_plan import plan_study
from orchestrator.study_rows import SettingRuns, study_rows
from orchestrator.verdict import COMPUTATION_ORDER
from tests import strategies as samples
from tests.orchestrator.checkout import Checkout, last_line

GIB = 2**30
X86 = "x86_64"
AVX2_UNITS = ("fma", "avx2")

# PROCEDURE.md, "What matches what": peak and live allocated bytes of each workspace on the A100, and mean and
# sample SD of three trials' idle-adjusted energy, mJ per task. The times' SDs are not published: 0.15 ms is
# what the seed record has.
PUBLISHED = {
    ":4096:8": (82_509_824, 81_084_416, (1002.98, 55.63), 37.910),
    ":16:8": (15_663_104, 14_237_696, (1018.42, 47.32), 38.859),
    ":0:0": (15_400_960, 13_975_552, (994.92, 5.53), 37.375),
}


def text_of(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    console.print(renderable)
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written


def cuda_record(workspace: str, energy_mj: float, time_ms: float, parameter: int) -> RunRecord:
    """One process's record with planted memory, time, energy and final parameter."""
    peak, live, _, _ = PUBLISHED[workspace]
    value = samples.cuda_run_record()
    result = value["result"] = copy.deepcopy(value["result"])
    result["memory"] |= {
        "prepare_and_invoke_peak_allocated_bytes": peak,
        "allocated_after_invoke_bytes": live,
    }
    result["same_process_reference_hashes_matched"] = list(COMPUTATION_ORDER)
    result["timing"]["repeat_ms"] = [time_ms - 1, time_ms, time_ms + 50]
    result["energy"]["summary"]["idle_adjusted_mj_per_task"]["values"] = [energy_mj - 10, energy_mj + 10]
    result["metadata"]["final_parameter_sha256"][samples.MATRIX] = samples.digest(parameter)
    return RunRecord.model_validate(value)


def published_runs(workspace: str, parameter: int) -> SettingRuns:
    """Three processes whose energies and times have the published means and spreads."""
    _, _, (mean, sd), time_ms = PUBLISHED[workspace]
    records = [
        cuda_record(workspace, mean + side * sd, time_ms + side * 0.15, parameter) for side in (-1, 0, 1)
    ]
    settings = default_settings(X86, "cuda")
    return SettingRuns(workspace, settings, records=records)


@pytest.fixture(scope="module")
def published() -> list[StudyRow]:
    """The published comparison as a study: equal bits inside a workspace, other bits in each other one."""
    runs = [published_runs(name, 100 + number) for number, name in enumerate(PUBLISHED)]
    return study_rows(runs, ":4096:8")


def memory_of(row: StudyRow) -> StudyMemory:
    assert isinstance(row.memory, StudyMemory)
    return row.memory


def bits_of(row: StudyRow) -> StudyBits:
    assert isinstance(row.bits, StudyBits)
    return row.bits


def ratio_of(cost: StudyCost | Unavailable) -> CostRatio:
    assert isinstance(cost, StudyCost)
    assert isinstance(cost.ratio, CostRatio)
    return cost.ratio


def report_of(rows: list[StudyRow], **changed: Any) -> StudyReport:
    value = samples.study() | {"baseline": rows[0].setting} | changed
    return StudyReport.model_validate(value | {"rows": [row.model_dump() for row in rows]})


# --- rows -----------------------------------------------------------------------------------------


def test_the_published_bytes_give_the_published_reductions(published: list[StudyRow]) -> None:
    reductions = [[memory_of(row).peak_reduction, memory_of(row).live_reduction] for row in published]
    assert reductions[0] == [1, 1]
    assert reductions[1] == pytest.approx([5.2678, 5.6951], abs=5e-5)
    assert reductions[2] == pytest.approx([5.3574, 5.8019], abs=5e-5)


def test_the_published_energies_name_no_winner(published: list[StudyRow]) -> None:
    ratios = [ratio_of(row.idle_adjusted_mj_per_task) for row in published[1:]]
    assert [ratio.verdict for ratio in ratios] == ["ambiguous", "ambiguous"]
    # Computed independently (numpy, scipy), as in test_ratios.
    assert ratios[0].lower_95 == pytest.approx(0.9037034, abs=1e-6)
    assert ratios[0].upper_95 == pytest.approx(1.1436671, abs=1e-6)


def test_times_come_from_each_process_s_median(published: list[StudyRow]) -> None:
    times = published[0].ms_per_task
    assert isinstance(times, StudyCost)
    assert times.process_values == pytest.approx([37.76, 37.91, 38.06])
    assert times.ratio is None
    assert [ratio_of(row.ms_per_task).verdict for row in published[1:]] == ["higher", "lower"]
    assert ratio_of(published[1].ms_per_task).estimate == pytest.approx(38.859 / 37.910)


def test_bits_are_compared_with_the_baseline_and_inside_the_setting(published: list[StudyRow]) -> None:
    base, other, _ = (bits_of(row) for row in published)
    assert (base.level_reached, base.differing_fields, base.first_difference) == ("bitwise", 0, None)
    assert (other.level_reached, other.differing_fields) == ("predictions", 1)
    assert other.first_difference is not None
    assert other.first_difference.field == f"final_parameter_sha256.{samples.MATRIX}"
    assert base.compared_fields == other.compared_fields
    assert all(bits_of(row).same_in_every_process for row in published)


def test_a_setting_whose_processes_disagree_is_said_to() -> None:
    base, other = published_runs(":4096:8", 1), published_runs(":16:8", 1)
    other.records[2] = cuda_record(":16:8", 1000, 38, 2)
    rows = study_rows([base, other], ":4096:8")
    # Its first process has the baseline's bits: only the comparison inside the setting shows it.
    assert bits_of(rows[1]).level_reached == "bitwise"
    assert bits_of(rows[1]).same_in_every_process is False
    assert "not the same bits in each process" in " ".join(text_of(study_table(report_of(rows))).split())


def test_hashes_that_move_inside_a_process_are_not_the_same_bits() -> None:
    runs = published_runs(":16:8", 1)
    value = runs.records[1].model_dump()
    value["result"]["same_process_reference_hashes_matched"].remove("scores_sha256")
    runs.records[1] = RunRecord.model_validate(value)
    assert bits_of(study_rows([runs], ":16:8")[0]).same_in_every_process is False


def test_memory_is_the_most_that_a_process_took() -> None:
    records = []
    for peak, live in ((3 * GIB, 2 * GIB), (4 * GIB, 1 * GIB)):
        value = samples.run_record()
        value["result"]["memory"] |= {
            "prepare_and_invoke_peak_resident_bytes": peak,
            "resident_after_invoke_bytes": live,
        }
        records.append(RunRecord.model_validate(value))
    runs = SettingRuns("1/AVX2", default_settings(X86), records=records)
    memory = memory_of(study_rows([runs], "1/AVX2")[0])
    assert (memory.counted, memory.peak_bytes, memory.live_bytes) == ("resident", 4 * GIB, 2 * GIB)


def test_energy_that_one_process_lacks_is_unavailable_and_keeps_its_reason() -> None:
    runs = published_runs(":16:8", 1)
    value = runs.records[2].model_dump()
    value["result"]["energy"] = {"unavailable": "the counter stood still", "remedy": ""}
    runs.records[2] = RunRecord.model_validate(value)
    rows = study_rows([published_runs(":4096:8", 1), runs], ":4096:8")
    assert rows[1].idle_adjusted_mj_per_task == Unavailable(unavailable="the counter stood still", remedy="")
    assert "energy not measured: the counter stood still" in text_of(study_table(report_of(rows)))


def test_a_failed_setting_is_a_row_without_numbers() -> None:
    failed = SettingRuns(":0:0", default_settings(X86, "cuda"), failure="no such workspace")
    row = study_rows([published_runs(":4096:8", 1), failed], ":4096:8")[1]
    assert row.failure == "no such workspace"
    measured = (row.bits, row.memory, row.ms_per_task, row.idle_adjusted_mj_per_task)
    assert all(isinstance(value, Unavailable) for value in measured)


def test_a_failed_baseline_leaves_numbers_and_takes_the_comparisons() -> None:
    failed = SettingRuns(":4096:8", default_settings(X86, "cuda"), failure="out of memory")
    row = study_rows([failed, published_runs(":16:8", 1)], ":4096:8")[1]
    assert isinstance(row.bits, Unavailable)
    assert "the baseline :4096:8 left no result" in row.bits.unavailable
    assert memory_of(row).peak_bytes == 15_663_104
    assert isinstance(memory_of(row).peak_reduction, Unavailable)
    assert isinstance(row.ms_per_task, StudyCost)
    assert isinstance(row.ms_per_task.ratio, Unavailable)


# --- which settings -------------------------------------------------------------------------------


def test_cuda_runs_the_three_workspaces_in_the_published_order() -> None:
    plan = plan_study("cuda", X86, cpus=2, vector_units=())
    assert list(plan.settings) == [":4096:8", ":16:8", ":0:0"]
    assert [settings.workspace for settings in plan.settings.values()] == list(plan.settings)
    assert (plan.baseline, plan.left_out) == (":4096:8", {})


def test_a_cpu_runs_threads_and_code_paths_and_says_what_it_left_out() -> None:
    plan = plan_study("cpu", X86, cpus=2, vector_units=AVX2_UNITS)
    assert list(plan.settings)[:2] == ["1/AVX2", "2/AVX2"]
    assert plan.left_out["4/AVX2"] == "4 threads on 2 CPU(s)"
    assert plan.left_out["1/AVX512"] == "the CPU has no avx512f"
    assert plan.settings["2/AVX2"].threads == 2
    assert plan.settings["1/AUTO,STRICT"].mkl_cbwr == "AUTO,STRICT"
    run_or_left_out = {*plan.settings, *plan.left_out}
    assert run_or_left_out == {"2/AVX2", "4/AVX2", *(f"1/{branch}" for branch in mkl_branches(X86))}
    assert plan.baseline == "1/AVX2"


def test_a_cpu_with_everything_leaves_nothing_out() -> None:
    plan = plan_study("cpu", X86, cpus=4, vector_units=(*AVX2_UNITS, "avx512f"))
    assert plan.left_out == {}


def test_the_baseline_can_be_chosen() -> None:
    asked = ["1/AVX2", "2/AVX2"]
    plan = plan_study("cpu", X86, cpus=2, vector_units=AVX2_UNITS, asked=asked, baseline="2/AVX2")
    assert plan.baseline == "2/AVX2"


@pytest.mark.parametrize(
    ("device", "asked", "baseline", "said"),
    [
        pytest.param("cpu", ["AVX2"], None, "expected THREADS/MKL_CBWR", id="no-threads"),
        pytest.param("cpu", ["1/"], None, "expected THREADS/MKL_CBWR", id="no-code-path"),
        pytest.param("cpu", ["1/AVX2", "0/AVX2"], None, "threads: found 0", id="no-thread"),
        pytest.param("cpu", ["1/AVX2", "1/avx2"], None, "mkl_cbwr: found 'avx2'", id="ignored-spelling"),
        pytest.param("cpu", ["1/AVX2", "64/AVX2"], None, "64/AVX2 is left out: 64 threads", id="one-left"),
        pytest.param("cpu", ["1/AVX2", "1/AVX2"], None, "found 1 to run", id="the-same-twice"),
        pytest.param("cpu", ["1/AVX2", "2/AVX2"], "4/AVX2", "--baseline: found '4/AVX2'", id="not-run"),
        pytest.param("cuda", [":16:8", ":8:8"], None, "workspace: found ':8:8'", id="workspace"),
    ],
)
def test_settings_that_make_no_study_are_refused(
    device: str, asked: list[str], baseline: str | None, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan_study(device, X86, cpus=2, vector_units=AVX2_UNITS, asked=asked, baseline=baseline)
    assert said in str(caught.value)


# --- what a person reads --------------------------------------------------------------------------


def test_the_table_shows_reductions_ratios_and_doubt(published: list[StudyRow]) -> None:
    said = text_of(study_table(report_of(published)))
    assert "÷5.27" in said
    assert "1.015x (0.904 to 1.144)" in said
    assert "ambiguous: the interval holds 1" in said
    assert "left out: 4/AVX2: 4 threads on 2 CPU(s)" in said


def test_a_failed_row_shows_its_cause() -> None:
    failed = SettingRuns(":0:0", default_settings(X86, "cuda"), failure="no such workspace")
    rows = study_rows([published_runs(":4096:8", 1), failed], ":4096:8")
    said = text_of(study_table(report_of(rows)))
    assert "no such workspace" in said
    assert "failed" in said


def test_compare_shows_costs_of_two_runs_and_what_repeats_are_worth() -> None:
    seed = codec.load_as(samples.SEED, models.RunRecordV1)
    ours = cuda_record(":16:8", 1018, 38.9, 1)
    rows = compare_costs(seed, ours)
    assert [row.what for row in rows] == ["ms", "mJ per task above idle"]
    said = text_of(costs_table(rows))
    assert "38.859 of 3" in said  # the seed's published mean
    assert "1018.419 of 3" in said
    assert "not independent processes" in said


def test_costs_of_another_kind_are_not_compared() -> None:
    first, second = samples.run_record(), samples.run_record()
    first["result"] = {**first["result"], "energy": samples.rapl_energy()}
    second["result"] = {**second["result"], "energy": samples.nvml_energy()}
    second["result"]["timing"] = {**second["result"]["timing"], "scope": "training"}
    rows = compare_costs(RunRecord.model_validate(first), RunRecord.model_validate(second))
    reasons = [row.ratio.unavailable for row in rows if isinstance(row.ratio, Unavailable)]
    assert reasons == [
        "one is of training, the other of task",
        "one is of energy by nvml, the other of energy by rapl",
    ]


def test_a_run_whose_energy_was_unavailable_says_why_it_has_no_time() -> None:
    value = samples.run_record()
    value["result"] = {**value["result"], "timing": None, "energy": dict(samples.UNAVAILABLE)}
    time = times_ms(RunRecord.model_validate(value))
    assert isinstance(time, Unavailable)
    assert time.remedy == "run without --energy"


def test_runs_that_timed_nothing_have_no_costs_to_compare() -> None:
    value = samples.run_record()
    value["result"] = {**value["result"], "timing": None}
    record = RunRecord.model_validate(value)
    assert compare_costs(record, record) == []


# --- real processes -------------------------------------------------------------------------------

STUDY = ("study", "workspaces", "--case", "synthetic-300-100", "--runs-dir", "runs", "--json")


def study_file(checkout: Checkout) -> Path:
    (path,) = (checkout.folder / "runs").glob("*/study.json")
    return path


def test_a_study_of_two_settings_leaves_its_evidence(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    done = checkout.qualgate(*STUDY, "--setting", "1/AUTO", "--setting", "1/COMPATIBLE")
    assert done.returncode == 0, done.stderr
    path = study_file(checkout)
    report = codec.load_as(path, StudyReport)
    assert report.model_dump() == json.loads(done.stdout)
    assert [row.setting for row in report.rows] == ["1/AUTO", "1/COMPATIBLE"]
    for row in report.rows:
        assert row.failure is None
        assert bits_of(row).same_in_every_process is True
        assert bits_of(row).level_reached in ("bitwise", "predictions")
        assert memory_of(row).peak_bytes > 0
        assert isinstance(row.ms_per_task, StudyCost)
        assert len(row.ms_per_task.process_values) == 2
        assert [item.file_sha256 for item in row.records] == [
            file_sha256(path.parent / item.file) for item in row.records
        ]
        records = [codec.load_as(path.parent / item.file, RunRecord) for item in row.records]
        assert {record.settings.mkl_cbwr for record in records} == {row.setting.partition("/")[2]}
    # The settings take turns, and every process is announced before it runs.
    announced = [line.partition(":")[0] for line in done.stderr.splitlines() if line.endswith(" ...")]
    assert announced == ["[1/4] 1/AUTO", "[2/4] 1/COMPATIBLE", "[3/4] 1/AUTO", "[4/4] 1/COMPATIBLE"]


def test_a_failing_setting_is_reported_and_the_study_goes_on(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    checkout.edit(
        "fixture/__main__.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\nimport os\n"
        "if os.environ['MKL_CBWR'] == 'COMPATIBLE': raise SystemExit('planted')\n",
    )
    done = checkout.qualgate(*STUDY, "--setting", "1/COMPATIBLE", "--setting", "1/AUTO")
    assert done.returncode == 4, done.stderr
    assert last_line(done).startswith("qualgate: 1 of 2 settings failed (1/COMPATIBLE): ")
    assert "planted" in last_line(done)
    failed, sound = codec.load_as(study_file(checkout), StudyReport).rows
    assert failed.failure is not None
    assert "planted" in failed.failure
    # It was not run again, and its one record says why it failed.
    (record,) = failed.records
    assert codec.load_as(study_file(checkout).parent / record.file, RunRecord).failure == failed.failure
    assert isinstance(sound.ms_per_task, StudyCost)
    assert len(sound.ms_per_task.process_values) == 2
    assert isinstance(sound.bits, Unavailable)


def test_one_process_a_setting_is_refused_before_any_work(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    done = checkout.qualgate(*STUDY, "--processes", "1")
    assert done.returncode == 2
    assert "--processes: found 1, expected at least 2" in last_line(done)
    assert not (checkout.folder / "runs").exists()


def test_compare_prints_costs_below_the_fields() -> None:
    checkout = Checkout(Path(__file__).parents[2])
    done = checkout.qualgate("compare", str(samples.SEED), str(samples.SEED))
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("field by field") < done.stdout.index("costs")
    assert "ambiguous" in done.stdout
