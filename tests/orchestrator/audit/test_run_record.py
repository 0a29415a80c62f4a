"""A fresh version 2 run record, the seed's energy in version 2's form, and one lie at a time in both."""

from __future__ import annotations

import copy
import json
import platform
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from orchestrator.audit.evidence import audit_path
from orchestrator.audit.records import audit_record
from orchestrator.cases import named_case
from orchestrator.codec import check_model
from orchestrator.environment import default_settings
from orchestrator.models import FixtureResult, RunRecord
from orchestrator.runner import Run, RunOptions, new_run_folder, run_case
from tests.orchestrator.audit.lies import GONE, Json, Lie, audit_json, other_hash, planted, plus
from tests.strategies import seed_run

RESULT = "result"
METADATA = "result.metadata"
ARRAYS = "result.metadata.arrays"
MEMORY = "result.memory"
VARIABLES = "environment.variables"

LIES = [
    # memory and inventory of a CPU
    Lie(f"{MEMORY}.resident_after_prepare_bytes", 1 << 50, "memory.live-at-most-peak"),
    Lie(f"{MEMORY}.resident_after_prepare_bytes", plus(1), "memory.whole-kibibytes"),
    Lie(f"{MEMORY}.resident_before_prepare_bytes", 0, "memory.resident"),
    Lie(f"{MEMORY}.added_peak_over_entry_resident_bytes", plus(1024), "memory.added-peak"),
    Lie(f"{RESULT}.device", "cuda", "memory.device", MEMORY),
    Lie(f"{RESULT}.buffer_inventory.unique_storages[0].device", "cuda:0", "inventory.device"),
    Lie(f"{RESULT}.buffer_inventory.allocator_allocated_bytes", 10**9, "inventory.allocator-counts"),
    Lie(
        f"{RESULT}.buffer_inventory.allocated_bytes_without_named_storage_reference", 0,
        "inventory.unnamed-bytes",
    ),
    # hashes
    Lie(f"{METADATA}.run_count", plus(1), "hashes.run-count"),
    Lie(f"{RESULT}.before_metadata.run_count", 3, "hashes.run-count"),
    Lie(f"{RESULT}.before_metadata.scores_sha256", other_hash, "hashes.before-equals-after"),
    Lie(f"{RESULT}.before_metadata.scores_sha256", other_hash, "hashes.matched-groups",
        f"{RESULT}.same_process_reference_hashes_matched"),
    Lie(f"{ARRAYS}.scores_sha256.shape", [10, 100], "hashes.array-shape"),
    Lie(f"{ARRAYS}.scores_sha256.dtype", "float64", "hashes.array-dtype"),
    Lie(f"{ARRAYS}.scores_sha256", GONE, "hashes.array-names"),
    Lie(f"{ARRAYS}.predictions_sha256.value_sha256", other_hash, "hashes.integer-value-digest"),
    Lie(f"{METADATA}.predictions_sha256", other_hash, "hashes.integer-value-digest",
        f"{ARRAYS}.predictions_sha256.value_sha256"),
    Lie("input_sha256.test_images", other_hash, "run.input-hashes", "input_sha256"),
    # command and mode
    Lie("command", lambda words: [*words, "--energy"], "command.energy"),
    Lie("settings.device", "cuda", "command.device", "command"),
    Lie("case.numerics", "portable", "command.numerics", "command"),
    Lie(f"{RESULT}.timing.repeat_ms", lambda times: times[:1], "command.repeats"),
    Lie(f"{RESULT}.timing.scope", "training", "command.scope"),
    Lie(f"{RESULT}.timing", None, "command.timing"),
    Lie(f"{RESULT}.mode", "profile", "command.profile-in-profile-mode", f"{RESULT}.profile"),
    # environment and platform
    Lie("workspace", ":4096:8", "environment.workspace", "settings.workspace"),
    Lie("environment.sha256", other_hash, "environment.digest"),
    Lie(f"{VARIABLES}.QUALGATE_ENVIRONMENT_SHA256", other_hash, "environment.digest-passed-on"),
    Lie(f"{VARIABLES}.OMP_NUM_THREADS", "64", "environment.settings"),
    Lie(f"{VARIABLES}.MKL_CBWR", GONE, "environment.settings"),
    Lie(f"{VARIABLES}.KMP_BLOCKTIME", "0", "environment.settings"),
    Lie("settings.threads", 64, "environment.settings", f"{VARIABLES}.OMP_NUM_THREADS"),
    Lie("settings.threads", 64, "environment.platform", f"{RESULT}.platform.threads"),
    Lie(f"{RESULT}.environment.variables.LANG", "C", "environment.attested"),
    Lie(f"{RESULT}.environment.sha256", other_hash, "environment.digest"),
    Lie(f"{RESULT}.environment.expected_sha256", None, "environment.digest-passed-on"),
    Lie(f"{RESULT}.environment.changed_during_run", ["MKL_CBWR"], "environment.unchanged"),
    Lie(f"{RESULT}.environment_was_set_externally", False, "environment.set-externally"),
    Lie(f"{RESULT}.platform.device", "cuda", "platform.device"),
    Lie(f"{RESULT}.platform.gpu", "NVIDIA A100", "platform.gpu"),
    Lie(f"{RESULT}.gpu", "NVIDIA A100", "platform.gpu"),
    Lie(f"{RESULT}.cuda_device_index", 0, "platform.gpu"),
    Lie(f"{RESULT}.platform.cublas", "12.4.5", "platform.cuda-facts"),
    Lie(f"{RESULT}.platform.torch", "2.5.1", "platform.versions"),
    Lie(f"{RESULT}.platform.workspace", ":0:0", "platform.workspace", f"{RESULT}.cublas_workspace_config"),
    Lie(f"{RESULT}.torch_deterministic_mode", "warn", "platform.deterministic-mode"),
    # the run as a whole
    Lie("returncode", 1, "run.returncode"),
    Lie("timed_out", True, "run.timed-out"),
    Lie("failure", "it failed", "run.failure"),
    Lie("result", None, "run.failure", "failure"),
    Lie("score", {"unavailable": "lost", "remedy": ""}, "run.score"),
    Lie("score.total", 101, "run.score-total"),
    Lie("score.correct", 101, "run.score-correct"),
    Lie("case.data.train_count", 301, "run.counts", f"{METADATA}.train_count"),
    Lie("case.config.seed", 12, "run.config", f"{RESULT}.config.seed"),
    Lie("case.config.seed", 12, "run.artefact-hash", 'artefact_sha256["config.json"]'),
    Lie(f"{RESULT}.numerics.name", "portable", "run.numerics"),
    Lie("settings.device", "cuda", "run.device", f"{RESULT}.device"),
    Lie("started_at_utc", "2099-01-01T00:00:00.000000+00:00", "run.times"),
    Lie(f"{RESULT}.completed_at_utc", "2099-01-01T00:00:00.000000+00:00", "run.times"),
    Lie("duration_s", plus(60), "run.duration"),
    Lie("duration_s", 1e300, "run.duration"),
    Lie("stdout", lambda text: text + "x", "run.stream-size", "streams.stdout.size_bytes"),
    Lie("streams.stdout.sha256", other_hash, "run.stream-hash"),
    Lie("streams.stderr.sha256", other_hash, "run.artefact-hash", 'artefact_sha256["stderr.txt"]'),
    Lie(f"{RESULT}.input_archive_sha256", other_hash, "run.artefact-hash", 'artefact_sha256["input.npz"]'),
    Lie(f"{RESULT}.predictions_file_sha256", other_hash, "run.artefact-hash",
        'artefact_sha256["result.predictions.npy"]'),
    Lie(f'{RESULT}.source_sha256["fixture.py"]', other_hash, "run.artefact-hash",
        'artefact_sha256["fixture/__main__.py"]'),
    Lie(f'{RESULT}.source_sha256["task.py"]', GONE, "run.sources", "artefact_sha256"),
    Lie('artefact_sha256["result.json"]', GONE, "run.artefact-hash", "artefact_sha256"),
]  # fmt: skip


def test_a_fresh_record_is_clean(fresh: Run) -> None:
    found = audit_record(fresh.record)
    assert found.found == []
    assert len(found.rules) > 90
    assert audit_record(fresh.result).found == []


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_is_found_by_its_rule(lie: Lie, record: Json) -> None:
    lying = planted(record, lie.path, lie.value)
    assert lying != record
    findings = audit_json(lying, RunRecord)
    assert lie.found_in(findings), findings


def test_a_traced_run_is_clean(tmp_path: Path) -> None:
    settings = default_settings(platform.machine())
    options = RunOptions(repeats=1, trace=True)
    run = run_case(named_case("synthetic-300-100"), settings, options, new_run_folder(tmp_path, "traced"))
    assert run.result.trace is not None
    report = audit_path(run.folder)
    assert report.sound, report.files[0].findings


def test_the_record_of_a_failed_run_is_sound(record: Json) -> None:
    failed = {
        **record,
        "returncode": -9,
        "result": None,
        "score": {"unavailable": "the run left no predictions", "remedy": ""},
        "failure": "the fixture was killed by SIGKILL",
    }
    assert audit_json(failed, RunRecord) == []
    assert audit_json({**failed, "failure": None}, RunRecord)


@pytest.mark.parametrize(("scope", "repeats"), [("task", 3), ("training", 1)])
def test_a_profile_is_held_to_its_declared_scope(record: Json, scope: str, repeats: int) -> None:
    profile = {
        "scope": scope, "repeats": repeats, "warmup_tasks": 2, "range": "torch.profiler",
        "operators": [{"operator": "aten::mm", "calls": 9, "self_time_us": 1.5, "allocated_bytes": 0}],
    }  # fmt: skip
    result = record["result"] | {
        "mode": "profile", "requested_scope": scope, "timing": None, "profile": profile,
    }  # fmt: skip
    result["metadata"]["run_count"] = 4 + repeats
    assert audit_json(result, FixtureResult) == []
    for path, value, rule in (
        ("profile.scope", "task" if scope == "training" else "training", "command.scope"),
        ("profile.range", "cudaProfilerStart/cudaProfilerStop", "command.profile-range"),
        ("profile.warmup_tasks", 3, "hashes.run-count"),
    ):
        findings = audit_json(planted(result, path, value), FixtureResult)
        assert rule in {finding.rule for finding in findings}
    if scope == "training":
        twice = planted(result, "profile.repeats", 2)
        assert "command.profile-range" in {finding.rule for finding in audit_json(twice, FixtureResult)}


# --- energy -------------------------------------------------------------------------------------

ENERGY = "result.energy"
QUALITY = "result.energy.quality"

ENERGY_LIES = [
    Lie(f"{ENERGY}.meter", "rapl", "energy.meter"),
    Lie(f"{ENERGY}.trials[0].active.energy_j", plus(1e-9), "energy.interval-energy"),
    Lie(f"{ENERGY}.trials[2].telemetry_after.power_w", None, "energy.cross-check", f"{QUALITY}.cross_check"),
    Lie(f"{QUALITY}.counter.fewest_updates_in_an_interval", 151, "energy.counter-updates"),
    Lie(f"{QUALITY}.counter.update_period_s", 5e-324, "energy.counter-updates",
        f"{QUALITY}.counter.fewest_updates_in_an_interval"),
    Lie(f"{QUALITY}.counter.fewest_updates_in_an_interval", 19, "energy.enough-updates"),
    Lie(f"{QUALITY}.counter.required_updates", 1, "energy.required-updates"),
    Lie(f"{QUALITY}.idle_adjusted_mj_per_task.confidence_95_low", plus(1e-9), "energy.confidence"),
    Lie(f"{QUALITY}.idle_adjusted_mj_per_task.confidence_95_high", plus(1e-9), "energy.confidence"),
    Lie(f"{QUALITY}.idle_adjusted_mj_per_task.relative_spread", 0.01, "energy.relative-spread"),
    Lie(f"{QUALITY}.idle_adjusted_mj_per_task.allowed_relative_spread", 0.5, "energy.allowed-spread"),
    Lie(f"{QUALITY}.needs_more_trials", True, "energy.needs-more-trials"),
    Lie(f"{QUALITY}.cross_check.largest_relative_difference", 0.0, "energy.cross-check"),
    Lie(f"{QUALITY}.cross_check.agrees", False, "energy.cross-check"),
    Lie(f"{QUALITY}.cross_check.trials[1].idle_sampled_over_counter", 1.0, "energy.cross-check",
        f"{QUALITY}.cross_check.trials"),
    Lie(f"{QUALITY}.cross_check", {"unavailable": "lost", "remedy": ""}, "energy.cross-check"),
    Lie(f"{QUALITY}.throttle_reasons[0].trial", 1, "energy.throttle-trials", f"{QUALITY}.throttle_reasons"),
]  # fmt: skip


@pytest.fixture
def metered(record: Json) -> Json:
    """The fresh run as the seed's A100 would have left it, its energy judged by the fixture's own code."""
    seed = seed_run()
    measured = copy.deepcopy(seed["result"]["energy"])
    energy: Any = import_module("energy")  # the fixture's module, which pytest's path knows by bare name
    quality = energy.quality(
        energy.EnergyMeasurement(measured, energy.Tick(0.02, 1), [(["gpu_idle"], []) for _ in range(3)])
    )
    result = record["result"]
    before = result["before_metadata"]
    after = {**result["metadata"], "run_count": 327}
    gpu = seed["result"]["gpu"]
    software = {**seed["result"]["software"]}
    result |= {
        "memory": seed["result"]["memory"], "gpu": gpu, "cuda_device_index": 0, "device": "cuda",
        "software": software, "timing": None, "metadata": after,
        "platform": {
            **result["platform"], "device": "cuda", "gpu": gpu, "compute_capability": "8.0",
            "cublas": "12.4.5", "driver": "580.95.05",
            **{name: software[name] for name in ("torch", "numpy", "cuda")},
        },
        "energy": {
            **measured, "before_metadata": before, "after_metadata": after, "meter": "nvml",
            "quality": json.loads(json.dumps(quality)),
            "software": {
                **measured["software"], "pynvml_file": "pynvml.py", "pynvml_is_nvidia_ml_py": True,
            },
        },
    }  # fmt: skip
    inventory = result["buffer_inventory"]
    for index, storage in enumerate(inventory["unique_storages"]):
        storage |= {"device": "cuda:0", "address": index << 24}
    live = result["memory"]["allocated_after_invoke_bytes"]
    inventory["allocator_allocated_bytes"] = live
    inventory["allocated_bytes_without_named_storage_reference"] = (
        live - inventory["unique_named_storage_bytes"]
    )
    return {"result": result}


def test_energy_of_version_2_is_clean(metered: Json) -> None:
    assert audit_record(check_model(metered["result"], FixtureResult, "a result")).found == []


@pytest.mark.parametrize("lie", ENERGY_LIES, ids=str)
def test_a_lie_about_energy_is_found_by_its_rule(lie: Lie, metered: Json) -> None:
    lying = planted(metered, lie.path, lie.value)
    findings = audit_json(lying["result"], FixtureResult)
    place = (lie.place or lie.path).removeprefix("result.")
    assert any(item.rule == lie.rule and item.path == f"$.{place}" for item in findings), findings


def test_a_package_is_counted_once(metered: Json) -> None:
    energy = metered["result"]["energy"]
    domain = {"name": "package-0", "zone": "intel-rapl:0", "max_energy_range_uj": 65532610987}
    for names, sound in (
        (["package-0", "package-1"], True),
        (["package-0", "package-0"], False),
        (["psys"], False),
    ):
        energy["hardware"] = {
            "cpu": "a CPU", "domains": [{**domain, "name": name} for name in names],
            "assumed_max_domain_power_w": 1000,
        }  # fmt: skip
        rules = {finding.rule for finding in audit_json(metered["result"], FixtureResult)}
        assert ("energy.packages-once" not in rules) is sound
