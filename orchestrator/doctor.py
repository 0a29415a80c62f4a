"""What this machine can do, what it cannot, and what to do about that: facts for `qualgate doctor`.

Nothing is run and torch is not imported, so some facts behind a platform key are not known here: a record
that may apply names them, and the gate itself says what they are.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator import probe
from orchestrator.availability import Unavailable
from orchestrator.environment import NumericSettings, default_settings
from orchestrator.models import QualificationRecord
from orchestrator.qualification import load_folders, shipped_records

# Facts of a platform key that only torch, or a library that it brings, can tell.
_TOLD_BY_TORCH = ("blas", "onednn", "compute_capability", "cuda", "cublas")
_SWITCHES = ("workspace", "threads", "vector", "onednn_isa", "mkl_cbwr")

_REMEDIES = {
    "torch": "install qualgate[fixture], or name an interpreter that has torch with --python",
    "numpy": "pip install numpy",
    "securesystemslib": 'for freeze --sign and gate --require-signature: pip install "qualgate[sign]"',
}


@dataclass(frozen=True)
class Fact:
    """One fact of the machine; `available` is false when it is missing, and `remedy` then helps."""

    section: str
    what: str
    available: bool
    found: str
    remedy: str


def examine(folders: Sequence[Path] = (), root: Path = Path("/")) -> list[Fact]:
    """Probe the machine. A missing or broken tool is a fact, never an error.

    The frozen records are the package's and those of `folders`; `root` holds the kernel's trees and what
    is installed.

    Raises:
        UsageError: when a folder does not exist.
        EvidenceError: when a record is damaged.
    """
    here = _Here(
        cpu=probe.cpu_facts(root / "proc", root / "sys"),
        quota_cpus=probe.cpu_quota(root / "proc", root / "sys/fs/cgroup"),
        vectors=probe.aten_capabilities(root / "proc"),
        packages={name: probe.package_version(name) for name in _REMEDIES},
        gpus=probe.nvidia_gpus(),
    )
    files = load_folders([shipped_records(), *folders])
    return [
        *_cpu(here),
        *_python(here),
        *_nvidia(here, root),
        *_energy(root),
        *(_record(file.record, here) for file in files if file.retirement is None),
    ]


@dataclass(frozen=True)
class _Here:
    """What facts of the machine and the applicability of records both need."""

    cpu: probe.CpuFacts
    quota_cpus: float | None
    vectors: tuple[str, ...] | Unavailable
    packages: Mapping[str, str | Unavailable]
    gpus: tuple[str, ...] | Unavailable


def _fact(section: str, what: str, found: str | Sequence[str] | Unavailable, remedy: str = "") -> Fact:
    if isinstance(found, Unavailable):
        return Fact(section, what, False, found.reason, found.remedy)
    return Fact(section, what, True, found if isinstance(found, str) else ", ".join(found), remedy)


def _cpu(here: _Here) -> list[Fact]:
    cpu = here.cpu
    return [
        _fact("cpu", "cpu", f"{cpu.vendor} {cpu.model_name} ({cpu.architecture})"),
        _fact("cpu", "vector units", cpu.vector_units or "none known"),
        _fact("cpu", "ATEN_CPU_CAPABILITY (--vector)", here.vectors),
        _threads(cpu, here.quota_cpus),
        _switches(here.vectors),
    ]


def _threads(cpu: probe.CpuFacts, quota_cpus: float | None) -> Fact:
    found = f"{cpu.affinity_cpus} of {cpu.logical_cpus} CPUs usable"
    if quota_cpus is None:
        return _fact("cpu", "threads", f"{found}, no control group limits them")
    remedy = ""
    if quota_cpus < cpu.affinity_cpus:
        remedy = f"gate --cases with --cores {max(1, int(quota_cpus))}: more would wait for each other"
    return _fact("cpu", "threads", f"{found}, a control group allows the time of {quota_cpus:g}", remedy)


def _switches(vectors: tuple[str, ...] | Unavailable) -> Fact:
    settings = default_settings(platform.machine())
    found: str | Unavailable = (
        f"vector {settings.vector}, MKL_CBWR {settings.mkl_cbwr}, "
        f"oneDNN {settings.onednn_isa}, threads {settings.threads}"
    )
    if not isinstance(vectors, Unavailable) and settings.vector not in vectors:
        found = Unavailable(
            f"this CPU has no {settings.vector}, which they ask for",
            f"give --vector {vectors[-1]} --mkl-cbwr COMPATIBLE --onednn-isa DEFAULT",
        )
    return _fact("cpu", "default switches", found)


def _python(here: _Here) -> list[Fact]:
    facts = [_fact("python", "python", platform.python_version())]
    for name, version in here.packages.items():
        if isinstance(version, Unavailable):
            version = Unavailable(version.reason, _REMEDIES[name])
        facts.append(_fact("python", name, version))
    return facts


def _nvidia(here: _Here, root: Path) -> list[Fact]:
    ncu = probe.find_ncu(os.environ.get("PATH", ""), root)
    version = ncu if isinstance(ncu, Unavailable) else probe.ncu_version(ncu)
    if not isinstance(version, Unavailable):
        # Its name and copyright come first.
        version = f"{version.strip().splitlines()[-1]}, {ncu}"
    return [
        _fact("nvidia", "NVML (pynvml)", probe.nvml_binding()),
        _fact("nvidia", "driver", probe.nvidia_driver()),
        _fact("nvidia", "GPUs", here.gpus),
        _fact("nvidia", "ncu", version),
        _fact("nvidia", "performance counters", probe.gpu_counters(root / "proc")),
    ]


def _energy(root: Path) -> list[Fact]:
    domains = probe.rapl_domains(root / "sys/class/powercap")
    found = domains if isinstance(domains, Unavailable) else [domain.name for domain in domains]
    return [_fact("energy", "CPU packages (RAPL)", found)]


# --- frozen records -------------------------------------------------------------------------------


def _record(record: QualificationRecord, here: _Here) -> Fact:
    """Which level a record can be asked for here, as far as that is known without running."""
    what = f"{record.name} ({', '.join(frozen.case.name for frozen in record.cases)})"
    key = record.platform_key
    if record.numerics.name == "portable":
        level = "bitwise" if "bitwise" in record.levels else "predictions"
        return _fact("records", what, f"level {level}, on every machine ({key['numerics']})")
    differing = _differences(key, here) if "bitwise" in record.levels else ["the record allows no more"]
    if not differing:
        unknown = ", ".join(name for name in _TOLD_BY_TORCH if name in key)
        found = f"level bitwise, if {unknown} are the frozen ones: not known without running"
        return _fact("records", what, found, _how(record))
    reason = "; ".join(differing)
    remedy = "for this platform's bits, freeze a record here; a portable record needs none"
    if "predictions" in record.levels:
        return _fact("records", what, f"level predictions at most: {reason}", remedy)
    return _fact("records", what, Unavailable(f"does not apply: {reason}", remedy))


def _differences(key: Mapping[str, str], here: _Here) -> list[str]:
    """The facts of a platform key that are others here, or that cannot be had here."""
    torch = here.packages["torch"]
    candidates = {
        "machine": (platform.machine(),),
        "cpu_vendor": (here.cpu.vendor,),
        "torch": () if isinstance(torch, Unavailable) else (torch,),
        "gpu": () if isinstance(here.gpus, Unavailable) else here.gpus,
    }
    if not isinstance(here.vectors, Unavailable):
        candidates["vector"] = here.vectors
    return [
        f"{name} {key[name]}, here {', '.join(found) or 'none'}"
        for name, found in candidates.items()
        if name in key and not any(_may_be(key[name], value) for value in found)
    ]


def _may_be(frozen: str, found: str) -> bool:
    # A package's metadata may leave out the build: 2.13.0 for 2.13.0+cu130.
    return found == frozen or ("+" not in found and found == frozen.partition("+")[0])


def _how(record: QualificationRecord) -> str:
    """The options that make a gate run under a record's settings, where they are not the defaults."""
    settings = NumericSettings(**record.cases[0].settings.model_dump())
    chosen, default = asdict(settings), asdict(default_settings(platform.machine(), settings.device))
    options = [
        f"--{name.replace('_', '-')} {chosen[name]}" for name in _SWITCHES if chosen[name] != default[name]
    ]
    if settings.device != "cpu":
        options.insert(0, f"--device {settings.device}")
    return " ".join(["gate --numerics native", *options])
