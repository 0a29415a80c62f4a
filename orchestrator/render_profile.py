"""A profiled run as a person reads it: counters and what they tell, or operators, or the cause. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.models import CacheTraffic, NcuCounter, NcuProfile, OperatorTime, RunRecord, Unavailable
from orchestrator.render import new_table

_OPERATORS_SHOWN = 20
_QUANTITIES = {
    "dram_read": "DRAM read",
    "dram_write": "DRAM written",
    "l2_read": "L2 read",
    "l2_write": "L2 written",
    "l2_hit_rate": "L2 hit rate",
}


def profile_table(record: RunRecord) -> RenderableType:
    """The findings of a run in mode `profile`."""
    if isinstance(record.ncu, NcuProfile):
        return _counters(record, record.ncu)
    if record.ncu is not None:
        return Text(_cause(record.ncu))
    profile = None if record.result is None else record.result.profile
    if profile is None:
        return Text("not measured: the run left no profile")
    if isinstance(profile.operators, Unavailable):
        return Text(_cause(profile.operators))
    return _operators(record, profile.operators)


def _cause(found: Unavailable) -> str:
    return f"not measured: {found.unavailable}" + (f"; {found.remedy}" if found.remedy else "")


def _table(record: RunRecord, per: str) -> Table:
    device = (record.result and record.result.gpu) or record.settings.device
    return new_table(f"{record.case.name} · {record.case.numerics} · {device} · {per}")


def _counters(record: RunRecord, found: NcuProfile) -> RenderableType:
    if isinstance(found.counters, Unavailable):
        return Text(_cause(found.counters))
    traffic = found.traffic
    per = f"one {record.scope}"
    table = _table(record, f"workspace {record.workspace}, scope {record.scope}")
    table.add_column("quantity")
    table.add_column("metric", overflow="fold")
    table.add_column("printed by ncu", justify="right")
    table.add_column(per, justify="right")
    for counter in found.counters:
        printed = f"{counter.printed} {counter.printed_unit}".strip()
        table.add_row(_QUANTITIES[counter.quantity], counter.metric, printed, _derived(counter, traffic))
    causes = [item for item in (c.value for c in found.counters) if isinstance(item, Unavailable)]
    causes += [item for item in (traffic, found.passes, found.report) if isinstance(item, Unavailable)]
    lines = [Text(_cause(item)) for item in causes]
    if isinstance(traffic, CacheTraffic):
        passes = "" if isinstance(found.passes, Unavailable) else f", collected in {found.passes} pass(es)"
        lines.insert(0, Text(f"{traffic.repeats} {record.scope}(s) in the range{passes}"))
    return Group(table, *lines)


def _derived(counter: NcuCounter, traffic: CacheTraffic | Unavailable) -> str:
    if isinstance(traffic, Unavailable):
        return "not measured"
    value, unit = {
        "dram_read": (traffic.dram_read_bytes, "B"),
        "dram_write": (traffic.dram_write_bytes, "B"),
        "l2_read": (traffic.l2_read_bytes, "B"),
        "l2_write": (traffic.l2_write_bytes, "B"),
        "l2_hit_rate": (traffic.l2_hit_rate_percent, "%"),
    }[counter.quantity]
    return "not measured" if isinstance(value, Unavailable) else f"{value:,} {unit}"


def _operators(record: RunRecord, operators: Sequence[OperatorTime]) -> RenderableType:
    table = _table(record, f"{record.scope}, all repeats")
    table.add_column("operator", overflow="fold")
    for name in ("calls", "self time", "allocated"):
        table.add_column(name, justify="right")
    for row in operators[:_OPERATORS_SHOWN]:
        table.add_row(
            row.operator, f"{row.calls:,}", f"{row.self_time_us / 1000:.3f} ms", f"{row.allocated_bytes:,} B"
        )
    left_out = len(operators) - _OPERATORS_SHOWN
    note = [Text(f"{left_out} more operators are in the record")] if left_out > 0 else []
    return Group(table, *note)
