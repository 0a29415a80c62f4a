"""The platform key: which facts must be equal before bits can be demanded to be.

Pure. The key holds what was found to move bits and nothing else; the kernel probes stay out of it, since
a faulty chip must fail the gate and not become another platform. Facts outside the key (driver, NumPy,
CPU model) are recorded and shown when something differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.models import NumericsVersion, Platform, StackChange

_CPU = (
    "machine",
    "cpu_vendor",
    "torch",
    "blas",
    "mkl_cbwr",
    "onednn",
    "onednn_isa",
    "vector",
    "threads",
)
_CUDA = ("gpu", "compute_capability", "torch", "cuda", "cublas", "workspace")


def platform_key(platform: Platform, numerics: NumericsVersion) -> dict[str, str]:
    """The platform key of facts measured in the task process.

    Portable numerics give the same bits on every machine, so there the key is their version alone.
    """
    if numerics.name == "portable":
        return {"numerics": f"{numerics.name} {numerics.version}"}
    names = _CUDA if platform.device == "cuda" else _CPU
    facts = {name: str(getattr(platform, name)) for name in names}
    return {"numerics": f"{numerics.name} {numerics.version}", "device": platform.device, **facts}


def key_text(key: Mapping[str, str]) -> str:
    """A platform key in one line, for people."""
    return ", ".join(f"{name} {value}" for name, value in key.items())


def changes(frozen: Mapping[str, object], found: Mapping[str, object]) -> list[StackChange]:
    """What differs between two sets of facts, in the order of the frozen ones."""
    names = [*frozen, *(name for name in found if name not in frozen)]
    return [
        StackChange(what=name, frozen=_text(frozen.get(name)), found=_text(found.get(name)))
        for name in names
        if frozen.get(name) != found.get(name)
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
