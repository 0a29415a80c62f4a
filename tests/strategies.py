"""What several tests build from: the seed's records, sound version 2 records, and JSON strategies.

The version 2 samples are made from the seed's own values, so that they are as real as records can be on
a machine that has not run one; a field that the seed lacks is written out here.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

DATA = Path(__file__).parent / "data"
SEED = DATA / "a100-measure-task.json"
DRAWS = DATA / "mnist-medium-draws.json"

Json = dict[str, Any]

MATRIX = "weights.0"
UNAVAILABLE: Json = {"unavailable": "a CPU has no such counter", "remedy": "run on a CUDA device"}
CONFIG: Json = {
    "alpha": 0.5,
    "batch_size": 128,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "seed": 11,
    "depth": 2,
    "epochs": 2,
    "learning_rate": 0.1,
}


def digest(number: int) -> str:
    """A well-formed SHA-256 text that is not the digest of anything."""
    return f"{number:064x}"


# --- JSON values ---------------------------------------------------------------------------------

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | finite_floats
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


# --- records -------------------------------------------------------------------------------------


def seed_run() -> Json:
    """The seed run record, parsed."""
    value: Json = json.loads(SEED.read_bytes())
    return value


def published_draws() -> Json:
    """The published table of draws, parsed."""
    value: Json = json.loads(DRAWS.read_bytes())
    return value


def thin(value: Any) -> Any:
    """The same record with every list and every map of hashes cut to one: all its kinds of places."""
    if isinstance(value, list):
        return [thin(item) for item in value[:1]]
    if not isinstance(value, dict):
        return value
    kept = list(value.items())
    if all(isinstance(item, str) and len(item) == 64 for item in value.values()) and MATRIX in value:
        kept = kept[:1]
    return {key: thin(item) for key, item in kept}


def array_facts(number: int, *shape: int) -> Json:
    return {"dtype": "float32", "shape": list(shape), "value_sha256": digest(number)}


def metadata(source: Json) -> Json:
    """Version 2 metadata from version 1's."""
    arrays = {
        "input_hashes.train_images": array_facts(1, 10000, 81),
        f"initial_parameter_sha256.{MATRIX}": array_facts(2, 41, 41),
        f"final_parameter_sha256.{MATRIX}": array_facts(3, 41, 41),
        "scores_sha256": array_facts(4, 10000, 10),
    }
    return {**copy.deepcopy(source), "arrays": arrays}


def platform() -> Json:
    """A CPU platform."""
    return {
        "device": "cpu",
        "machine": "x86_64",
        "cpu_vendor": "AuthenticAMD",
        "cpu_model": "AMD EPYC 7763",
        "torch": "2.13.0+cpu",
        "numpy": "2.2.6",
        "blas": "mkl 2024.2",
        "mkl_cbwr": "AVX2",
        "onednn": "3.7.1",
        "onednn_isa": "AVX2",
        "vector": "AVX2",
        "threads": 1,
        "numpy_dispatch": ["AVX2", "FMA3"],
        "gpu": None,
        "compute_capability": None,
        "cuda": None,
        "cublas": None,
        "driver": None,
        "workspace": ":16:8",
        "kernel_probes": {"matmul": digest(5), "exp": digest(6)},
    }


def cuda_platform() -> Json:
    """The platform that the seed ran on, in version 2's words."""
    return {
        **platform(),
        "device": "cuda",
        "torch": "2.5.1+cu124",
        "gpu": "NVIDIA A100-SXM4-40GB",
        "compute_capability": "8.0",
        "cuda": "12.4",
        "cublas": "12.4.5.8",
        "driver": "580.95.05",
    }


def settings() -> Json:
    return {
        "device": "cpu",
        "workspace": ":16:8",
        "threads": 1,
        "vector": "avx2",
        "onednn_isa": "AVX2",
        "mkl_cbwr": "AVX2",
    }


def case(name: str = "mnist-0") -> Json:
    return {
        "name": name,
        "data": {"kind": "mnist", "draw": 0},
        "config": dict(CONFIG),
        "numerics": "native",
    }


def process_memory() -> Json:
    return {
        "resident_before_prepare_bytes": 210_000_000,
        "resident_after_prepare_bytes": 230_000_000,
        "prepare_and_invoke_peak_resident_bytes": 260_000_000,
        "resident_after_invoke_bytes": 240_000_000,
        "peak_covers_whole_process": False,
        "scope": "the task process",
        "added_peak_over_entry_resident_bytes": 50_000_000,
    }


def fixture_result() -> Json:
    """A version 2 result of a CPU run."""
    seed: Json = thin(seed_run())["result"]
    inventory = {
        **seed["buffer_inventory"],
        "allocator_allocated_bytes": dict(UNAVAILABLE),
        "allocated_bytes_without_named_storage_reference": dict(UNAVAILABLE),
    }
    return {
        **seed,
        "schema_version": 2,
        "software": {**seed["software"], "cuda": None},
        "gpu": None,
        "cuda_device_index": None,
        "memory": process_memory(),
        "buffer_inventory": inventory,
        "energy": None,
        "metadata": metadata(seed["metadata"]),
        "device": "cpu",
        "numerics": {"name": "native", "version": 1},
        "platform": platform(),
        "environment": {
            "source": "the process's environment block",
            "variables": {"OMP_NUM_THREADS": "1", "EMPTY": ""},
            "sha256": digest(7),
            "expected_sha256": digest(7),
            "changed_during_run": ["KMP_INIT_AT_FORK"],
        },
        "torch_deterministic_mode": "error",
        "before_metadata": metadata(seed["energy"]["before_metadata"]),
        "timing": {"clock": "monotonic", "scope": "task", "repeat_ms": [812, 812.5]},
    }


def nvml_energy() -> Json:
    """Version 2's form of the seed's energy measurement."""
    seed: Json = thin(seed_run())["result"]["energy"]
    measured = seed["software"]
    software = {
        **{key: measured[key] for key in ("python", "torch", "cuda", "numpy", "nvidia_ml_py")},
        "pynvml_file": "site-packages/pynvml.py",
        "pynvml_is_nvidia_ml_py": True,
    }
    return {
        **seed,
        "software": software,
        "before_metadata": metadata(seed["before_metadata"]),
        "after_metadata": metadata(seed["after_metadata"]),
        "meter": "nvml",
        "quality": {
            "counter": {
                "update_period_s": 0.02,
                "smallest_step_mj": 1,
                "fewest_updates_in_an_interval": 150,
                "required_updates": 20,
            },
            "idle_adjusted_mj_per_task": {
                "confidence_95_low": 900.5,
                "confidence_95_high": 1130.5,
                "relative_spread": 0.05,
                "allowed_relative_spread": 0.1,
            },
            "needs_more_trials": False,
            "cross_check": {
                "trials": [
                    {
                        "trial": 0,
                        "idle_sampled_over_counter": 0.99,
                        "active_sampled_over_counter": 1.01,
                    }
                ],
                "largest_relative_difference": 0.01,
                "tolerance": 0.2,
                "agrees": True,
            },
            "throttle_reasons": [
                {"trial": 0, "before": ["gpu_idle"], "after": ["sw_power_cap"]},
            ],
        },
    }


def rapl_energy() -> Json:
    """The same numbers as a RAPL meter would record them: no clocks, no cross-check."""
    energy = nvml_energy()
    for trial in energy["trials"]:
        for side in ("telemetry_before", "telemetry_after"):
            trial[side] = {
                "temperature_c": None,
                "power_w": None,
                "graphics_clock_mhz": None,
                "memory_clock_mhz": None,
            }
    energy["hardware"] = {
        "cpu": "AMD EPYC 7763",
        "domains": [{"name": "package-0", "zone": "intel-rapl:0", "max_energy_range_uj": 65532610987}],
        "assumed_max_domain_power_w": 400,
    }
    energy["software"] = {
        "python": "3.11.15",
        "torch": "2.13.0+cpu",
        "cuda": None,
        "numpy": "2.2.6",
        "kernel": "6.1.0",
    }
    energy["meter"] = "rapl"
    energy["quality"]["cross_check"] = dict(UNAVAILABLE)
    energy["quality"]["throttle_reasons"] = [{"trial": 0, "before": None, "after": None}]
    return energy


def stream(name: str) -> Json:
    return {"file": name, "size_bytes": 12, "sha256": digest(8), "text_is_complete": True}


def run_record() -> Json:
    """A version 2 run record of a CPU run."""
    seed = seed_run()
    return {
        **{key: seed[key] for key in ("workspace", "action", "scope", "command", "returncode")},
        "stdout": "trained\n",
        "stderr": "",
        "capabilities": {
            "ncu_version": dict(UNAVAILABLE),
            "nvidia_driver": dict(UNAVAILABLE),
            "cpu": {
                "architecture": "x86_64",
                "vendor": "AuthenticAMD",
                "model_name": "AMD EPYC 7763",
                "vector_units": ["avx2"],
                "logical_cpus": 8,
                "affinity_cpus": 4,
            },
        },
        "finished_at_utc": seed["finished_at_utc"],
        "input_sha256": seed["input_sha256"],
        "result": fixture_result(),
        "kind": "run",
        "schema_version": 2,
        "qualgate_version": "0.1.0",
        "case": case(),
        "settings": settings(),
        "environment": {"variables": {"OMP_NUM_THREADS": "1"}, "sha256": digest(7)},
        "started_at_utc": "2026-09-14T23:52:00.000000+00:00",
        "duration_s": 76.1,
        "timed_out": False,
        "streams": {"stdout": stream("stdout.txt"), "stderr": stream("stderr.txt")},
        "artefact_sha256": {"result.json": digest(9), "out/result.predictions.npy": digest(10)},
        "score": {"correct": 9349, "total": 10000},
        "failure": None,
    }


def cuda_run_record() -> Json:
    """A version 2 run record as a CUDA device with an energy counter would leave it."""
    record, seed = run_record(), thin(seed_run())["result"]
    record["capabilities"] |= {"ncu_version": "2025.1.1", "nvidia_driver": "580.95.05"}
    record["settings"]["device"] = "cuda"
    record["result"] |= {
        "software": seed["software"],
        "gpu": seed["gpu"],
        "cuda_device_index": 0,
        "memory": seed["memory"],
        "buffer_inventory": seed["buffer_inventory"],
        "energy": nvml_energy(),
        "device": "cuda",
        "platform": cuda_platform(),
    }
    return record


def profile_run_record() -> Json:
    """A version 2 run record of a CPU profile; energy was asked for and could not be had."""
    record = run_record()
    record["result"] |= {
        "memory": dict(UNAVAILABLE),
        "cache_reference": dict(UNAVAILABLE),
        "energy": dict(UNAVAILABLE),
        "profile": {
            "scope": "training",
            "repeats": 1,
            "warmup_tasks": 2,
            "range": "one training",
            "operators": [
                {"operator": "aten::mm", "calls": 948, "self_time_us": 5120.5, "allocated_bytes": -16},
            ],
        },
    }
    record["score"] = dict(UNAVAILABLE)
    record["capabilities"]["cpu"] = dict(UNAVAILABLE)
    return record


def rapl_run_record() -> Json:
    """A version 2 run record with a RAPL measurement, and a profile that named no operators."""
    record = run_record()
    record["result"]["energy"] = rapl_energy()
    record["result"]["profile"] = {
        "scope": "task",
        "repeats": 1,
        "warmup_tasks": 2,
        "range": "one task",
        "operators": dict(UNAVAILABLE),
    }
    return record


def failed_run_record() -> Json:
    """A version 2 run record of a run that ended with an error."""
    return {
        **run_record(),
        "returncode": -9,
        "result": None,
        "score": dict(UNAVAILABLE),
        "failure": "the task process was killed by signal 9",
    }


def qualification() -> Json:
    """A frozen record of one case."""
    result = fixture_result()
    groups = (
        "input_hashes",
        "initial_parameter_sha256",
        "epoch_permutation_sha256",
        "final_parameter_sha256",
        "final_velocity_sha256",
        "state_vector_sha256",
        "scores_sha256",
        "predictions_sha256",
    )
    moment = "2026-09-15T08:00:00.000000+00:00"
    return {
        "kind": "qualification",
        "schema_version": 1,
        "name": "mnist-cpu",
        "frozen_at_utc": moment,
        "reason": "first qualification",
        "supersedes": {"file": "mnist-cpu.1.json", "file_sha256": digest(11)},
        "qualgate_version": "0.1.0",
        "numerics": {"name": "native", "version": 1},
        "platform_key": {"numerics": "native 1", "device": "cpu", "threads": "1"},
        "platform": platform(),
        "software": result["software"],
        "source_sha256": {"task.py": digest(12), "numerics/native.py": digest(13)},
        "levels": ["bitwise", "predictions"],
        "cases": [
            {
                "case": case(),
                "settings": settings(),
                "hashes": {group: result["metadata"][group] for group in groups},
                "arrays": result["metadata"]["arrays"],
                "config_file_sha256": result["config_file_sha256"],
                "predictions_file_sha256": result["predictions_file_sha256"],
                "train_count": 10000,
                "test_count": 10000,
                "score": {"correct": 9349, "total": 10000},
                "runs": [
                    {"finished_at_utc": moment, "record_sha256": digest(14)},
                    {"finished_at_utc": moment, "record_sha256": digest(15)},
                ],
            }
        ],
        "content_sha256": digest(16),
    }


def data_manifest() -> Json:
    return {
        "kind": "data",
        "schema_version": 1,
        "data": {"kind": "digits", "seed": 2026091400, "train_count": 1297},
        "train_count": 1297,
        "test_count": 500,
        "input_sha256": seed_run()["input_sha256"],
        "archive_file": "input.npz",
        "archive_sha256": digest(17),
        "query_labels_file": "query-labels.npy",
        "query_labels_sha256": digest(18),
        "train_indices_sha256": digest(19),
        "test_indices_sha256": digest(20),
    }


def verdict() -> Json:
    difference = {
        "field": f"final_parameter_sha256.{MATRIX}",
        "expected": digest(21),
        "found": digest(22),
        "values_equal": False,
    }
    change = {"what": "torch", "frozen": "2.5.1", "found": "2.13.0"}
    return {
        "kind": "verdict",
        "schema_version": 1,
        "case": "mnist-0",
        "level_asked": "bitwise",
        "level_reached": "predictions",
        "qualified": False,
        "expected": "mnist-cpu.json",
        "found": "run.json",
        "first_difference": difference,
        "groups": [{"group": "final_parameter_sha256", "fields": 6, "differences": [difference]}],
        "other_differences": [{**difference, "field": "config.depth", "values_equal": None}],
        "difference_kind": "change",
        "repetition": {"same_bits": True, "differences": [difference]},
        "source_changes": [{**change, "what": "task.py"}],
        "stack_changes": [change],
        "kernel_changes": [{**change, "what": "matmul"}],
        "notes": ["the stack moved"],
    }
