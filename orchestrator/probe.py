"""Facts about this machine, measured where they are: tools, driver, CPU, energy counters.

Rules:

- No function raises for a missing or broken tool: what cannot be had is `Unavailable`, with the cause
  and what to do. Nothing that was not found is reported as zero or as an empty text.
- A tool is not trusted to end, to print little, or to print text.
- Nothing is imported to ask for its version. The driver is asked through NVML, imported on first use.

What a fact decides is the fingerprint's and the runner's business.
"""

from __future__ import annotations

import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from orchestrator.availability import Unavailable

_TOOL_TIMEOUT_S: Final = 20.0  # a launcher on a cold network disk needs seconds
_TOOL_OUTPUT_BYTES: Final = 1 << 16

_INSTALL_NCU: Final = "install NVIDIA Nsight Compute, or add its folder to PATH"

# --- Nsight Compute -------------------------------------------------------------------------------


def find_ncu(path_env: str, root: Path = Path("/")) -> Path | Unavailable:
    """Find Nsight Compute's command line: on PATH, then where its installers put it, newest first.

    `path_env` is the text of PATH; `root` holds the installers' folders.
    """
    if on_path := shutil.which("ncu", path=path_env):
        return Path(on_path).absolute()
    folders = [
        *sorted(root.glob("usr/local/cuda*/bin"), key=_folder_version, reverse=True),
        *sorted(root.glob("opt/nvidia/nsight-compute/*"), key=_folder_version, reverse=True),
    ]
    for folder in folders:
        if found := shutil.which("ncu", path=str(folder)):
            return Path(found)
    looked_at = ", ".join(str(folder) for folder in folders) or "no folder of CUDA or Nsight Compute"
    return Unavailable(f"no executable ncu on PATH, nor in the usual places ({looked_at})", _INSTALL_NCU)


def _folder_version(folder: Path) -> tuple[int, ...]:
    """The numbers in `cuda-12.10/bin` or `2025.1.1`; a plain `cuda` has none and comes last."""
    name = folder.parent.name if folder.name == "bin" else folder.name
    return tuple(int(number) for number in re.findall(r"[0-9]+", name))


def ncu_version(path: Path, timeout_s: float = _TOOL_TIMEOUT_S) -> str | Unavailable:
    """What `ncu --version` prints, unchanged."""
    output = _ask_tool([str(path), "--version"], timeout_s)
    if isinstance(output, Unavailable):
        return output
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError as error:
        return Unavailable(f"{path} --version printed no UTF-8 text: {error}", _INSTALL_NCU)
    if not text.strip():
        return Unavailable(f"{path} --version printed nothing", _INSTALL_NCU)
    return text


def _ask_tool(command: list[str], timeout_s: float) -> bytes | Unavailable:
    """Run a tool that should print a little and end; returns its standard output."""
    shown = " ".join(command)
    try:
        tool = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Unavailable(f"cannot start {shown}: {getattr(error, 'strerror', error)}", _INSTALL_NCU)
    with tool:
        try:
            outcome = _listen(tool, time.monotonic() + timeout_s)
        finally:
            if tool.returncode is None:
                # The whole group: a launcher's own child would go on. The tool is not reaped yet, so
                # that its number cannot have become another group's.
                with suppress(PermissionError):
                    os.killpg(tool.pid, signal.SIGKILL)
    if isinstance(outcome, str):
        return Unavailable(f"{shown} {outcome}", "run it by hand to see why")
    stdout, stderr, returncode = outcome
    if returncode != 0:
        # A launcher whose installation is gone says so on stderr.
        words = " ".join((stderr or stdout).decode("utf-8", "replace").split())
        cause = f"{shown} ended with {returncode}: {words[:300] or 'it printed nothing'}"
        return Unavailable(cause, _INSTALL_NCU)
    return stdout


def _listen(tool: subprocess.Popen[bytes], deadline_s: float) -> tuple[bytes, bytes, int] | str:
    """Standard output, standard error and return code; or what the tool did wrong."""
    heard: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", tool.stdout), ("stderr", tool.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map():
            for key, _ in selector.select(max(0.0, deadline_s - time.monotonic())):
                chunk = os.read(key.fd, _TOOL_OUTPUT_BYTES)
                heard[key.data] += chunk
                if not chunk:
                    selector.unregister(key.fileobj)
            if any(len(text) > _TOOL_OUTPUT_BYTES for text in heard.values()):
                return f"printed more than {_TOOL_OUTPUT_BYTES} bytes"
            if time.monotonic() >= deadline_s:
                return "did not end in time"
    try:
        returncode = tool.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "did not end in time"
    return heard["stdout"], heard["stderr"], returncode


# --- NVIDIA driver --------------------------------------------------------------------------------

# <nvml.h>; by number, since the exception classes are made at import time.
_NVML_REMEDIES = {
    4: "give this user access to the device files /dev/nvidia*",  # NO_PERMISSION
    9: "load the nvidia kernel module; in a container, start it with GPU access",  # DRIVER_NOT_LOADED
    12: "install the NVIDIA driver; in a container, start it with GPU access",  # LIBRARY_NOT_FOUND
    18: "reboot: the driver's library and its kernel module differ",  # LIB_RM_VERSION_MISMATCH
}


def nvidia_driver() -> str | Unavailable:
    """The version of the NVIDIA driver, as NVML tells it."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            version: object = pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
    except ImportError:
        return Unavailable("the package nvidia-ml-py is not installed", "pip install nvidia-ml-py")
    except Exception as error:  # the binding's or the driver's fault, whatever it is
        remedy = _NVML_REMEDIES.get(getattr(error, "value", 0), "check that nvidia-smi works here")
        return Unavailable(f"NVML: {error}", remedy)
    # Bindings before version 11 return bytes.
    return version.decode("utf-8", "replace") if isinstance(version, bytes) else str(version)


# --- CPU ------------------------------------------------------------------------------------------

# Reported name by the kernel's flag, on x86 and on Arm.
_VECTOR_FLAGS = {
    "fma": "fma",
    "avx2": "avx2",
    "avx512f": "avx512f",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_tile": "amx_tile",
    "amx_bf16": "amx_bf16",
    "amx_int8": "amx_int8",
    "amx_fp16": "amx_fp16",
    "asimd": "neon",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}


@dataclass(frozen=True)
class CpuFacts:
    """The CPU as the kernel describes it.

    Args:
        architecture: As `platform.machine()` says it.
        vendor: The kernel's word or number for the vendor; `unknown` where it has none.
        model_name: Likewise for the model.
        vector_units: Those that move floating-point bits: fma, avx2, avx512f, amx_tile, neon, sve...
        logical_cpus: Logical CPUs of the machine.
        affinity_cpus: Those that this process may use.
        last_level_cache_bytes: Size of the largest-numbered cache level that holds data.
    """

    architecture: str
    vendor: str
    model_name: str
    vector_units: tuple[str, ...]
    logical_cpus: int
    affinity_cpus: int
    last_level_cache_bytes: int | Unavailable


def cpu_facts(procfs: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> CpuFacts:
    """Facts about the CPU; `procfs` and `sysfs` are the kernel's trees."""
    fields = _first_cpu(procfs / "cpuinfo")
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    affinity = os.sched_getaffinity(0)
    return CpuFacts(
        architecture=platform.machine(),
        # x86 gives names; Arm gives the numbers of its identification register.
        vendor=fields.get("vendor_id") or fields.get("CPU implementer") or "unknown",
        model_name=fields.get("model name") or fields.get("CPU part") or "unknown",
        vector_units=tuple(name for flag, name in _VECTOR_FLAGS.items() if flag in flags),
        logical_cpus=os.cpu_count() or len(affinity),
        affinity_cpus=len(affinity),
        last_level_cache_bytes=_last_level_cache_bytes(sysfs / "devices/system/cpu"),
    )


def _first_cpu(cpuinfo: Path) -> dict[str, str]:
    """The fields of the first CPU that has them."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    return fields


def _last_level_cache_bytes(cpus: Path) -> int | Unavailable:
    sizes: dict[int, int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        with suppress(OSError, ValueError):
            if (cache / "type").read_text().strip() in ("Unified", "Data"):
                level = int((cache / "level").read_text())
                size = _size_bytes((cache / "size").read_text().strip())
                sizes[level] = max(size, sizes.get(level, 0))
    if not sizes:
        return Unavailable(f"{cpus} describes no cache", "virtual machines often hide it")
    return sizes[max(sizes)]


def _size_bytes(text: str) -> int:
    """Bytes of a size as the kernel writes it (`266240K`).

    Raises:
        ValueError: for any other text.
    """
    factors = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text.rstrip("KMG")) * factors.get(text[-1:], 1)


# --- energy counters ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RaplDomain:
    """One CPU package's energy counter: its name, and the folder of its files."""

    name: str
    path: Path


def rapl_domains(
    root: Path = Path("/sys/class/powercap"),
) -> tuple[RaplDomain, ...] | Unavailable:
    """The CPU packages' energy counters, one a package, all of them readable.

    A zone is what its file `name` says. `psys` counts the platform, `core` and `dram` count parts, and
    the memory-mapped interface shows a package once more.
    """
    packages: dict[str, Path] = {}
    others = []
    # Zones of the memory-mapped interface come last: the first of a name counts.
    for zone in sorted(root.glob("*:*"), key=lambda zone: ("mmio" in zone.name, zone.name)):
        try:
            name = (zone / "name").read_text().strip()
        except (OSError, UnicodeDecodeError):
            name = f"{zone.name} (unnamed)"
        if re.fullmatch(r"package-[0-9]+(-die-[0-9]+)?", name):
            packages.setdefault(name, zone)
        else:
            others.append(name)
    if not packages:
        return Unavailable(
            f"{root} shows no CPU package, only {', '.join(others) or 'nothing'}",
            "measure on bare metal with the kernel module intel_rapl_msr (Intel, AMD) loaded",
        )
    for zone in packages.values():
        if isinstance(fault := _unreadable(zone / "energy_uj"), Unavailable):
            return fault
    return tuple(RaplDomain(name, zone) for name, zone in sorted(packages.items()))


def _unreadable(counter: Path) -> Unavailable | None:
    try:
        text = counter.read_text().strip()
    except PermissionError:
        # Closed to others since CVE-2020-8694: the counter can reveal secrets.
        return Unavailable(f"{counter} may not be read", "run as root, or have the file made readable")
    except (OSError, UnicodeDecodeError) as error:
        return Unavailable(f"{counter} cannot be read: {error}", "check the kernel driver")
    if not text.isdecimal():
        return Unavailable(f"{counter} holds {text!r}, no number of uJ", "check the kernel driver")
    return None


# --- packages -------------------------------------------------------------------------------------


def package_version(name: str) -> str | Unavailable:
    """The installed version of a Python package, read from its metadata."""
    cause = ""
    try:
        fields = metadata.metadata(name)
        if "Version" in fields:
            return fields["Version"]
    except metadata.PackageNotFoundError:
        return Unavailable(f"the package {name} is not installed", f"pip install {name}")
    except (OSError, ValueError) as error:
        cause = f": {error}"
    remedy = f"pip install --force-reinstall {name}"
    return Unavailable(f"the metadata of package {name} holds no version{cause}", remedy)
