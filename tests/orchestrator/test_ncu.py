"""Nsight Compute's command line and pages: what is read, and that every fault gives a cause and no number."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import ncu
from orchestrator.models import FixtureResult, NcuCounter, Unavailable
from tests import strategies as samples
from tests.orchestrator import fake_ncu

# The published counters of the seed's machine: workspace :16:8, scope task, 16 repeats.
PUBLISHED = {
    "dram__bytes_read.sum": ("byte", "52,088,576"),
    "dram__bytes_write.sum": ("byte", "29,900,800"),
    "lts__t_sectors_op_read.sum": ("sector", "429,809,710"),
    "lts__t_sectors_op_write.sum": ("sector", "226,110,828"),
    "lts__t_sector_hit_rate.pct": ("%", "95.45"),
}
METRICS = ncu.choose_metrics(frozenset())
NEWER = fake_ncu.IDENTITY | fake_ncu.NEWER
Printed = dict[str, tuple[str, str]]


def page(cells: Printed, *, details: bool = False, identity: dict[str, str] = NEWER) -> str:
    return (fake_ncu.details_page if details else fake_ncu.raw_page)(identity, cells)


def cells_of(text: str, returncode: int = 0) -> ncu.Cells:
    cells = ncu.read_cells(ncu.read_output(text.splitlines()), returncode)
    assert not isinstance(cells, Unavailable), cells.unavailable
    return cells


def cause_of(text: str, returncode: int = 0) -> Unavailable:
    cause = ncu.read_cells(ncu.read_output(text.splitlines()), returncode)
    assert isinstance(cause, Unavailable)
    return cause


def counters(text: str) -> dict[str, NcuCounter]:
    return {counter.quantity: counter for counter in ncu.read_counters(cells_of(text), METRICS)}


def values(text: str) -> list[object]:
    return [counter.value for counter in counters(text).values()]


def unread(text: str, quantity: str) -> str:
    """Why one counter has no value; all others must have theirs."""
    found = counters(text)
    value = found.pop(quantity).value
    assert isinstance(value, Unavailable)
    assert not any(isinstance(counter.value, Unavailable) for counter in found.values())
    return value.unavailable


# --- the command ----------------------------------------------------------------------------------


def test_the_command_is_the_procedures() -> None:
    assert " ".join(ncu.ncu_command("ncu", METRICS.values(), "FILE")) == (
        "ncu --replay-mode app-range --cache-control none --clock-control none --metrics "
        "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_op_read.sum,lts__t_sectors_op_write.sum,"
        "lts__t_sector_hit_rate.pct --csv --page raw --force-overwrite --export FILE"
    )


def test_a_metric_that_the_gpu_lacks_is_asked_by_its_other_name() -> None:
    listed = ncu.supported_metrics(
        [
            "Device NVIDIA B200",
            "------- ----",
            "dram__bytes_op_read   Counter  byte  # of bytes",
            "dram__bytes_write Counter",
        ]
    )
    assert listed == {"dram__bytes_op_read"} | {"dram__bytes_write"}
    chosen = ncu.choose_metrics(listed)
    assert chosen["dram_read"] == "dram__bytes_op_read.sum"
    assert chosen["dram_write"] == "dram__bytes_write.sum"
    assert chosen["l2_read"] == "lts__t_sectors_op_read.sum"


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("details", [False, True], ids=["raw", "details"])
@pytest.mark.parametrize("identity", [fake_ncu.IDENTITY, NEWER], ids=["older", "newer"])
def test_the_published_counters_are_read_from_both_pages(details: bool, identity: dict[str, str]) -> None:
    text = page(PUBLISHED, details=details, identity=identity)
    assert values(text) == [52_088_576, 29_900_800, 429_809_710, 226_110_828, 95.45]


def test_the_published_traffic_of_a_task_follows() -> None:
    traffic = ncu.cache_traffic(counters(page(PUBLISHED)).values(), "task", 16)
    assert (traffic.dram_read_bytes, traffic.dram_write_bytes) == (3_255_536, 1_868_800)
    assert (traffic.l2_read_bytes, traffic.l2_write_bytes) == (859_619_420, 452_221_656)
    assert traffic.l2_hit_rate_percent == 95.45


def test_traffic_that_does_not_divide_keeps_its_fraction_and_what_was_not_read_its_cause() -> None:
    cells = PUBLISHED | {
        "dram__bytes_read.sum": ("byte", "7"),
        "lts__t_sectors_op_read.sum": ("sector", "n/a"),
    }
    traffic = ncu.cache_traffic(counters(page(cells)).values(), "task", 2)
    assert traffic.dram_read_bytes == 3.5
    assert isinstance(traffic.l2_read_bytes, Unavailable)
    assert traffic.dram_write_bytes == 14_950_400


@pytest.mark.parametrize(
    ("unit", "printed", "value"),
    [
        ("byte", "999", 999),
        ("Kbyte", "52.25", 52_250),
        ("Mbyte", "52.088576", 52_088_576),
        ("Gbyte", "1.234567891", 1_234_567_891),
    ],
)
def test_units_are_decimal(unit: str, printed: str, value: int) -> None:
    assert values(page(PUBLISHED | {"dram__bytes_read.sum": (unit, printed)}))[0] == value


GERMAN = {name: (unit, text.translate(fake_ncu.GERMAN)) for name, (unit, text) in PUBLISHED.items()}


@pytest.mark.parametrize("details", [False, True], ids=["raw", "details"])
@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(GERMAN, id="german"),
        pytest.param({n: (u, t.replace(".", "\u202f")) for n, (u, t) in GERMAN.items()}, id="french"),
        pytest.param({n: (u, t.replace(".", "\u00a0")) for n, (u, t) in GERMAN.items()}, id="no-break-space"),
        pytest.param({n: (u, t.replace(",", "'")) for n, (u, t) in PUBLISHED.items()}, id="swiss"),
        pytest.param({n: (u, t.replace(",", "")) for n, (u, t) in PUBLISHED.items()}, id="plain"),
    ],
)
def test_every_locale_gives_the_same_counters(cells: Printed, details: bool) -> None:
    assert values(page(cells, details=details)) == values(page(PUBLISHED))


def test_an_ambiguous_number_is_read_by_the_marks_of_the_others() -> None:
    assert values(page(PUBLISHED | {"dram__bytes_read.sum": ("Mbyte", "1,234")}))[0] == 1_234_000_000
    assert values(page(GERMAN | {"dram__bytes_read.sum": ("Mbyte", "1,234")}))[0] == 1_234_000


def test_an_ambiguous_number_is_no_number_where_no_other_tells() -> None:
    untold = {
        "lts__t_sectors_op_read.sum": "1,000",
        "lts__t_sectors_op_write.sum": "9",
        "dram__bytes_write.sum": "1.234",
    }
    cells = {name: (unit, untold.get(name, text)) for name, (unit, text) in PUBLISHED.items()}
    cells |= {"dram__bytes_read.sum": ("Mbyte", "1,234"), "lts__t_sector_hit_rate.pct": ("%", "95")}
    found = counters(page(cells))
    cause = found["dram_read"].value
    assert isinstance(cause, Unavailable)
    assert "'1,234', and nothing on the page tells" in cause.unavailable
    # Whole counts have no decimals, whichever mark groups them.
    assert found["l2_read"].value == 1000
    assert found["dram_write"].value == 1234


@pytest.mark.parametrize("details", [False, True], ids=["raw", "details"])
@pytest.mark.parametrize(
    ("metric", "cell", "quantity", "cause"),
    [
        pytest.param("dram__bytes_read.sum", ("", "n/a"), "dram_read", "'n/a', expected a number", id="n/a"),
        pytest.param("dram__bytes_read.sum", ("", "(!) n/a"), "dram_read", "'(!) n/a'", id="marked-n/a"),
        pytest.param("dram__bytes_read.sum", ("byte", "nan"), "dram_read", "'nan'", id="nan"),
        pytest.param("dram__bytes_read.sum", ("byte", "inf"), "dram_read", "'inf'", id="inf"),
        pytest.param("dram__bytes_read.sum", ("byte", "-7"), "dram_read", "'-7'", id="negative"),
        pytest.param("dram__bytes_read.sum", ("byte", ""), "dram_read", "''", id="empty"),
        pytest.param("dram__bytes_read.sum", ("KiB", "7"), "dram_read", "unit 'KiB'", id="unknown-unit"),
        pytest.param("dram__bytes_read.sum", ("", "7"), "dram_read", "unit ''", id="no-unit"),
        pytest.param(
            "dram__bytes_read.sum", ("byte", "7.5"), "dram_read", "a whole number", id="half-a-byte"
        ),
        pytest.param(
            "dram__bytes_read.sum", ("byte", "1e30"), "dram_read", "a counter holds", id="too-large"
        ),
        pytest.param("lts__t_sectors_op_read.sum", ("byte", "7"), "l2_read", "unit 'byte'", id="other-unit"),
        pytest.param(
            "lts__t_sector_hit_rate.pct", ("%", "100.01"), "l2_hit_rate", "at most 100", id="over-100"
        ),
    ],
)
def test_a_cell_that_cannot_be_read_says_why(
    metric: str, cell: tuple[str, str], quantity: str, cause: str, details: bool
) -> None:
    said = unread(page(PUBLISHED | {metric: cell}, details=details), quantity)
    assert said.startswith(f"{metric}: ")
    assert cause in said


@pytest.mark.parametrize("details", [False, True], ids=["raw", "details"])
def test_a_missing_metric_says_so(details: bool) -> None:
    cells = {name: cell for name, cell in PUBLISHED.items() if name != "lts__t_sectors_op_write.sum"}
    assert "0 times on the page" in unread(page(cells, details=details), "l2_write")


def test_a_repeated_metric_has_no_value() -> None:
    more = ("dram__bytes_read.sum", "byte", "7")
    lines = zip(page(PUBLISHED).splitlines(), more, strict=True)
    raw = "\n".join(f'{line},"{cell}"' for line, cell in lines)
    assert "2 times" in unread(raw, "dram_read")
    details = page(PUBLISHED, details=True)
    assert "2 times" in unread(details + details.splitlines()[1] + "\n", "dram_read")


def test_numbers_that_contradict_each_other_are_none() -> None:
    cells = PUBLISHED | {"dram__bytes_read.sum": ("Mbyte", "1.234,5")}
    assert all(isinstance(value, Unavailable) for value in values(page(cells)))


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        pytest.param("", "no pages", "stdout.txt", id="nothing"),
        pytest.param(page(PUBLISHED) * 2, "2 pages", "stdout.txt", id="two-pages"),
        pytest.param(fake_ncu.raw_page(NEWER, PUBLISHED, ranges=2), "2 ranges", "", id="two-ranges"),
        pytest.param(fake_ncu.raw_page(NEWER, PUBLISHED, ranges=0), "0 ranges", "", id="no-range"),
        pytest.param(
            page(PUBLISHED, details=True)
            + page(PUBLISHED, details=True, identity=NEWER | {"ID": "1"}).partition("\n")[2],
            "2 ranges", "", id="two-ranges-of-details",
        ),
        pytest.param(page(PUBLISHED, details=True).partition("\n")[0], "0 ranges", "", id="header-alone"),
        pytest.param(page(PUBLISHED).partition("\n")[0], "no row of units", "", id="raw-header-alone"),
        pytest.param(page(PUBLISHED).replace('"","","",', "", 1), "expected 16 fields", "", id="short-units"),
        pytest.param(page(PUBLISHED)[:-20], "no CSV", "", id="cut"),
        pytest.param(
            fake_ncu.NO_PERMISSION, "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0",
            id="permission",
        ),
        pytest.param(
            f"==ERROR== Failed to profile\n{fake_ncu.NO_PERMISSION}\n==WARNING== No kernels were profiled.",
            "ERR_NVGPUCTRPERM", "CAP_SYS_ADMIN", id="permission-after-another-error",
        ),
        pytest.param(
            "==ERROR== Failed to create/open lock file.", "lock file", "TMPDIR", id="lock",
        ),
        pytest.param(
            "==ERROR== Failed to find metric dram__bytes_reed.sum", "dram__bytes_reed",
            "ncu-query-metrics.txt", id="unknown-metric",
        ),
        pytest.param(
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
            "(like DCGM) is concurrently collecting profiling data.", "driver resource", "dcgmi", id="dcgm",
        ),
        pytest.param(
            page(PUBLISHED) + "==ERROR== The application returned an error code (1).", "error code (1)", "",
            id="error-beside-a-page",
        ),
        pytest.param("==WARNING== No kernels were profiled.", "No kernels", "CUDA device", id="no-kernels"),
        pytest.param("==WARNING== No ranges were profiled.", "No ranges", "CUDA device", id="no-ranges"),
    ],
)  # fmt: skip
def test_a_run_without_one_sound_page_has_a_cause(text: str, cause: str, remedy: str) -> None:
    found = cause_of(text)
    assert cause in found.unavailable
    assert remedy in found.remedy
    assert found.remedy


def test_an_exit_code_voids_a_page() -> None:
    assert cause_of(page(PUBLISHED), returncode=3).unavailable == "ncu ended with exit code 3"


def is_noise(text: str) -> bool:
    """Whether no line of a text is a header, a row, or a message that voids the page."""
    voids = any(mark in text for mark in ('"ID"', "==ERROR==", "==WARNING== No"))
    return not voids and not any(re.match(r'\s*"[0-9]*",', line) for line in text.splitlines())


noise = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(is_noise)
    | st.sampled_from(
        ["==PROF== Disconnected", "==WARNING== slow", "loss 0.5", '"quoted", "words"', "\r", ""]
    )
)


@given(before=noise, between=noise, after=noise, details=st.booleans())
def test_a_page_is_found_in_any_noise(
    before: list[str], between: list[str], after: list[str], details: bool
) -> None:
    header, *rows = page(PUBLISHED, details=details).splitlines()
    lines = [*before, f"no end of line{header}", *between, *(f"{row}\r\n" for row in rows), *after]
    cells = ncu.read_cells(ncu.read_output(lines), 0)
    assert not isinstance(cells, Unavailable)
    assert [counter.value for counter in ncu.read_counters(cells, METRICS)] == values(page(PUBLISHED))


# --- passes and device ----------------------------------------------------------------------------


def test_passes_are_counted_from_messages_or_read_from_the_page() -> None:
    messages = "\n".join(f'==PROF== Profiling "range" - 0: Application replay pass {n}' for n in (1, 2))
    output = ncu.read_output(messages.splitlines())
    assert ncu.read_passes(output, {}) == 2
    kernel = ncu.read_output(['==PROF== Profiling "range" - 0: 0%....50%....100% - 3 passes'])
    assert ncu.read_passes(kernel, {}) == 3
    column = {"profiler__replayer_passes": [ncu.Cell("2", "")]}
    assert ncu.read_passes(ncu.Output(), column) == 2
    assert ncu.read_passes(output, column) == 2
    for unclear in (ncu.read_passes(kernel, column), ncu.read_passes(ncu.Output(), {})):
        assert isinstance(unclear, Unavailable)


def cuda_result() -> FixtureResult:
    return FixtureResult.model_validate(samples.cuda_run_record()["result"])


DEVICE = {
    "device__attribute_compute_capability_major": ("", "8"),
    "device__attribute_compute_capability_minor": ("", "0"),
    "device__attribute_display_name": ("", "NVIDIA A100-SXM4-40GB"),
    "device__attribute_l2_cache_size": ("Mbyte", "41.943040"),
}


def test_the_device_of_the_page_is_the_runs() -> None:
    cells = cells_of(page(DEVICE | PUBLISHED))
    assert ncu.other_device(cells, cuda_result()) is None
    assert ncu.device_attributes(cells)["CC"] == "8.0"
    assert ncu.device_attributes(cells)["device__attribute_display_name"] == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("device__attribute_compute_capability_major", ("", "9")),
        ("device__attribute_compute_capability_minor", ("", "6")),
        ("device__attribute_display_name", ("", "NVIDIA H200")),
        ("device__attribute_l2_cache_size", ("byte", "62,914,560")),
    ],
)
def test_the_page_of_another_device_is_told(name: str, printed: tuple[str, str]) -> None:
    other = ncu.other_device(cells_of(page(DEVICE | PUBLISHED | {name: printed})), cuda_result())
    assert other is not None
    assert name in other.unavailable


def test_another_compute_capability_is_told_by_the_identity_column() -> None:
    other = ncu.other_device(cells_of(page(PUBLISHED, identity=NEWER | {"CC": "9.0"})), cuda_result())
    assert other is not None
    assert "found 9.0, expected 8.0" in other.unavailable
