"""Fake tools on a PATH, trees of files for the kernel's, and a double at NVML's functions."""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from orchestrator import probe
from orchestrator.availability import Unavailable

VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.1.1.0 (build 1)\n"


def script(path: Path, body: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def reason(found: object) -> str:
    assert isinstance(found, Unavailable)
    return found.reason


# --- ncu: where -----------------------------------------------------------------------------------


def test_ncu_on_path_wins_over_every_installation(tmp_path: Path) -> None:
    script(tmp_path / "usr/local/cuda-13.0/bin/ncu", "")
    on_path = script(tmp_path / "mine/ncu", "")

    assert probe.find_ncu(f"/nowhere:{tmp_path}/mine", tmp_path) == on_path


def test_a_relative_folder_on_path_gives_an_absolute_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool is started later, with another working folder."""
    found = script(tmp_path / "mine/ncu", "")
    monkeypatch.chdir(tmp_path)

    assert probe.find_ncu("mine", tmp_path) == found


@pytest.mark.parametrize(
    ("installed", "newest"),
    [
        pytest.param(
            ["usr/local/cuda-12.9/bin", "usr/local/cuda-12.10/bin", "usr/local/cuda/bin"],
            "usr/local/cuda-12.10/bin",
            id="ten-is-more-than-nine",
        ),
        pytest.param(["usr/local/cuda/bin"], "usr/local/cuda/bin", id="without-a-number"),
        pytest.param(
            ["opt/nvidia/nsight-compute/2024.3.2", "opt/nvidia/nsight-compute/2025.1.1"],
            "opt/nvidia/nsight-compute/2025.1.1",
            id="nsight-compute",
        ),
    ],
)
def test_the_newest_installation_is_found_without_path(
    tmp_path: Path, installed: list[str], newest: str
) -> None:
    for folder in installed:
        script(tmp_path / folder / "ncu", "")

    assert probe.find_ncu("", tmp_path) == tmp_path / newest / "ncu"


def test_an_installation_without_an_executable_ncu_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda-13.0/bin").mkdir(parents=True)
    script(tmp_path / "usr/local/cuda-12.8/bin/ncu", "", mode=0o644)
    older = script(tmp_path / "usr/local/cuda-12.4/bin/ncu", "")

    assert probe.find_ncu("", tmp_path) == older


def test_no_ncu_says_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda-13.0/bin").mkdir(parents=True)

    found = probe.find_ncu("", tmp_path)

    assert f"({tmp_path}/usr/local/cuda-13.0/bin)" in reason(found)
    assert isinstance(found, Unavailable)
    assert "PATH" in found.remedy


# --- ncu: which -----------------------------------------------------------------------------------


def test_the_version_is_what_ncu_prints_unchanged(tmp_path: Path) -> None:
    ncu = script(tmp_path / "ncu", f"[ \"$*\" = --version ] && echo noise >&2 && printf '{VERSION}'")

    assert probe.ncu_version(ncu) == VERSION


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        pytest.param(
            "echo 'ERROR: cannot find' >&2; echo 'the installation' >&2; exit 3",
            "ended with 3: ERROR: cannot find the installation",
            id="installation-gone",
        ),
        pytest.param("echo usage; exit 1", "ended with 1: usage", id="cause-on-stdout"),
        pytest.param("exit 1", "ended with 1: it printed nothing", id="silent-failure"),
        pytest.param("kill -SEGV $$", "ended with -11", id="crash"),
        pytest.param("printf '\\377\\376'", "printed no UTF-8 text", id="not-utf-8"),
        pytest.param("echo", "printed nothing", id="nothing"),
        pytest.param("exec cat /dev/zero", "printed more than 65536 bytes", id="endless"),
        pytest.param("exec cat /dev/zero >&2", "printed more than 65536 bytes", id="endless-errors"),
    ],
)
def test_a_broken_ncu_is_unavailable_with_the_cause(tmp_path: Path, body: str, cause: str) -> None:
    assert cause in reason(probe.ncu_version(script(tmp_path / "ncu", body)))


@pytest.mark.parametrize(
    ("mode", "text", "cause"),
    [
        pytest.param(0o644, "#!/bin/sh\n", "Permission denied", id="not-executable"),
        pytest.param(0o755, "\0", "Exec format error", id="another-architecture"),
        pytest.param(0o755, "#!/gone\n", "No such file or directory", id="interpreter-gone"),
    ],
)
def test_an_ncu_that_cannot_start_is_unavailable_with_the_cause(
    tmp_path: Path, mode: int, text: str, cause: str
) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(text)
    ncu.chmod(mode)

    assert cause in reason(probe.ncu_version(ncu))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("echo $$ >pid; exec sleep 1000", id="itself"),
        pytest.param("exec >&- 2>&-; echo $$ >pid; exec sleep 1000", id="pipes-closed"),
        pytest.param("sleep 1000 & echo $! >pid", id="its-child-holds-the-pipe"),
    ],
)
def test_an_ncu_that_hangs_is_given_up_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ncu = script(tmp_path / "ncu", body)

    assert "did not end in time" in reason(probe.ncu_version(ncu, timeout_s=1.0))
    wait_for_death(int((tmp_path / "pid").read_text()))


def wait_for_death(pid: int) -> None:
    deadline_s = time.monotonic() + 60
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_bytes().rpartition(b")")[2].split()[0] != b"Z":
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.005)


# --- NVIDIA driver --------------------------------------------------------------------------------


class NvmlError(Exception):
    """As pynvml's: a number in `value`, and the library's words."""

    def __init__(self, value: int, words: str) -> None:
        super().__init__(words)
        self.value = value


def fake_nvml(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> list[str]:
    """Put a double in pynvml's place; returns the names of the functions called, in order."""
    calls: list[str] = []
    module = types.ModuleType("pynvml")

    def double(name: str, outcome: object) -> Any:
        def call() -> object:
            calls.append(name)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return call

    defaults = {"nvmlInit": None, "nvmlSystemGetDriverVersion": "580.95.05", "nvmlShutdown": None}
    for name, outcome in (defaults | functions).items():
        setattr(module, name, double(name, outcome))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return calls


@pytest.mark.parametrize("version", ["580.95.05", b"580.95.05"], ids=["str", "bytes"])
def test_the_driver_version_is_text_whatever_the_binding(
    monkeypatch: pytest.MonkeyPatch, version: str | bytes
) -> None:
    calls = fake_nvml(monkeypatch, nvmlSystemGetDriverVersion=version)

    assert probe.nvidia_driver() == "580.95.05"
    assert calls == ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlShutdown"]


@pytest.mark.parametrize(
    ("function", "value", "words", "remedy"),
    [
        ("nvmlInit", 12, "NVML Shared Library Not Found", "install the NVIDIA driver"),
        ("nvmlInit", 9, "Driver Not Loaded", "load the nvidia kernel module"),
        ("nvmlInit", 18, "Driver/library version mismatch", "reboot"),
        ("nvmlSystemGetDriverVersion", 4, "Insufficient Permissions", "/dev/nvidia*"),
        ("nvmlSystemGetDriverVersion", 999, "Unknown Error", "nvidia-smi"),
    ],
)
def test_a_driver_that_fails_is_unavailable_with_cause_and_remedy(
    monkeypatch: pytest.MonkeyPatch, function: str, value: int, words: str, remedy: str
) -> None:
    calls = fake_nvml(monkeypatch, **{function: NvmlError(value, words)})

    found = probe.nvidia_driver()

    assert words in reason(found)
    assert isinstance(found, Unavailable)
    assert remedy in found.remedy
    # What was opened is closed, and only that.
    assert ("nvmlShutdown" in calls) == (function != "nvmlInit")


def test_a_missing_binding_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert "nvidia-ml-py is not installed" in reason(probe.nvidia_driver())


def test_another_package_under_the_name_pynvml_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))

    assert "no attribute 'nvmlInit'" in reason(probe.nvidia_driver())


# --- CPU ------------------------------------------------------------------------------------------

X86_CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 7763 64-Core Processor
flags\t\t: fpu sse2 fma avx avx2 avx512_bf16 amx_tile

processor\t: 1
vendor_id\t: Other
model name\t: Other
flags\t\t: avx512f
"""
ARM_CPUINFO = """processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd aes sve bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "model_name", "vector_units"),
    [
        pytest.param(
            X86_CPUINFO,
            "AuthenticAMD",
            "AMD EPYC 7763 64-Core Processor",
            ("fma", "avx2", "avx512_bf16", "amx_tile"),
            id="x86",
        ),
        pytest.param(ARM_CPUINFO, "0x41", "0xd40", ("neon", "sve"), id="arm"),
        pytest.param("", "unknown", "unknown", (), id="empty"),
    ],
)
def test_the_cpu_is_what_its_first_entry_says(
    tmp_path: Path, cpuinfo: str, vendor: str, model_name: str, vector_units: tuple[str, ...]
) -> None:
    tree(tmp_path, {"cpuinfo": cpuinfo})

    facts = probe.cpu_facts(procfs=tmp_path, sysfs=tmp_path)

    assert (facts.vendor, facts.model_name) == (vendor, model_name)
    assert facts.vector_units == vector_units


def test_missing_kernel_trees_are_no_error(tmp_path: Path) -> None:
    facts = probe.cpu_facts(procfs=tmp_path / "no", sysfs=tmp_path / "no")

    assert (facts.vendor, facts.vector_units) == ("unknown", ())
    assert "describes no cache" in reason(facts.last_level_cache_bytes)
    assert 1 <= facts.affinity_cpus <= facts.logical_cpus


def test_affinity_counts_only_what_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert probe.cpu_facts().affinity_cpus == 1
    finally:
        os.sched_setaffinity(0, before)


def cache(index: int, level: int, kind: str, size: str, cpu: int = 0) -> dict[str, str]:
    folder = f"devices/system/cpu/cpu{cpu}/cache/index{index}"
    return {f"{folder}/level": str(level), f"{folder}/type": kind, f"{folder}/size": size}


@pytest.mark.parametrize(
    ("files", "size_bytes"),
    [
        pytest.param(
            cache(0, 1, "Data", "48K")
            | cache(1, 1, "Instruction", "64K")
            | cache(2, 2, "Unified", "64M")
            | cache(3, 3, "Unified", "32768K"),
            32 << 20,
            id="the-last-level-and-not-the-largest",
        ),
        pytest.param(
            cache(0, 2, "Unified", "512K") | cache(0, 2, "Unified", "2M", cpu=4),
            2 << 20,
            id="unequal-cores",
        ),
        pytest.param(cache(0, 1, "Data", "48K") | cache(3, 3, "Unified", ""), 48 << 10, id="a-blank-size"),
    ],
)
def test_the_last_level_cache(tmp_path: Path, files: dict[str, str], size_bytes: int) -> None:
    facts = probe.cpu_facts(sysfs=tree(tmp_path, files))

    assert facts.last_level_cache_bytes == size_bytes


# --- RAPL -----------------------------------------------------------------------------------------


def zone(folder: str, name: str, energy_uj: str = "123456") -> dict[str, str]:
    return {f"{folder}/name": name, f"{folder}/energy_uj": energy_uj}


def test_packages_are_told_by_name_and_counted_once(tmp_path: Path) -> None:
    """Indices say nothing: here psys is 0 and the packages are swapped."""
    root = tree(
        tmp_path,
        zone("intel-rapl:0", "psys")
        | zone("intel-rapl:1", "package-1")
        | zone("intel-rapl:2", "package-0")
        | zone("intel-rapl:2:0", "core")
        | zone("intel-rapl:2:1", "dram")
        | zone("intel-rapl-mmio:0", "package-0")
        | {"intel-rapl/enabled": "1"},
    )

    assert probe.rapl_domains(root) == (
        probe.RaplDomain("package-0", tmp_path / "intel-rapl:2"),
        probe.RaplDomain("package-1", tmp_path / "intel-rapl:1"),
    )


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        pytest.param({}, "shows no CPU package, only nothing", id="no-driver"),
        pytest.param(
            zone("intel-rapl:0", "psys") | {"dtpm:1/x": ""}, "only dtpm:1 (unnamed), psys", id="psys"
        ),
        pytest.param(
            zone("intel-rapl:0", "package-0") | zone("intel-rapl:1", "package-1", "n/a"),
            "intel-rapl:1/energy_uj holds 'n/a'",
            id="one-of-two-is-broken",
        ),
        pytest.param({"intel-rapl:0/name": "package-0"}, "No such file", id="no-counter"),
    ],
)
def test_counters_that_cannot_be_used_are_unavailable(
    tmp_path: Path, files: dict[str, str], cause: str
) -> None:
    assert cause in reason(probe.rapl_domains(tree(tmp_path, files)))


def test_counters_for_root_alone_come_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played, since root may read everything and tests may run as root."""
    root = tree(tmp_path, zone("intel-rapl:0", "package-0"))
    read_text = Path.read_text

    def guarded(path: Path, *arguments: Any, **options: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", guarded)
    found = probe.rapl_domains(root)

    assert reason(found) == f"{root}/intel-rapl:0/energy_uj may not be read"
    assert isinstance(found, Unavailable)
    assert "run as root" in found.remedy


# --- packages -------------------------------------------------------------------------------------


def install(folder: Path, name: str, fields: bytes) -> None:
    (folder / f"{name}-1.dist-info").mkdir()
    (folder / f"{name}-1.dist-info" / "METADATA").write_bytes(fields)


def test_a_package_version_comes_from_metadata_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "heavy", b"Metadata-Version: 2.1\nName: heavy\nVersion: 2.5.0+cu124\n")
    (tmp_path / "heavy.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)

    assert probe.package_version("heavy") == "2.5.0+cu124"


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        pytest.param(b"Name: broken\n", "holds no version", id="no-version"),
        pytest.param(b"Name: broken\nVersion: \xff\n", "utf-8", id="not-utf-8"),
    ],
)
def test_broken_metadata_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: bytes, cause: str
) -> None:
    install(tmp_path, "broken", fields)
    monkeypatch.syspath_prepend(tmp_path)

    assert cause in reason(probe.package_version("broken"))


def test_a_package_that_is_not_installed_is_unavailable() -> None:
    assert probe.package_version("no-such-package") == Unavailable(
        "the package no-such-package is not installed", "pip install no-such-package"
    )
