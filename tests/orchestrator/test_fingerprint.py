"""The platform key: every fact that moves bits is in it, and nothing that does not."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.fingerprint import changes, key_text, platform_key
from orchestrator.models import NumericsVersion, Platform
from tests import strategies as samples

NATIVE = NumericsVersion(name="native", version=1)


def key(build: str = "cpu", **facts: Any) -> dict[str, str]:
    sound = samples.platform() if build == "cpu" else samples.cuda_platform()
    return platform_key(Platform.model_validate({**sound, **facts}), NATIVE)


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("machine", "aarch64"),
        ("cpu_vendor", "GenuineIntel"),
        ("torch", "2.13.1+cpu"),
        ("blas", "openblas 0.3.30"),
        ("mkl_cbwr", "COMPATIBLE"),
        ("onednn", "3.8.0"),
        ("onednn_isa", "AVX512_CORE"),
        ("vector", "AVX512"),
        ("threads", 2),
    ],
)
def test_on_a_cpu_a_fact_that_moves_bits_changes_the_key(fact: str, other: Any) -> None:
    assert key(**{fact: other}) != key()
    assert key(**{fact: other})[fact] == str(other)


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("cpu_model", "AMD EPYC 9654"),
        ("numpy", "2.3.0"),
        ("numpy_dispatch", ["AVX512_SKX"]),
        ("driver", "600.10"),
        ("gpu", "NVIDIA H200"),
        ("workspace", ":4096:8"),
        ("kernel_probes", {"matmul": samples.digest(1)}),
    ],
)
def test_on_a_cpu_any_other_fact_leaves_the_key(fact: str, other: Any) -> None:
    assert key(**{fact: other}) == key()


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("gpu", "NVIDIA H200"),
        ("compute_capability", "9.0"),
        ("torch", "2.6.0+cu124"),
        ("cuda", "12.6"),
        ("cublas", "12.6.1.4"),
        ("workspace", ":4096:8"),
    ],
)
def test_on_cuda_a_fact_that_moves_bits_changes_the_key(fact: str, other: Any) -> None:
    assert key("cuda", **{fact: other}) != key("cuda")
    assert key("cuda", **{fact: other})[fact] == str(other)


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("driver", "600.10"),
        ("numpy", "2.3.0"),
        ("cpu_model", "Intel Xeon"),
        ("cpu_vendor", "GenuineIntel"),
        ("threads", 16),
        ("vector", "AVX512"),
        ("mkl_cbwr", "COMPATIBLE"),
        # A faulty chip must fail the gate and not become another platform.
        ("kernel_probes", {"matmul": samples.digest(1)}),
    ],
)
def test_on_cuda_any_other_fact_leaves_the_key(fact: str, other: Any) -> None:
    assert key("cuda", **{fact: other}) == key("cuda")


def test_devices_and_numerics_versions_have_keys_of_their_own() -> None:
    facts = Platform.model_validate(samples.platform())
    later = platform_key(facts, NumericsVersion(name="native", version=2))
    assert later != key()
    assert later["numerics"] == "native 2"
    assert key()["device"] == "cpu"
    assert key("cuda")["device"] == "cuda"


def test_the_key_reads_as_one_line_that_begins_with_numerics_and_device() -> None:
    line = key_text(key())
    assert line.startswith("numerics native 1, device cpu, ")
    assert "threads 1" in line
    assert "\n" not in line


def test_changes_are_told_in_the_frozen_order_and_new_facts_last() -> None:
    found = changes({"z": 1, "a": "x", "same": [1], "gone": "y"}, {"new": 2, "a": "w", "same": [1], "z": 3})
    assert [(change.what, change.frozen, change.found) for change in found] == [
        ("z", "1", "3"),
        ("a", "x", "w"),
        ("gone", "y", None),
        ("new", None, "2"),
    ]


def test_equal_facts_have_no_changes_whatever_their_order() -> None:
    assert changes({"a": 1, "b": None}, {"b": None, "a": 1}) == []


@pytest.mark.parametrize(("frozen", "found"), [(None, ""), ("", None), ("1", 1)])
def test_a_change_is_by_value_and_not_by_its_text(frozen: object, found: object) -> None:
    assert len(changes({"a": frozen}, {"a": found})) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_portable_numerics_have_one_key_on_every_machine(version: int) -> None:
    numerics = NumericsVersion(name="portable", version=version)
    keys = [
        platform_key(Platform.model_validate(facts), numerics)
        for facts in (samples.platform(), samples.cuda_platform())
    ]
    assert keys == [{"numerics": f"portable {version}"}] * 2
