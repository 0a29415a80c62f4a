"""The seed record, and one lie at a time in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.audit.records import audit_record
from orchestrator.codec import check_model, load
from orchestrator.errors import EvidenceError
from orchestrator.models import RunRecordV1
from tests.orchestrator.audit.lies import GONE, Json, Lie, audit_json, other_hash, planted, plus
from tests.strategies import SEED, seed_run

RESULT = "result"
MEMORY = "result.memory"
INVENTORY = "result.buffer_inventory"
TENSOR = "result.buffer_inventory.named_tensors"
STORAGE = "result.buffer_inventory.unique_storages"
ENERGY = "result.energy"
TRIAL = "result.energy.trials[1]"
SUMMARY = "result.energy.summary"
HARDWARE = "result.energy.hardware"
METADATA = "result.metadata"
CHECK = "result.metadata.validation.checks[2]"


def option(name: str, value: str | None) -> Any:
    """A command with another value for an option, or without it."""

    def change(command: list[str]) -> list[str]:
        at = command.index(name)
        return (
            command[:at] + command[at + 2 :]
            if value is None
            else [*command[: at + 1], value, *command[at + 2 :]]
        )

    return change


LIES = [
    # memory
    Lie(f"{MEMORY}.allocated_before_prepare_bytes", 512, "memory.fresh-allocator"),
    Lie(f"{MEMORY}.reserved_before_prepare_bytes", 2 << 20, "memory.fresh-allocator"),
    Lie(f"{MEMORY}.allocated_after_prepare_bytes", 15663105, "memory.live-at-most-peak"),
    Lie(f"{MEMORY}.allocated_after_invoke_bytes", plus(2_000_000), "memory.live-at-most-peak"),
    Lie(f"{MEMORY}.prepare_and_invoke_peak_allocated_bytes", 14237695, "memory.live-at-most-peak",
        f"{MEMORY}.allocated_after_prepare_bytes"),
    Lie(f"{MEMORY}.allocated_after_invoke_bytes", plus(-512), "memory.replay-allocates-nothing"),
    Lie(f"{MEMORY}.allocated_after_invoke_bytes", plus(512), "memory.inventory-live",
        f"{INVENTORY}.allocator_allocated_bytes"),
    Lie(f"{MEMORY}.reserved_after_invoke_bytes", 14237695, "memory.live-at-most-reserved",
        f"{MEMORY}.allocated_after_invoke_bytes"),
    Lie(f"{MEMORY}.reserved_after_invoke_bytes", plus(2 << 20), "memory.reserved-at-most-reserved-peak"),
    Lie(f"{MEMORY}.prepare_and_invoke_peak_reserved_bytes", 15663103, "memory.peak-at-most-reserved-peak",
        f"{MEMORY}.prepare_and_invoke_peak_allocated_bytes"),
    Lie(f"{MEMORY}.added_peak_over_entry_allocated_bytes", plus(1), "memory.added-peak"),
    Lie("result.cache_reference.bytes", 20 << 20, "memory.cache-unit", "result.cache_reference.unit"),
    # inventory
    Lie(f"{TENSOR}[3].name", "gradients.weights.9", "inventory.names", f"{TENSOR}[3]"),
    Lie(f"{TENSOR}[3].name", "trace.words", "inventory.names", f"{TENSOR}[3]"),
    Lie(TENSOR, lambda tensors: tensors[:-1], "inventory.names", f"{TENSOR}[32]"),
    Lie(TENSOR, lambda tensors: [*tensors, tensors[0]], "inventory.names", f"{TENSOR}[33]"),
    Lie(f"{TENSOR}[24].shape", [10000, 82], "inventory.shape"),
    Lie(f"{TENSOR}[26].dtype", "torch.float64", "inventory.dtype"),
    Lie(f"{TENSOR}[0].logical_bytes", plus(4), "inventory.logical-bytes"),
    Lie(f"{TENSOR}[0].logical_bytes", plus(4), "inventory.logical-at-most-storage"),
    Lie(f"{TENSOR}[8].stride", [10, 1], "inventory.stride"),
    Lie(f"{TENSOR}[8].stride", [164, 1], "inventory.view-inside-storage", f"{TENSOR}[8].storage_offset"),
    Lie(f"{TENSOR}[10].storage_offset", 1, "inventory.view-inside-storage"),
    Lie(f"{TENSOR}[2].storage_id", 99, "inventory.storage-known"),
    Lie(f"{TENSOR}[2].storage_id", 0, "inventory.aliases", f"{STORAGE}[0].aliases"),
    Lie(f"{STORAGE}[5].aliases", ["gradients.weights.2", "x"], "inventory.aliases"),
    Lie(f"{STORAGE}[5].aliases", ["gradients.weights.3"], "inventory.aliases"),
    Lie(f"{STORAGE}[4].storage_id", 5, "inventory.storage-ids"),
    Lie(f"{STORAGE}[4].device", "cuda:1", "inventory.device"),
    Lie(f"{STORAGE}[4].address", plus(1), "inventory.address-aligned"),
    Lie(f"{STORAGE}[1].address", 47348778532864, "inventory.storages-disjoint"),
    Lie(f"{STORAGE}[25].bytes", plus(4), "inventory.unique-bytes", f"{INVENTORY}.unique_named_storage_bytes"),
    Lie(f"{INVENTORY}.unique_named_storage_bytes", plus(-40), "inventory.unique-bytes"),
    Lie(f"{INVENTORY}.unique_named_storage_bytes", 14237697, "inventory.named-at-most-live"),
    Lie(f"{INVENTORY}.allocated_bytes_without_named_storage_reference", 0, "inventory.unnamed-bytes"),
    Lie(f"{INVENTORY}.allocator_allocated_bytes", plus(512), "memory.inventory-live"),
    # energy: protocol
    Lie(f"{ENERGY}.calibration_ms", 45.0, "energy.repeats", f"{ENERGY}.repeats_per_trial"),
    Lie(f"{ENERGY}.calibration_ms", 1e-320, "energy.repeats", f"{ENERGY}.repeats_per_trial"),
    Lie(f"{ENERGY}.repeats_per_trial", 107, "energy.repeats"),
    Lie(f"{ENERGY}.trials", lambda trials: trials[:1], "energy.trial-count"),
    Lie(f"{TRIAL}.trial", 2, "energy.trial-numbers"),
    Lie(f"{TRIAL}.invocations", 109, "energy.invocations"),
    Lie(f"{TRIAL}.idle_before.settle_seconds", 2.9, "energy.settle-length"),
    Lie(f"{TRIAL}.idle_after.settle_seconds", 3.5, "energy.settled"),
    Lie(f"{TRIAL}.idle_before.end.time_s", 29.7, "energy.idle-length", f"{TRIAL}.idle_before.duration_s"),
    # energy: numbers
    Lie(f"{TRIAL}.idle_before.duration_s", plus(1e-12), "energy.interval-duration"),
    Lie(f"{TRIAL}.active.energy_j", plus(1e-9), "energy.interval-energy"),
    Lie(f"{TRIAL}.active.start.energy_mj", plus(1), "energy.interval-energy", f"{TRIAL}.active.energy_j"),
    Lie(f"{TRIAL}.active.average_power_w", plus(1e-12), "energy.interval-power"),
    Lie(f"{TRIAL}.idle_after.end.energy_mj", 26028523295, "energy.counter-moves"),
    Lie(f"{TRIAL}.idle_after.start.energy_mj", 26028303235, "energy.counter-never-back"),
    Lie(f"{TRIAL}.active.start.time_s", 29.779, "energy.intervals-in-order"),
    Lie(f"{TRIAL}.active.end.time_s", 29.78, "energy.intervals-in-order"),
    Lie(f"{TRIAL}.active.start.query_latency_s", 60, "energy.query-latency"),
    Lie(f"{TRIAL}.paired_idle_w", plus(1e-12), "energy.paired-idle"),
    Lie(f"{TRIAL}.idle_adjusted_mj_per_task", plus(1e-9), "energy.idle-adjusted"),
    Lie(f"{TRIAL}.idle_adjusted_mj_per_task", 900.0, "command.printed", "stdout"),
    Lie(f"{TRIAL}.unadjusted_mj_per_task", plus(1e-9), "energy.unadjusted"),
    Lie(f"{TRIAL}.wall_ms_per_task", plus(1e-12), "energy.wall-time"),
    Lie(f"{TRIAL}.cuda_ms_per_task", 38.5, "energy.device-time-agrees"),
    Lie(f"{TRIAL}.cuda_ms_per_task", plus(1e-9), "energy.summary-values",
        f"{SUMMARY}.cuda_ms_per_task.values"),
    Lie(f"{SUMMARY}.wall_ms_per_task.values[0]", plus(1e-12), "energy.summary-values",
        f"{SUMMARY}.wall_ms_per_task.values"),
    Lie(f"{SUMMARY}.idle_adjusted_mj_per_task.mean", 1018.42, "energy.summary-mean"),
    Lie(f"{SUMMARY}.idle_adjusted_mj_per_task.sample_sd", 38.634926, "energy.summary-sd"),  # n, not n - 1
    Lie(f"{SUMMARY}.cuda_ms_per_task.mean", plus(1e-12), "energy.summary-mean"),
    # energy: claims and device
    Lie(f"{ENERGY}.repeat_predictions_equal", False, "energy.repeat-predictions-equal"),
    Lie(f"{ENERGY}.repeat_state_hashes_equal", False, "energy.repeat-state-hashes-equal"),
    Lie(f"{ENERGY}.state_hash_keys_checked", lambda keys: keys[1:], "energy.state-hash-keys"),
    Lie(f"{HARDWARE}.nvml_pci_bus_id", "00000001:0F:00.0", "energy.pci-address"),
    Lie(f"{HARDWARE}.cuda_pci_bus_id", "0000:10:00.0", "energy.pci-address", f"{HARDWARE}.nvml_pci_bus_id"),
    Lie(f"{HARDWARE}.nvml_pci_bus_id", "0F:00.0", "energy.pci-bus-id"),
    Lie(f"{HARDWARE}.nvml_handle_selected_by_cuda_pci_bus_id", False, "energy.handle-by-pci"),
    Lie(f"{HARDWARE}.uuid", "MIG-87335ec7-4260-ce3c-9bea-69a4ecbf5771", "energy.gpu-uuid"),
    Lie(f"{HARDWARE}.gpu", "NVIDIA A100-SXM4-80GB", "energy.gpu"),
    Lie(f"{ENERGY}.software.torch", "2.5.0", "energy.software"),
    Lie(f"{ENERGY}.before_metadata.run_count", 3, "hashes.run-count"),
    Lie(f"{ENERGY}.after_metadata.run_count", 326, "hashes.run-count"),
    # hashes
    Lie("result.config_file_sha256", other_hash, "hashes.config-file"),
    Lie("result.config.learning_rate", 0.2, "hashes.config-file", "result.config_file_sha256"),
    Lie("result.config.epochs", 10**18, "hashes.config-limits"),
    Lie("result.config.depth", 10**18, "hashes.config-limits"),
    Lie(f"{METADATA}.config.momentum", 0.8, "hashes.config"),
    Lie(f"{METADATA}.checkpoint_loaded", True, "hashes.procedure"),
    Lie(f"{METADATA}.retained_core_states", 2, "hashes.procedure"),
    Lie(f"{METADATA}.normalization", "none", "hashes.procedure"),
    Lie(f"{METADATA}.parameter_count", 7555, "hashes.parameter-count"),
    Lie(f"{METADATA}.core_saved_bytes_per_example", 324, "hashes.core-saved-bytes"),
    Lie(f'{METADATA}.initial_parameter_sha256["weights.3"]', GONE, "hashes.parameter-names"),
    Lie(f'{METADATA}.final_velocity_sha256["weights.4"]', "0" * 64, "hashes.parameter-names"),
    Lie(f"{METADATA}.epoch_permutation_sha256", lambda hashes: hashes[:1], "hashes.permutation-count"),
    Lie(f"{METADATA}.run_count", 1, "hashes.run-count-at-least-2"),
    Lie(f"{METADATA}.run_count", 328, "hashes.run-count"),
    Lie(f"{METADATA}.state_vector_sha256", other_hash, "hashes.before-equals-after",
        f"{ENERGY}.before_metadata.state_vector_sha256"),
    Lie(f"{ENERGY}.before_metadata.scores_sha256", other_hash, "hashes.before-equals-after"),
    Lie(f'{ENERGY}.after_metadata.final_parameter_sha256["head.bias"]', other_hash,
        "hashes.before-equals-after", f"{ENERGY}.after_metadata.final_parameter_sha256"),
    Lie(f"{ENERGY}.before_metadata.preparation_seconds", plus(0.5), "hashes.before-equals-after"),
    Lie(f"{ENERGY}.after_metadata.validation.scope", "none", "hashes.one-validation",
        f"{ENERGY}.after_metadata.validation"),
    Lie("result.same_process_reference_hashes_matched", lambda groups: groups[1:], "hashes.matched-groups"),
    Lie("input_sha256.train_labels", other_hash, "run.input-hashes", "input_sha256"),
    # validation
    Lie("result.metadata.validation.checks", lambda checks: checks[:3], "validation.checks"),
    Lie("result.metadata.validation.device", "cuda", "validation.device"),
    Lie("result.metadata.validation.passed", False, "validation.passed"),
    Lie(f"{CHECK}.passed", False, "validation.check-passed"),
    Lie(f"{CHECK}.forward_bitwise_equal", False, "validation.forward"),
    Lie(f"{CHECK}.maximum_gradient_abs_error", 1e-4, "validation.gradient-error"),
    Lie(f"{CHECK}.inverse_max_abs_error", 1e-4, "validation.inverse-error"),
    Lie(f"{CHECK}.saved_activation_storages", 2, "validation.saved-storages"),
    Lie(f"{CHECK}.saved_activation_bytes", 1968, "validation.saved-bytes"),
    Lie(f"{CHECK}.saved_parameter_references", 4, "validation.weight-references"),
    # command, environment, outcome
    Lie("action", "profile", "command.mode", "command"),
    Lie("result.mode", "profile", "command.mode"),
    Lie("result.mode", "profile", "command.profile-in-profile-mode", "result.profile"),
    Lie("result.requested_scope", "training", "command.scope"),
    Lie("result.requested_scope", "training", "command.energy-mode", "result.energy"),
    Lie("scope", "training", "command.scope", "command"),
    Lie("command", option("--mode", "profile"), "command.mode"),
    Lie("command", option("--repeats", "0"), "command.repeats"),
    Lie("command", option("--config", None), "command.files"),
    Lie("command", lambda words: words[:-1], "command.energy"),
    Lie("command", lambda words: [*words, "--scope", "task"], "command.options-once"),
    Lie("result.predictions_file", "other.npy", "command.predictions-file"),
    Lie("stdout", lambda text: text.replace("Completed measure/task", "Completed"), "command.printed"),
    Lie("workspace", ":4096:8", "environment.workspace", "result.cublas_workspace_config"),
    Lie("result.cublas_workspace_config", ":0:0", "environment.workspace"),
    Lie("result.environment_was_set_externally", False, "environment.set-externally"),
    Lie("returncode", 1, "run.returncode"),
    Lie("finished_at_utc", "2026-09-14T23:53:15.000000+00:00", "run.times", "result.completed_at_utc"),
]  # fmt: skip


def test_the_seed_is_clean() -> None:
    found = audit_record(load(SEED))
    assert found.found == []
    assert len(found.rules) > 90


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_is_found_by_its_rule(lie: Lie) -> None:
    lying = planted(seed_run(), lie.path, lie.value)
    assert lying != seed_run()
    findings = audit_json(lying, RunRecordV1)
    assert lie.found_in(findings), findings


def test_a_finding_says_what_was_derived() -> None:
    path = f"{SUMMARY}.idle_adjusted_mj_per_task.sample_sd"
    (finding,) = audit_json(planted(seed_run(), path, 47.3), RunRecordV1)
    assert finding.path == f"$.{path}"
    assert (finding.expected, finding.found) == ("47.31792745681787", "47.3")


def test_a_domain_of_four_digits_and_one_of_eight_are_one_address() -> None:
    for text in ("0:f:0.0", "0000:0F:00.0", "00000000:0f:00.0"):
        lying = seed_run()
        lying["result"]["energy"]["hardware"]["cuda_pci_bus_id"] = text
        assert audit_json(lying, RunRecordV1) == []


def _numbers(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _numbers(item, f'{path}["{key}"]')]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _numbers(item, f"{path}[{index}]")]
    return [path] if type(value) in (int, float) else []


NUMBERS = _numbers(seed_run())
EXTREMES = [0, 1, -1, 10**18, 2**63, 0.0, -0.0, 5e-324, 1e308, -1e308]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NUMBERS), st.sampled_from(EXTREMES) | st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_stops_an_audit(path: str, value: float) -> None:
    lying: Json = planted(seed_run(), path, lambda _: value)
    try:
        record = check_model(lying, RunRecordV1, "a record")
    except EvidenceError:
        return
    audit_record(record)
