"""A profile by Nsight Compute in a run record: command, counters, traffic and files. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings
from orchestrator.json_text import member
from orchestrator.models import (
    CacheTraffic,
    EvidenceFile,
    NcuCounter,
    NcuProfile,
    RunRecord,
    Unavailable,
)
from orchestrator.ncu import QUANTITIES, Cell, cache_traffic, other_device, possible_values


def audit_ncu_profile(record: RunRecord, ncu: NcuProfile, place: str, found: Findings) -> None:
    """Every derived number follows from the counters."""
    found.same_items("ncu.command", f"{place}.command", ncu.command, record.command[: len(ncu.command)])
    _audit_files(record, ncu, place, found)
    if isinstance(ncu.counters, Unavailable):
        found.require(
            "ncu.traffic", f"{place}.traffic", isinstance(ncu.traffic, Unavailable), ncu.traffic, "none"
        )
        return
    quantities = [counter.quantity for counter in ncu.counters]
    expected = [quantity.name for quantity in QUANTITIES]
    found.equal("ncu.quantities", f"{place}.counters", quantities, expected)
    for index, counter in enumerate(ncu.counters):
        _audit_counter(ncu, counter, member(f"{place}.counters", index), found)
    if quantities == expected and isinstance(ncu.traffic, CacheTraffic):
        _audit_traffic(record, ncu, ncu.counters, ncu.traffic, f"{place}.traffic", found)


def _audit_files(record: RunRecord, ncu: NcuProfile, place: str, found: Findings) -> None:
    for name, kept in (("report", ncu.report), ("supported_metrics", ncu.supported_metrics)):
        if isinstance(kept, EvidenceFile):
            held = record.artefact_sha256.get(kept.file, "nothing")
            found.equal("ncu.files", f"{place}.{name}.sha256", kept.sha256, held)


def _audit_counter(ncu: NcuProfile, counter: NcuCounter, place: str, found: Findings) -> None:
    asked = ",".join(ncu.command).split(",")
    found.require("ncu.metric", f"{place}.metric", counter.metric in asked, counter.metric, "one asked for")
    known = {quantity.name: quantity for quantity in QUANTITIES}[counter.quantity]
    found.require(
        "ncu.metric", f"{place}.metric", counter.metric in known.metrics, counter.metric, known.metrics[0]
    )
    found.equal("ncu.unit", f"{place}.unit", counter.unit, known.unit)
    if isinstance(counter.value, Unavailable):
        return
    values = possible_values(Cell(counter.printed, counter.printed_unit), counter.unit)
    holds = any(counter.value in (value, float(value)) for value in values)
    found.require("ncu.value", f"{place}.value", holds, counter.value, sorted(map(str, values)))


def _audit_traffic(
    record: RunRecord,
    ncu: NcuProfile,
    counters: list[NcuCounter],
    traffic: CacheTraffic,
    place: str,
    found: Findings,
) -> None:
    found.equal("ncu.scope", f"{place}.scope", traffic.scope, record.scope)
    derived = cache_traffic(counters, traffic.scope, traffic.repeats)
    found.same_fields("ncu.traffic", place, traffic.model_dump(), derived.model_dump())
    if record.result is None:
        found.require("ncu.traffic", place, False, "traffic", "none, without a result")
        return
    if record.result.profile is not None:
        repeats = record.result.profile.repeats
        found.equal("ncu.repeats", f"{place}.repeats", traffic.repeats, repeats)
    attributes = {name: [Cell(text, "")] for name, text in ncu.device_attributes.items()}
    other = other_device(attributes, record.result)
    found.require("ncu.device", place, other is None, other and other.unavailable, "none, of another device")
