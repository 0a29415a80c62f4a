"""Nsight Compute: its command line, its CSV pages, and the memory traffic that its counters tell. Pure.

Rules
- A page is found by its header names, wherever it stands in a stream that also holds `==PROF==` lines and
  the output of the profiled program. Both forms are read: raw (a row of units, then one row a range) and
  details (one row a metric). Columns are told by name: their number and order moved between versions.
- A cell is text first. It becomes a number only when its unit is known and it can be read in one way.
- What cannot be read is `Unavailable`, with its cause and what helps. No fault leaves a number behind.
- GPUs newer than the A100 can lack a metric: what `ncu --query-metrics` lists decides between its names.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from orchestrator.models import (
    CacheReference,
    CacheTraffic,
    FixtureResult,
    NcuCounter,
    NcuQuantity,
    NcuUnit,
    Scope,
    Unavailable,
)
from orchestrator.printed_numbers import DECIMAL_MARKS, DecimalMark, possible_marks, readings

SECTOR_BYTES: Final = 32
"""Bytes of one L2 sector."""

# --- the command line -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """One counted quantity, its unit, and the metrics that count it, the preferred one first."""

    name: NcuQuantity
    unit: NcuUnit
    metrics: tuple[str, ...]


QUANTITIES: Final = (
    Quantity("dram_read", "byte", ("dram__bytes_read.sum", "dram__bytes_op_read.sum")),
    Quantity("dram_write", "byte", ("dram__bytes_write.sum", "dram__bytes_op_write.sum")),
    Quantity("l2_read", "sector", ("lts__t_sectors_op_read.sum",)),
    Quantity("l2_write", "sector", ("lts__t_sectors_op_write.sum",)),
    Quantity("l2_hit_rate", "%", ("lts__t_sector_hit_rate.pct",)),
)


def supported_metrics(lines: Iterable[str]) -> frozenset[str]:
    """The metrics that `ncu --query-metrics` lists for the GPUs present, without `.sum` and the like."""
    matches = (re.match(r"\s*([a-z]\w*__\w+)\s", line) for line in lines)
    return frozenset(match[1] for match in matches if match is not None)


def choose_metrics(supported: frozenset[str]) -> dict[NcuQuantity, str]:
    """The metric to ask for each quantity: the first that is supported, else the preferred one.

    Asking for one that is not supported gives a page that says so.
    """
    return {
        quantity.name: next(
            (metric for metric in quantity.metrics if metric.partition(".")[0] in supported),
            quantity.metrics[0],
        )
        for quantity in QUANTITIES
    }


def ncu_command(ncu: str, metrics: Iterable[str], report: str) -> list[str]:
    """The command line that the fixture's own follows; the range is marked inside the fixture.

    Application replay repeats the whole process once a pass. Caches and clocks are left alone.
    """
    return [
        ncu,
        "--replay-mode", "app-range",
        "--cache-control", "none",
        "--clock-control", "none",
        "--metrics", ",".join(metrics),
        "--csv",
        "--page", "raw",
        "--force-overwrite",
        "--export", report,
    ]  # fmt: skip


# --- the output -----------------------------------------------------------------------------------

_MESSAGE: Final = re.compile(r"==(ERROR|WARNING|PROF)==\s*(\S.*)")
_HEADER: Final = re.compile(r'"ID","Process ID",')
_ROW: Final = re.compile(r'"[0-9]*",')
_NOTHING_PROFILED: Final = re.compile(r"No (kernels|ranges|metrics)\b", re.IGNORECASE)
_PASSES: Final = re.compile(r"Application replay pass ([0-9]{1,9})\b|- ([0-9]{1,9}) pass(?:es)?$")
_MAX_MESSAGES: Final = 50

_REMEDIES: Final = (
    (
        "ERR_NVGPUCTRPERM",
        "run as root or with CAP_SYS_ADMIN, or have the nvidia module loaded with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    ("lock", "have the lock file removed that another user left, or set TMPDIR to a folder of your own"),
    ("driver resource", "stop other profilers of this GPU, e.g. with dcgmi profile --pause"),
    ("metric", "look the metric up in the run's ncu-query-metrics.txt"),
)
_READ_OUTPUT: Final = "the run's stdout.txt and stderr.txt hold all that ncu printed"
_NO_RANGE: Final = "check that the fixture ran on a CUDA device, and that this ncu knows its driver"


@dataclass
class Page:
    """One CSV page: its header, its rows, and what is wrong with one of them."""

    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    fault: str = ""

    def add(self, line: str) -> None:
        """Take in a line of the page; a damaged one is remembered and not read."""
        row = _fields(line)
        if row is None or len(row) != len(self.header):
            found = "a row that is no CSV" if row is None else f"a row of {len(row)} fields"
            self.fault = self.fault or f"{found}, expected {len(self.header)} fields"
        else:
            self.rows.append(row)


@dataclass
class Output:
    """What Nsight Compute said in the streams of one run."""

    pages: list[Page] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    nothing_profiled: str = ""
    passes: int = 0

    @property
    def messages(self) -> list[str]:
        """Errors, then warnings; a flood of them is cut."""
        return [message[:1000] for message in (*self.errors, *self.warnings)][:_MAX_MESSAGES]


@dataclass(frozen=True)
class Cell:
    """One cell of a page with its unit, as printed."""

    text: str
    unit: str


Cells = Mapping[str, Sequence[Cell]]
"""The cells of the one range of a page by name of metric or column; a repeated name has several."""


def read_output(lines: Iterable[str]) -> Output:
    """Find Nsight Compute's lines among others. Holds no more than those."""
    output = Output()
    for line in lines:
        text = line.strip()
        message = _MESSAGE.search(text)
        header = _HEADER.search(text)
        if message is not None:
            _take_message(output, message[1], message[2])
        elif header is not None:
            # The program's last line may have had no end of its own.
            names = _fields(text[header.start() :])
            output.pages.append(Page(names or [], fault="" if names else "a header that is no CSV"))
        elif output.pages and _ROW.match(text):
            output.pages[-1].add(text)
    return output


def _take_message(output: Output, kind: str, text: str) -> None:
    if _NOTHING_PROFILED.search(text):
        output.nothing_profiled = text
    if kind == "ERROR":
        output.errors.append(text)
    elif kind == "WARNING" and len(output.warnings) < _MAX_MESSAGES:
        output.warnings.append(text)
    elif passes := _PASSES.search(text):
        output.passes = max(output.passes, int(passes[1] or passes[2]))


def _fields(line: str) -> list[str] | None:
    """The fields of one line of CSV; None for a line that is none."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return None


def error_cause(output: Output) -> Unavailable | None:
    """The first error that Nsight Compute reported, with what helps against it."""
    if not output.errors:
        return None
    # A later line often names the cause of the first.
    words = " ".join(output.errors)
    remedy = next((remedy for mark, remedy in _REMEDIES if mark in words), _READ_OUTPUT)
    named = next((error for error in output.errors if "ERR_NVGPUCTRPERM" in error), output.errors[0])
    return Unavailable(unavailable=f"ncu: {named}", remedy=remedy)


def read_cells(output: Output, returncode: int) -> Cells | Unavailable:
    """The cells of the one profiled range, or why there are none that can be trusted."""
    if output.nothing_profiled and not output.errors:
        return Unavailable(unavailable=f"ncu: {output.nothing_profiled}", remedy=_NO_RANGE)
    if (error := error_cause(output)) is not None:
        return error
    if returncode != 0:
        return Unavailable(unavailable=f"ncu ended with exit code {returncode}", remedy=_READ_OUTPUT)
    if len(output.pages) != 1:
        count = len(output.pages) or "no"
        return Unavailable(unavailable=f"found {count} pages of counters, expected one", remedy=_READ_OUTPUT)
    page = output.pages[0]
    found = _details(page) if "Metric Name" in page.header else _raw(page)
    fault = page.fault or (found if isinstance(found, str) else "")
    if fault or isinstance(found, str):
        return Unavailable(unavailable=f"ncu's page: {fault}", remedy=_READ_OUTPUT)
    return found


def _raw(page: Page) -> Cells | str:
    if not page.rows or _first(page, page.rows[0]):
        return "no row of units under the header"
    units, ranges = page.rows[0], page.rows[1:]
    if len(ranges) != 1:
        return f"found {len(ranges)} ranges, expected one"
    cells = defaultdict(list)
    for name, unit, text in zip(page.header, units, ranges[0], strict=True):
        cells[name].append(Cell(text, unit))
    return cells


def _details(page: Page) -> Cells | str:
    columns = ("Metric Name", "Metric Unit", "Metric Value")
    if missing := [name for name in columns if page.header.count(name) != 1]:
        return f"expected one column {missing[0]}"
    ranges = {_first(page, row) for row in page.rows}
    if len(ranges) != 1:
        return f"found {len(ranges)} ranges, expected one"
    name_at, unit_at, value_at = map(page.header.index, columns)
    cells = defaultdict(list)
    for name, text in zip(page.header, page.rows[0], strict=True):
        if name not in columns:
            cells[name].append(Cell(text, ""))
    for row in page.rows:
        cells[row[name_at]].append(Cell(row[value_at], row[unit_at]))
    return cells


def _first(page: Page, row: list[str]) -> str:
    return row[page.header.index("ID")]


# --- the counters ---------------------------------------------------------------------------------

_FACTORS: Final[dict[NcuUnit, dict[str, int]]] = {
    "byte": {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12},
    "sector": {"sector": 1},
    "%": {"%": 1},
}
_COUNTER_LIMIT: Final = 2**64


def read_counters(cells: Cells, metrics: Mapping[NcuQuantity, str]) -> list[NcuCounter]:
    """Every quantity's counter; the value of each that cannot be read says why."""
    marks = _decimal_marks(cells)
    return [_counter(quantity, metrics[quantity.name], cells, marks) for quantity in QUANTITIES]


def _decimal_marks(cells: Cells) -> set[DecimalMark]:
    # Metrics have two underscores in their name; other columns (versions, names) are not written by locale.
    return possible_marks(cell.text for name, found in cells.items() if "__" in name for cell in found)


def _counter(quantity: Quantity, metric: str, cells: Cells, marks: set[DecimalMark]) -> NcuCounter:
    found = cells.get(metric, ())
    cell = found[0] if len(found) == 1 else Cell("", "")
    if len(found) == 1:
        value = _value(cell, quantity.unit, marks)
    else:
        value = f"found it {len(found)} times on the page, expected once"
    return NcuCounter(
        quantity=quantity.name,
        metric=metric,
        printed=cell.text,
        printed_unit=cell.unit,
        unit=quantity.unit,
        value=_unread(metric, value) if isinstance(value, str) else value,
    )


def _unread(metric: str, cause: str) -> Unavailable:
    return Unavailable(
        unavailable=f"{metric}: {cause}",
        remedy="the run's ncu-query-metrics.txt lists what this GPU counts, stdout.txt holds the page",
    )


def _value(cell: Cell, unit: NcuUnit, marks: set[DecimalMark]) -> int | float | str:
    """The cell's value in `unit`, or why it has none."""
    found = readings(cell.text)
    if not found:
        return f"found {cell.text!r}, expected a number"
    factor = _FACTORS[unit].get(cell.unit)
    if factor is None:
        return f"found the unit {cell.unit!r}, expected {' or '.join(_FACTORS[unit])}"
    if not marks:
        return "the page's numbers contradict each other in their decimal mark"
    numbers = possible_values(cell, unit, marks)
    if unit != "%" and factor == 1:
        # A whole count has no decimals: of two readings, the one with groups.
        numbers = {max(numbers)}
    if len(numbers) > 1:
        return f"found {cell.text!r}, and nothing on the page tells which of its marks is the decimal one"
    return _checked(numbers.pop(), unit)


def possible_values(
    cell: Cell, unit: NcuUnit, marks: Collection[DecimalMark] = DECIMAL_MARKS
) -> set[Decimal]:
    """The numbers in `unit` that a cell can mean under those decimal marks; none under an unknown unit."""
    factor = _FACTORS[unit].get(cell.unit)
    found = readings(cell.text)
    return {number * factor for mark, number in found.items() if factor is not None and mark in marks}


def _checked(number: Decimal, unit: NcuUnit) -> int | float | str:
    if unit == "%":
        return float(number) if number <= 100 else f"found {number} %, expected at most 100"
    if number >= _COUNTER_LIMIT:
        return f"found {number:.3e}, more than a counter holds"
    return int(number) if number == int(number) else f"found {number} {unit}s, expected a whole number"


def read_passes(output: Output, cells: Cells) -> int | Unavailable:
    """How often the process was run: once a pass."""
    column = cells.get("profiler__replayer_passes", ())
    printed = {int(cell.text) for cell in column if re.fullmatch("[0-9]{1,9}", cell.text)}
    told = printed | ({output.passes} if output.passes else set())
    if len(told) != 1 or 0 in told:
        found = " and ".join(map(str, sorted(told))) or "nothing"
        return Unavailable(unavailable=f"ncu says {found} of its passes", remedy=_READ_OUTPUT)
    return told.pop()


# --- what they tell -------------------------------------------------------------------------------


def cache_traffic(counters: Iterable[NcuCounter], scope: Scope, repeats: int) -> CacheTraffic:
    """Traffic of one sequence: bytes over the range's repeats, and the hit rate of all of it."""
    values = {counter.quantity: counter.value for counter in counters}

    def per_sequence(quantity: NcuQuantity, bytes_each: int) -> int | float | Unavailable:
        value = values[quantity]
        if isinstance(value, Unavailable):
            return value
        total = int(value) * bytes_each
        return total // repeats if total % repeats == 0 else total / repeats

    return CacheTraffic(
        scope=scope,
        repeats=repeats,
        dram_read_bytes=per_sequence("dram_read", 1),
        dram_write_bytes=per_sequence("dram_write", 1),
        l2_read_bytes=per_sequence("l2_read", SECTOR_BYTES),
        l2_write_bytes=per_sequence("l2_write", SECTOR_BYTES),
        l2_hit_rate_percent=values["l2_hit_rate"],
    )


def device_attributes(cells: Cells) -> dict[str, str]:
    """What the page says of the GPU, as printed."""
    return {
        name: found[0].text
        for name, found in cells.items()
        if (name in ("Device", "CC") or name.startswith("device__attribute_")) and found[0].text
    }


def other_device(cells: Cells, result: FixtureResult) -> Unavailable | None:
    """The first attribute by which the page's GPU is not the run's; None when all that it tells agree."""
    facts = device_attributes(cells)
    expected = {"CC": result.platform.compute_capability, "device__attribute_display_name": result.gpu}
    parts = (result.platform.compute_capability or ".").split(".")
    for name, part in zip(("major", "minor"), parts, strict=True):
        expected[f"device__attribute_compute_capability_{name}"] = part
    found = {name: facts[name] for name in expected if name in facts}
    differing = {name: (text, expected[name]) for name, text in found.items() if text != expected[name]}
    cache = _l2_size_bytes(cells)
    if cache is not None and isinstance(result.cache_reference, CacheReference):
        run_bytes = result.cache_reference.bytes
        if cache != run_bytes:
            differing["device__attribute_l2_cache_size"] = (str(cache), str(run_bytes))
    for name, (page, run) in differing.items():
        return Unavailable(
            unavailable=f"the page is of another device than the run: {name}: found {page}, expected {run}",
            remedy="choose one GPU with CUDA_VISIBLE_DEVICES and --pass-env",
        )
    return None


def _l2_size_bytes(cells: Cells) -> int | None:
    found = cells.get("device__attribute_l2_cache_size", ())
    if len(found) != 1:
        return None
    # An attribute counts bytes whether or not its unit is printed.
    value = _value(Cell(found[0].text, found[0].unit or "byte"), "byte", _decimal_marks(cells))
    return value if isinstance(value, int) else None
