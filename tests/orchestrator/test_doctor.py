"""What `qualgate doctor` says of this machine and of the shipped records."""

from __future__ import annotations

import pytest

from orchestrator import doctor, probe
from orchestrator.availability import Unavailable


def facts() -> dict[str, doctor.Fact]:
    return {fact.what: fact for fact in doctor.examine()}


def test_what_is_missing_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "nvidia_driver", lambda: Unavailable("no NVML", "install the driver"))
    fact = facts()["NVIDIA driver"]
    assert fact == doctor.Fact("NVIDIA driver", False, "unavailable: no NVML", "install the driver")


def test_a_portable_record_applies_to_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "package_version", lambda name: "9.9")
    assert "this platform" in facts()["record digits-portable"].found


def test_a_native_record_of_another_stack_is_good_for_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "package_version", lambda name: "9.9")
    found = facts()["record digits-native-cpu"].found
    assert "level predictions at most" in found
    assert "torch" in found
    assert "here 9.9" in found
