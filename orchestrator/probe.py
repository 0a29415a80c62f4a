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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

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

_Answer = TypeVar("_Answer")

_NO_BINDING = Unavailable("the package nvidia-ml-py is not installed", "pip install nvidia-ml-py")

# <nvml.h>; by number, since the exception classes are made at import time.
_NVML_REMEDIES = {
    4: "give this user access to the device files /dev/nvidia*",  # NO_PERMISSION
    9: "load the nvidia kernel module; in a container, start it with GPU access",  # DRIVER_NOT_LOADED
    12: "install the NVIDIA driver; in a container, start it with GPU access",  # LIBRARY_NOT_FOUND
    18: "reboot: the driver's library and its kernel module differ",  # LIB_RM_VERSION_MISMATCH
}


def nvidia_driver() -> str | Unavailable:
    """The version of the NVIDIA driver, as NVML tells it."""
    return _ask_nvml(lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()))


def nvidia_gpus() -> tuple[str, ...] | Unavailable:
    """The names of the GPUs in the order of NVML, which is that of their PCI addresses."""

    def names(nvml: Any) -> tuple[str, ...]:
        count = nvml.nvmlDeviceGetCount()
        return tuple(_text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count))

    found = _ask_nvml(names)
    return found or Unavailable(
        "the driver shows no GPU", "in a container, start it with GPU access; else see nvidia-smi"
    )


def nvml_binding() -> str | Unavailable:
    """The file of the module `pynvml`, which has to be that of the distribution nvidia-ml-py."""
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        return _NO_BINDING
    try:
        own_file = Path(str(metadata.distribution("nvidia-ml-py").locate_file("pynvml.py")))
    except metadata.PackageNotFoundError:
        own_file = None
    if own_file is None or own_file.resolve() != Path(spec.origin).resolve():
        # An old distribution installs a package of that name, which Python prefers to the module.
        return Unavailable(
            f"{spec.origin} is not of nvidia-ml-py", "pip uninstall pynvml, then pip install nvidia-ml-py"
        )
    return spec.origin


def gpu_counters(procfs: Path = Path("/proc")) -> str | Unavailable:
    """Who may read the GPU's performance counters, which ncu needs, when this process may.

    Source: developer.nvidia.com/ERR_NVGPUCTRPERM.
    """
    try:
        text = (procfs / "driver/nvidia/params").read_text(errors="replace")
    except OSError as error:
        return Unavailable(f"no NVIDIA kernel module: {error}", "install the NVIDIA driver")
    setting = re.search(r"^RmProfilingAdminOnly: *([01])$", text, re.MULTILINE)
    if setting is None:
        return Unavailable("the kernel module does not say who may read counters", "try qualgate profile")
    if setting[1] == "0":
        return "for every user"
    if _has_cap_sys_admin(procfs):
        return "for administrators, and this process is one"
    return Unavailable(
        "for administrators only, and this process is none (CAP_SYS_ADMIN)",
        "run as root; or set NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia and load it again",
    )


def _has_cap_sys_admin(procfs: Path) -> bool:
    effective = _fields(procfs / "self/status").get("CapEff", "0")
    return bool(int(effective, 16) >> 21 & 1)  # <linux/capability.h>: CAP_SYS_ADMIN is 21


def _ask_nvml(question: Callable[[Any], _Answer]) -> _Answer | Unavailable:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except ImportError:
        return _NO_BINDING
    except Exception as error:  # the binding's or the driver's fault, whatever it is
        remedy = _NVML_REMEDIES.get(getattr(error, "value", 0), "check that nvidia-smi works here")
        return Unavailable(f"NVML: {error}", remedy)


def _text(answer: object) -> str:
    # Bindings before version 11 return bytes.
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)


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

_ATEN_FLAGS = {
    "default": set[str](),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"},
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
    fields = _fields(procfs / "cpuinfo")
    flags = _flags(fields)
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


def aten_capabilities(procfs: Path = Path("/proc")) -> tuple[str, ...] | Unavailable:
    """The values of `ATEN_CPU_CAPABILITY` that torch obeys on this CPU, as its own choice tells them.

    Source: torch's aten/src/ATen/native/DispatchStub.cpp. Known on x86 only: elsewhere the flags of the
    kernel do not tell the length of the vectors that torch asks for.
    """
    if platform.machine() != "x86_64":
        return Unavailable(
            f"not known without torch on {platform.machine()}", "qualgate run attests what torch uses"
        )
    flags = _flags(_fields(procfs / "cpuinfo"))
    return tuple(name for name, needed in _ATEN_FLAGS.items() if needed <= flags)


def cpu_quota(procfs: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The CPUs' worth of time that control groups let this process have; None where none limits it.

    Source: Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (cgroup v1).
    """
    limits = []
    try:
        lines = (procfs / "self/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        # The limits above hold too. In a container the path may be one of the host: then its root is ours.
        for mount in (cgroups / controllers, cgroups / "cpu") if controllers else (cgroups,):
            group = PurePosixPath(path.lstrip("/"))
            limits += [_group_quota(mount / folder) for folder in (group, *group.parents)]
    return min((limit for limit in limits if limit is not None), default=None)


def _group_quota(group: Path) -> float | None:
    """One control group's own limit in CPUs, by the files of either version."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        period_us = int((group / "cpu.cfs_period_us").read_text())
        return None if quota_us < 0 else quota_us / period_us
    return None


def _fields(path: Path) -> dict[str, str]:
    """The lines `name: value` of a file of the kernel's; of several with one name, the first."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    return fields


def _flags(fields: Mapping[str, str]) -> set[str]:
    return set(fields.get("flags", fields.get("Features", "")).split())


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
