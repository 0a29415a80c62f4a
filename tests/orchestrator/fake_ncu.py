#!/usr/bin/env python3
"""A double of Nsight Compute's command line, put on PATH under the name `ncu`.

It knows `--version` and `--query-metrics`. Otherwise it runs its child once a pass in an environment with
additions, as the real one does to inject itself, writes the report, and prints a page after the child's
output. The counters are the published ones of the seed's machine. A file `variant` beside it says in words
how it misbehaves or prints; the environment cannot, since the fixture's is built from nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PASSES = 2
IDENTITY = {
    "ID": "0", "Process ID": "4711", "Process Name": "python3.11", "Host Name": "127.0.0.1",
    "Kernel Name": "range", "Context": "1", "Stream": "7",
}  # fmt: skip
NEWER = {"Block Size": "", "Grid Size": "", "Device": "0", "CC": "8.0"}
COUNTERS = {
    "dram__bytes_read.sum": ("Mbyte", "52.088576"),
    "dram__bytes_write.sum": ("Mbyte", "29.900800"),
    "lts__t_sectors_op_read.sum": ("sector", "429,809,710"),
    "lts__t_sectors_op_write.sum": ("sector", "226,110,828"),
    "lts__t_sector_hit_rate.pct": ("%", "95.45"),
}
ATTRIBUTES = {
    "device__attribute_display_name": ("", "NVIDIA A100-SXM4-40GB"),
    "device__attribute_l2_cache_size": ("Mbyte", "41.943040"),
}
NO_PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0. For instructions on enabling permissions and to get more information "
    "see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
GERMAN = str.maketrans(",.", ".,")


def line(fields: list[str]) -> str:
    return ",".join(f'"{field}"' for field in fields)


def raw_page(identity: dict[str, str], cells: dict[str, tuple[str, str]], ranges: int = 1) -> str:
    """A page of one row a range: identity columns have no unit."""
    rows = [[*identity, *cells], ["" for _ in identity] + [unit for unit, _ in cells.values()]]
    for number in range(ranges):
        rows.append([*(identity | {"ID": str(number)}).values(), *(text for _, text in cells.values())])
    return "\n".join(map(line, rows)) + "\n"


def details_page(identity: dict[str, str], cells: dict[str, tuple[str, str]]) -> str:
    """A page of one row a metric."""
    header = [*identity, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [
        [*identity.values(), "Command line profiler metrics", name, unit, text]
        for name, (unit, text) in cells.items()
    ]
    return "\n".join(map(line, [header, *rows])) + "\n"


def main(arguments: list[str]) -> int:
    beside = Path(__file__).with_name("variant")
    variant = set(beside.read_text().split()) if beside.is_file() else set()
    if arguments == ["--version"]:
        if "gone" in variant:
            print("ncu: the installation that this launcher starts is gone", file=sys.stderr)
            return 127
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.1.1.0 (build 35528883)")
        return 0
    if arguments == ["--query-metrics"]:
        renamed = {"dram__bytes_read.sum": "dram__bytes_op_read"} if "newer-gpu" in variant else {}
        print(
            "Device NVIDIA A100-SXM4-40GB (GA100)\nMetric Name  Metric Type  Metric Unit  Metric Description"
        )
        for name in COUNTERS:
            print(f"{renamed.get(name, name.partition('.')[0]):<30} Counter  byte  # of something")
        return 0
    options, child = split(arguments)
    if "dead" in variant:
        print("==ERROR== Failed to create/open lock file. Please check that it can be written.")
        return 9
    codes = []
    for number in range(1 if "one-pass" in variant else PASSES):
        print("==PROF== Connected to process 4711 (/usr/bin/python3.11)")
        print(f'==PROF== Profiling "range" - 0: Application replay pass {number + 1}', flush=True)
        added = {"CUDA_INJECTION64_PATH": "/opt/ncu/libinjection.so", "NV_TPS_LAUNCH_TOKEN": "x y"}
        if "moves-bits" in variant:
            added["MKL_DEBUG_CPU_TYPE"] = "5"
        codes.append(subprocess.run(child, env={**os.environ, **added}, check=False).returncode)
        if "noisy" in variant:
            for _ in range(60):
                print("x" * 99_999, flush=True)
    if "permission" in variant:
        print(NO_PERMISSION)
        return 1
    if "nothing" in variant:
        print("==WARNING== No kernels were profiled.")
        return 0
    Path(options["--export"]).write_bytes(b"report of the range")
    cells = {name: COUNTERS[name] for name in options["--metrics"].split(",") if name in COUNTERS}
    identity = dict(IDENTITY)
    if "n/a" in variant:
        cells["dram__bytes_read.sum"] = ("", "(!) n/a")
    if "other-device" in variant:
        identity |= NEWER
        cells = ATTRIBUTES | cells
    if "newer-gpu" in variant:
        cells = {"dram__bytes_op_read.sum": COUNTERS["dram__bytes_read.sum"]} | cells
    page = raw_page(identity, cells, ranges=2 if "ranges" in variant else 1)
    if "german" in variant:
        page = raw_page(
            identity, {name: (unit, text.translate(GERMAN)) for name, (unit, text) in cells.items()}
        )
    print("an unfinished line of the child", end="")
    print(page, end="")
    return max(codes)


def split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options, and the child's command: the first word that no option takes."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        options[name] = "" if name in ("--csv", "--force-overwrite") else rest.pop(0)
    return options, rest


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
