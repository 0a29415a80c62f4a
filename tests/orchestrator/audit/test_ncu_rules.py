"""Lies about Nsight Compute's findings, one at a time, each found by its rule at its place."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.audit.findings import Findings
from orchestrator.audit.ncu import audit_ncu
from orchestrator.models import RunRecord
from orchestrator.ncu import QUANTITIES
from tests import strategies as samples
from tests.strategies import Json

METRICS = [metric for quantity in QUANTITIES for metric in quantity.metrics[:1]]


def record() -> Json:
    value = samples.ncu_run_record()
    for kept in (value["ncu"]["report"], value["ncu"]["supported_metrics"]):
        value["artefact_sha256"][kept["file"]] = kept["sha256"]
    return value


def findings(value: Json) -> list[tuple[str, str]]:
    found = Findings()
    audit_ncu(RunRecord.model_validate(value), "$", found)
    return [(item.rule, item.path) for item in found.found]


@pytest.mark.parametrize(
    "build",
    [record, samples.uncounted_run_record, samples.run_record, samples.failed_run_record],
    ids=["counted", "uncounted", "measured", "failed"],
)
def test_sound_records_have_no_findings(build: Any) -> None:
    assert findings(build()) == []


@pytest.mark.parametrize(
    ("place", "lie", "rule", "where"),
    [
        pytest.param("counters.0.value", 52_088_577, "ncu.value", "counters[0].value", id="value"),
        pytest.param("counters.0.printed", "1", "ncu.value", "counters[0].value", id="printed"),
        pytest.param("counters.0.printed_unit", "Kbyte", "ncu.value", "counters[0].value", id="printed-unit"),
        pytest.param("counters.2.unit", "byte", "ncu.unit", "counters[2].unit", id="unit"),
        pytest.param("counters.3.metric", METRICS[2], "ncu.metric", "counters[3].metric", id="metric"),
        pytest.param("counters.1.quantity", "dram_read", "ncu.quantities", "counters", id="quantity"),
        pytest.param(
            "traffic.dram_read_bytes", 3_255_537, "ncu.traffic", "traffic.dram_read_bytes", id="dram"
        ),
        pytest.param(
            "traffic.l2_read_bytes", 26_863_106, "ncu.traffic", "traffic.l2_read_bytes", id="sectors"
        ),
        pytest.param("traffic.dram_write_bytes", 0, "ncu.traffic", "traffic.dram_write_bytes", id="zero"),
        pytest.param("traffic.repeats", 1, "ncu.repeats", "traffic.repeats", id="repeats"),
        pytest.param("traffic.scope", "training", "ncu.scope", "traffic.scope", id="scope"),
        pytest.param("device_attributes.CC", "9.0", "ncu.device", "traffic", id="device"),
        pytest.param("report.sha256", samples.digest(99), "ncu.files", "report.sha256", id="report"),
        pytest.param("command.1", "--metric", "ncu.command", "command[1]", id="command"),
        pytest.param("counters", dict(samples.UNAVAILABLE), "ncu.traffic", "traffic", id="no-counters"),
    ],
)
def test_a_lie_is_found_by_its_rule(place: str, lie: Any, rule: str, where: str) -> None:
    value = record()
    *keys, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
    holder = value["ncu"]
    for key in keys:
        holder = holder[key]
    assert holder[last] != lie
    holder[last] = lie
    assert (rule, f"$.ncu.{where}") in findings(value)


def test_a_measurement_has_no_counters() -> None:
    assert ("ncu.mode", "$.ncu") in findings({**record(), "action": "measure"})
