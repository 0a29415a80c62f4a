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
            "added_variables": {"CUDA_INJECTION64_PATH": "libinjection.so"},
        },
        "torch_deterministic_mode": "error",
        "before_metadata": metadata(seed["energy"]["before_metadata"]),
        "timing": {"clock": "monotonic", "scope": "task", "repeat_ms": [812, 812.5]},
        "trace": {
            **trace_facts(),
            "same_process_chain_heads_matched": True,
            "kept_step": {"epoch": 1, "step": 17, "file": "result.step.npz", "file_sha256": digest(31)},
            **trace_file("result.trace"),
        },
    }


def trace_facts() -> Json:
    """What a record says of its trace: two epochs of 79 steps, two tensors in each."""
    return {
        "epochs": 2,
        "steps_per_epoch": 79,
        "tensors": ["gradients.weights.0", "parameters.weights.0"],
        "chain_heads": [digest(32), digest(33)],
    }


def trace_file(name: str) -> Json:
    return {"file": name, "file_sha256": digest(34)}


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
        "ncu": None,
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


def ncu_run_record() -> Json:
    """A version 2 run record of a range that Nsight Compute counted; one counter could not be read."""

    def counter(quantity: str, metric: str, printed: str, unit: str, value: Any) -> Json:
        return {
            "quantity": quantity,
            "metric": metric,
            "printed": printed,
            "printed_unit": unit,
            "unit": unit,
            "value": value,
        }

    metrics = [
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
        "lts__t_sectors_op_read.sum",
        "lts__t_sectors_op_write.sum",
        "lts__t_sector_hit_rate.pct",
    ]
    record = cuda_run_record()
    record["command"] = ["ncu", "--metrics", ",".join(metrics), "--csv", *record["command"]]
    record["action"] = record["result"]["mode"] = "profile"
    record["result"] |= {"energy": None, "timing": None}
    record["result"]["profile"] = {
        "scope": "task",
        "repeats": 16,
        "warmup_tasks": 2,
        "range": "cudaProfilerStart/cudaProfilerStop",
        "operators": dict(UNAVAILABLE),
    }
    record["ncu"] = {
        "command": ["ncu", "--metrics", ",".join(metrics), "--csv"],
        "counters": [
            counter("dram_read", metrics[0], "52,088,576", "byte", 52_088_576),
            counter("dram_write", metrics[1], "n/a", "byte", dict(UNAVAILABLE)),
            counter("l2_read", metrics[2], "429,809,710", "sector", 429_809_710),
            counter("l2_write", metrics[3], "226,110,828", "sector", 226_110_828),
            counter("l2_hit_rate", metrics[4], "95.45", "%", 95.45),
        ],
        "passes": 2,
        "device_attributes": {"CC": "8.0"},
        "traffic": {
            "scope": "task",
            "repeats": 16,
            "dram_read_bytes": 3_255_536,
            "dram_write_bytes": dict(UNAVAILABLE),
            "l2_read_bytes": 859_619_420,
            "l2_write_bytes": 452_221_656,
            "l2_hit_rate_percent": 95.45,
        },
        "report": {"file": "profile.ncu-rep", "sha256": digest(30)},
        "supported_metrics": {"file": "ncu-query-metrics.txt", "sha256": digest(31)},
        "messages": ["a warning"],
    }
    return record


def uncounted_run_record() -> Json:
    """The same where Nsight Compute ran and counted nothing."""
    record = ncu_run_record()
    for name in ("counters", "passes", "traffic", "report", "supported_metrics"):
        record["ncu"][name] = dict(UNAVAILABLE)
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
                "trace": {**trace_facts(), **trace_file("digits-native-cpu-000000000022.trace")},
                "runs": [
                    {"finished_at_utc": moment, "record_sha256": digest(14)},
                    {"finished_at_utc": moment, "record_sha256": digest(15)},
                ],
            }
        ],
        "content_sha256": digest(16),
    }


def protocol() -> Json:
    """A protocol of two draws."""
    return {
        "kind": "protocol",
        "schema_version": 1,
        "name": "mnist-medium",
        "numerics": "portable",
        "device": "cpu",
        "workspace": ":16:8",
        "threads": 1,
        "processes": 2,
        "required_accuracy_percent": 88.0,
        "data": {"kind": "mnist", "draws": [0, 1]},
        "config": dict(CONFIG),
    }


def digits_protocol() -> Json:
    data = {"kind": "digits", "seeds": [2026091400], "train_count": 1297}
    return {**protocol(), "name": "digits", "data": data}


def synthetic_protocol() -> Json:
    data = {"kind": "synthetic", "seeds": [11, 12], "train_count": 300, "query_count": 100}
    return {**protocol(), "name": "synthetic", "data": data}


def qualification_plan() -> Json:
    """The plan of the protocol of two draws."""
    cases = [{**case(f"mnist-{draw}"), "data": {"kind": "mnist", "draw": draw}} for draw in (0, 1)]
    return {
        "kind": "qualification-plan",
        "schema_version": 1,
        "qualgate_version": "0.1.0",
        "protocol": protocol(),
        "protocol_sha256": digest(31),
        "settings": settings(),
        "cases": [{**item, "numerics": "portable"} for item in cases],
        "source_sha256": {"task.py": digest(12), "numerics/native.py": digest(13)},
        "content_sha256": digest(32),
    }


def qualification_scores() -> Json:
    return {
        "kind": "qualification-scores",
        "schema_version": 1,
        "frozen_file": "frozen/mnist-medium-portable-000000000033.json",
        "frozen_sha256": digest(33),
        "draws": [
            {
                "case": f"mnist-{draw}",
                "predictions_sha256": digest(34 + draw),
                "query_labels_sha256": digest(36 + draw),
                "score": {"correct": correct, "total": 10000},
            }
            for draw, correct in ((0, 8887), (1, 8916))
        ],
    }


def qualification_verdict() -> Json:
    """The published scores of two draws: 88.87 and 89.16 %; half of their difference over the root of 2."""
    return {
        "kind": "qualification-verdict",
        "schema_version": 1,
        "name": "mnist-medium",
        "scores_sha256": digest(38),
        "required_accuracy_percent": 88.0,
        "draws": [
            {
                "case": "mnist-0",
                "score": {"correct": 8887, "total": 10000},
                "accuracy_percent": 88.87,
                "reached": True,
            },
            {
                "case": "mnist-1",
                "score": {"correct": 8916, "total": 10000},
                "accuracy_percent": 89.16,
                "reached": True,
            },
        ],
        "score": {"correct": 17803, "total": 20000},
        "mean_accuracy_percent": 89.015,
        "sample_sd_percent": 0.20506096654409877,
        "passed": True,
    }


def one_draw_verdict() -> Json:
    """A verdict on one draw, which has no spread."""
    value = qualification_verdict()
    return {
        **value,
        "draws": value["draws"][:1],
        "score": {"correct": 8887, "total": 10000},
        "mean_accuracy_percent": 88.87,
        "sample_sd_percent": {"unavailable": "one draw has no spread", "remedy": "name more draws"},
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


def study() -> Json:
    """A study of three workspaces: a baseline, one that differs and costs less, and one that failed."""
    return {
        "kind": "study",
        "schema_version": 1,
        "qualgate_version": "0.1.0",
        "case": case(),
        "started_at_utc": "2026-09-15T08:00:00.000000+00:00",
        "finished_at_utc": "2026-09-15T08:10:00.000000+00:00",
        "processes": 2,
        "baseline": ":4096:8",
        "rows": [
            {
                "setting": ":4096:8",
                "settings": {**settings(), "device": "cuda", "workspace": ":4096:8"},
                "records": [{"file": "4096-8.1/record.json", "file_sha256": digest(23)}],
                "failure": None,
                "bits": {
                    "same_in_every_process": True,
                    "level_reached": "bitwise",
                    "compared_fields": 26,
                    "differing_fields": 0,
                    "first_difference": None,
                },
                "memory": {
                    "counted": "allocated",
                    "peak_bytes": 82_509_824,
                    "live_bytes": 81_084_416,
                    "peak_reduction": 1.0,
                    "live_reduction": 1.0,
                },
                "ms_per_task": {"process_values": [37.9, 38.1], "mean": 38.0, "ratio": None},
                "idle_adjusted_mj_per_task": dict(UNAVAILABLE),
            },
            {
                "setting": ":16:8",
                "settings": {**settings(), "device": "cuda"},
                "records": [{"file": "16-8.1/record.json", "file_sha256": digest(24)}],
                "failure": None,
                "bits": {
                    "same_in_every_process": False,
                    "level_reached": "predictions",
                    "compared_fields": 26,
                    "differing_fields": 14,
                    "first_difference": {
                        "field": f"final_parameter_sha256.{MATRIX}",
                        "expected": digest(21),
                        "found": digest(22),
                        "values_equal": False,
                    },
                },
                "memory": {
                    "counted": "allocated",
                    "peak_bytes": 15_663_104,
                    "live_bytes": 14_237_696,
                    "peak_reduction": dict(UNAVAILABLE),
                    "live_reduction": dict(UNAVAILABLE),
                },
                "ms_per_task": {"process_values": [38.8, 38.9], "mean": 38.85, "ratio": dict(UNAVAILABLE)},
                "idle_adjusted_mj_per_task": {
                    "process_values": [1003.5, -1.5],
                    "mean": 501,
                    "ratio": {
                        "estimate": 1.25,
                        "lower_95": 0.75,
                        "upper_95": 2.5,
                        "degrees_of_freedom": 1.5,
                        "verdict": "ambiguous",
                    },
                },
            },
            {
                "setting": ":0:0",
                "settings": {**settings(), "device": "cuda", "workspace": ":0:0"},
                "records": [],
                "failure": "the fixture ended with exit code 1",
                "bits": dict(UNAVAILABLE),
                "memory": dict(UNAVAILABLE),
                "ms_per_task": dict(UNAVAILABLE),
                "idle_adjusted_mj_per_task": dict(UNAVAILABLE),
            },
        ],
        "left_out": [{"setting": "4/AVX2", "reason": "4 threads on 2 CPU(s)"}],
    }


def validation() -> Json:
    """A validation in which one tensor has another number, one a NaN, and the repetition other bits."""

    def check(name: str, kind: str, **changes: Any) -> Json:
        sound = {
            "name": f"epoch 0, step 2, {name}",
            "kind": kind,
            "reference": "float64",
            "elements": 1681,
            "largest_absolute_error": 1.25e-7,
            "largest_ratio": 0.25,
            "passed": True,
        }
        return {**sound, **changes}

    result = fixture_result()
    nothing = {"largest_absolute_error": None, "largest_ratio": None, "passed": False}
    again = {"reference": "first run", "largest_absolute_error": 1e-7}
    return {
        "kind": "validation",
        "schema_version": 1,
        "completed_at_utc": "2026-09-15T08:00:00.000000+00:00",
        "passed": False,
        "device": "cpu",
        "absolute_tolerance": 2e-5,
        "relative_tolerance": 3e-3,
        "train_count": 19,
        "test_count": 7,
        "cases": [
            {
                "numerics": "native",
                "config": dict(CONFIG),
                "checks": [
                    check("core.final", "forward"),
                    check("gradients.weights.3", "gradients", largest_ratio=12.5, passed=False),
                    check("velocities.weights.3", "velocities", **nothing),
                    check("parameters.weights.3", "parameters", reference="float32"),
                    check("kept, velocity.0", "repetition", **(nothing | again)),
                ],
            }
        ],
        **{name: result[name] for name in ("source_sha256", "software", "platform", "environment")},
    }


def retirement() -> Json:
    return {
        "kind": "retirement",
        "schema_version": 1,
        "file": "digits-native-cpu-000000000022.json",
        "file_sha256": digest(37),
        "retired_at_utc": "2026-09-15T08:00:00.000000+00:00",
        "reason": "the machines are gone",
        "qualgate_version": "0.1.0",
        "content_sha256": digest(38),
    }


def bisection() -> Json:
    return {
        "kind": "bisection",
        "schema_version": 1,
        "first": "one-run",
        "second": "another-run",
        "divergence": {
            "epoch": 1,
            "step": 17,
            "tensor": "gradients.weights.2",
            "expected": digest(35)[32:],
            "found": digest(36)[32:],
        },
        "difference": {
            "tensor": "gradients.weights.2",
            "dtype": "float32",
            "shape": [41, 41],
            "elements": 1681,
            "differing": 3,
            "largest_ulp_distance": 2,
            "index": [7, 11],
            "first": "0.25",
            "second": "0.25000006",
        },
        "kept_files": ["qualgate-runs/one/result.step.npz"],
        "notes": ["one-run run again gave other bits than its record"],
    }


def audit_report() -> Json:
    """An audit that found one lie."""
    return {
        "kind": "audit",
        "schema_version": 1,
        "sound": False,
        "files": [
            {
                "record_file": "runs/one/record.json",
                "record_kind": "run-record.v2",
                "rules": 98,
                "checks": 829,
                "artefacts": 29,
                "findings": [
                    {
                        "rule": "memory.added-peak",
                        "path": "$.result.memory.added_peak_over_entry_resident_bytes",
                        "expected": "1024",
                        "found": "2048",
                    }
                ],
            }
        ],
    }


def verdict() -> Json:
    difference = {
        "field": f"final_parameter_sha256.{MATRIX}",
        "expected": digest(21),
        "found": digest(22),
        "values_equal": False,
    }
    divergence = {
        "epoch": 1,
        "step": 17,
        "tensor": "gradients.weights.2",
        "expected": digest(35)[32:],
        "found": digest(36)[32:],
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
        "first_divergence": divergence,
        "groups": [{"group": "final_parameter_sha256", "fields": 6, "differences": [difference]}],
        "other_differences": [{**difference, "field": "config.depth", "values_equal": None}],
        "difference_kind": "change",
        "repetition": {
            "same_bits": False,
            "differences": [difference],
            "first_divergence": {**divergence, "step": None, "tensor": None},
        },
        "source_changes": [{**change, "what": "task.py"}],
        "stack_changes": [change],
        "kernel_changes": [{**change, "what": "matmul"}],
        "notes": ["the stack moved"],
    }
