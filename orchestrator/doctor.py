"""What this machine can do, what it cannot, and what to do about that: facts for `qualgate doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass

from orchestrator import probe
from orchestrator.availability import Unavailable
from orchestrator.environment import default_settings
from orchestrator.qualification import FrozenFile, load_folders, shipped_records


@dataclass(frozen=True)
class Fact:
    """One fact of the machine; `available` is false when it is missing, and `remedy` then helps."""

    what: str
    available: bool
    found: str
    remedy: str


def examine() -> list[Fact]:
    """Probe the machine. A missing or broken tool is a fact, never an error.

    Raises:
        EvidenceError: when a shipped record is damaged.
    """
    cpu = probe.cpu_facts()
    ncu = probe.find_ncu(os.environ.get("PATH", ""))
    settings = default_settings(platform.machine())
    facts = [
        Fact("python", True, platform.python_version(), ""),
        *(_fact(name, probe.package_version(name)) for name in ("torch", "numpy", "nvidia-ml-py")),
        _fact("NVIDIA driver", probe.nvidia_driver()),
        _fact("ncu", ncu if isinstance(ncu, Unavailable) else probe.ncu_version(ncu)),
        Fact("cpu", True, f"{cpu.vendor} {cpu.model_name} ({cpu.architecture})", ""),
        Fact("vector units", True, ", ".join(cpu.vector_units) or "none known", ""),
        Fact("cores", True, f"{cpu.affinity_cpus} of {cpu.logical_cpus} usable", ""),
        _fact("cpu energy (RAPL)", _domains()),
        Fact(
            "default switches",
            True,
            f"vector {settings.vector}, MKL_CBWR {settings.mkl_cbwr}, "
            f"oneDNN {settings.onednn_isa}, threads {settings.threads}",
            "",
        ),
    ]
    return facts + [_record(file) for file in load_folders([shipped_records()])]


def _fact(what: str, found: str | os.PathLike[str] | Unavailable) -> Fact:
    if isinstance(found, Unavailable):
        return Fact(what, False, f"unavailable: {found.reason}", found.remedy)
    lines = [line for line in str(found).splitlines() if line.strip()]
    return Fact(what, True, lines[-1] if lines else "", "")


def _domains() -> str | Unavailable:
    domains = probe.rapl_domains()
    if isinstance(domains, Unavailable):
        return domains
    return ", ".join(domain.name for domain in domains)


def _record(file: FrozenFile) -> Fact:
    """Whether a shipped record can apply here, as far as that is known without importing torch."""
    key = file.record.platform_key
    torch = probe.package_version("torch")
    here = {"machine": platform.machine(), "cpu_vendor": probe.cpu_facts().vendor}
    if not isinstance(torch, Unavailable) and importlib.util.find_spec("torch") is not None:
        here["torch"] = torch
    # A portable record names no machine: it applies everywhere.
    differing = [
        f"{name} {key[name]}, here {value}"
        for name, value in here.items()
        if name in key and key[name] != value
    ]
    cases = ", ".join(case.case.name for case in file.record.cases)
    if not differing:
        return Fact(f"record {file.record.name}", True, f"{cases}: this platform, as far as is known", "")
    lower = "level predictions at most" if "predictions" in file.record.levels else "does not apply"
    return Fact(
        f"record {file.record.name}", True, f"{cases}: {lower} ({'; '.join(differing)})", "freeze one here"
    )
