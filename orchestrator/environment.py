"""The task process's environment, built from nothing: numeric switches, and an allowlist.

Pure. Rules:

- A variable of the orchestrator's own environment reaches the task process only when it is on the
  allowlist here or the user asked for it by name. Whatever else is set out there changes nothing.
- Every switch that was found to move bits is set, so that no library's default decides in silence.
- A value is refused unless the library that reads it obeys it. torch, MKL and oneDNN ignore, or replace,
  a value that they do not know, and the record would then name a setting that was never in force.
- The environment's digest goes along, so that the task process can attest what it was started with.

Whether the CPU at hand has the vector unit asked for is not known here: the task process compares what
torch uses with what was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError

ATTESTATION_VARIABLE: Final = "QUALGATE_ENVIRONMENT_SHA256"
NAMES_VARIABLE: Final = "QUALGATE_ENVIRONMENT_NAMES"

DEVICES: Final = ("cpu", "cuda")

# The two values under which cuBLAS is deterministic, and the one that takes its workspace away.
WORKSPACES: Final = (":16:8", ":4096:8", ":0:0")

# libgomp takes a number beyond its own bounds for no number at all; no machine here has more CPUs.
MAX_THREADS: Final = 1024

_INHERITED = ("PATH", "HOME", "TMPDIR")

_FIXED = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    # Device numbers in the order of nvidia-smi, so that an index means the same GPU to everyone.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}

# Names that nobody can ask for. The first group runs code in the task process or redirects its
# imports; the second moves bits past the settings that a record holds.
_INJECTS_CODE = ("PYTHON", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "CUDA_INJECTION")
_MOVES_BITS = (
    "ATEN_",
    "CUBLAS",
    "CUDNN_",
    "DISABLE_ADDMM_CUDA_LT",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "MKL_",
    "NPY_",
    "NVIDIA_TF32_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "TORCH_",
)


@dataclass(frozen=True)
class NumericSettings:
    """What is set outside the program and moves its bits.

    Args:
        device: `cpu` or `cuda`.
        workspace: `CUBLAS_WORKSPACE_CONFIG`.
        threads: OpenMP and BLAS threads, from 1.
        vector: `ATEN_CPU_CAPABILITY`, the vector unit of torch's own kernels.
        onednn_isa: `ONEDNN_MAX_CPU_ISA`, the newest instructions that oneDNN may use.
        mkl_cbwr: `MKL_CBWR`, the code path of Intel MKL.
    """

    device: str
    workspace: str
    threads: int
    vector: str
    onednn_isa: str
    mkl_cbwr: str


@dataclass(frozen=True)
class ChildEnvironment:
    """An environment to start the task process with.

    Args:
        variables: All of it, `ATTESTATION_VARIABLE` included.
        numeric: Those of the variables that move bits.
        sha256: Digest of the variables without `ATTESTATION_VARIABLE`, as 64 hex digits.
    """

    variables: dict[str, str]
    numeric: dict[str, str]
    sha256: str


@dataclass(frozen=True)
class _Vocabulary:
    """The values that the libraries obey on one architecture."""

    vectors: tuple[str, ...] = ("default",)
    onednn_isas: tuple[str, ...] = ("DEFAULT",)
    mkl_branches: tuple[str, ...] = ("AUTO",)


# On x86 tried one by one with torch 2.13, its oneDNN 3.12 and its MKL, by what each reports to use.
# oneDNN's names from AVX512_CORE_FP16 on are those in its binary: the CPU ran them like DEFAULT. Arm,
# Power and Z follow the libraries' sources, untried.
# Left out although documented: MKL's AVX, SSSE3 and SSE3, which run an older branch under their name,
# and lower-case spellings, which MKL ignores. `,STRICT` is documented for the branches below alone.
_X86 = _Vocabulary(
    vectors=("default", "avx2", "avx512"),
    onednn_isas=(
        "DEFAULT",
        "ALL",
        "SSE41",
        "AVX",
        "AVX2",
        "AVX2_VNNI",
        "AVX2_VNNI_2",
        "AVX512_CORE",
        "AVX512_CORE_VNNI",
        "AVX512_CORE_BF16",
        "AVX512_CORE_FP16",
        "AVX512_CORE_AMX",
        "AVX512_CORE_AMX_FP16",
        "AVX10_1_512",
        "AVX10_1_512_AMX",
        "AVX10_1_512_AMX_FP16",
    ),
    mkl_branches=(
        "AUTO",
        "COMPATIBLE",
        "SSE2",
        "SSE4_1",
        "SSE4_2",
        "AVX2",
        "AVX512",
        "AVX512_E1",
        "AUTO,STRICT",
        "AVX2,STRICT",
        "AVX512,STRICT",
        "AVX512_E1,STRICT",
    ),
)
_ARM = _Vocabulary(
    vectors=("default", "sve256"),
    onednn_isas=("DEFAULT", "ADVANCED_SIMD", "SVE_128", "SVE_256", "SVE_512"),
)
_VOCABULARIES = {
    "x86_64": _X86,
    "aarch64": _ARM,
    "arm64": _ARM,
    "ppc64le": _Vocabulary(vectors=("default", "vsx")),
    "s390x": _Vocabulary(vectors=("default", "zvector")),
}
# MKL exists on x86 only and a plain vector unit everywhere: elsewhere there is nothing to choose.
_OTHER = _Vocabulary()


def default_settings(machine: str, device: str = "cpu") -> NumericSettings:
    """The settings of the frozen records: one thread, and AVX2 wherever x86 gives a choice.

    AVX2 because every x86 machine of the last decade has it: bits of a newer unit could be compared on
    fewer machines. `machine` is `platform.machine()`.
    """
    on_x86 = machine == "x86_64"
    return NumericSettings(
        device=device,
        workspace=":16:8",
        threads=1,
        vector="avx2" if on_x86 else "default",
        onednn_isa="AVX2" if on_x86 else "DEFAULT",
        mkl_cbwr="AVX2" if on_x86 else "AUTO",
    )


def validate(settings: NumericSettings, machine: str) -> None:
    """Refuse settings that a library would not obey on `machine` (`platform.machine()`).

    Raises:
        UsageError: naming every setting at fault, what was found and what is allowed.
    """
    vocabulary = _VOCABULARIES.get(machine, _OTHER)
    allowed = {
        "device": DEVICES,
        "workspace": WORKSPACES,
        "vector": vocabulary.vectors,
        "onednn_isa": vocabulary.onednn_isas,
        "mkl_cbwr": vocabulary.mkl_branches,
    }
    faults = [
        f"{name}: found {getattr(settings, name)!r}, expected {' or '.join(values)}"
        for name, values in allowed.items()
        if getattr(settings, name) not in values
    ]
    threads = settings.threads
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        faults.append(f"threads: found {threads!r}, expected a whole number, 1 to {MAX_THREADS}")
    if faults:
        raise UsageError("; ".join(faults), where=f"settings for {machine}")


def mkl_branches(machine: str) -> tuple[str, ...]:
    """The values of `MKL_CBWR` that are obeyed on `machine` (`platform.machine()`)."""
    return _VOCABULARIES.get(machine, _OTHER).mkl_branches


def build_environment(
    settings: NumericSettings,
    *,
    inherited: Mapping[str, str],
    machine: str,
    pass_through: Sequence[str] = (),
    under_profiler: bool = False,
) -> ChildEnvironment:
    """Build the environment that the task process is started with.

    `inherited` is the environment to choose from; `pass_through` names further variables of it to hand
    on, such as `CUDA_VISIBLE_DEVICES`. They count in the digest like all others. `under_profiler` also names
    every variable in `NAMES_VARIABLE`, so that the task process can tell them from those a profiler adds.

    Raises:
        UsageError: for settings that `validate` refuses, for a name that cannot be handed on, and for a
            value that a record cannot hold: one with bytes that are not UTF-8, or with NUL.
    """
    from orchestrator.hashing import environment_sha256

    validate(settings, machine)
    numeric = numeric_variables(settings)
    own = _FIXED | numeric
    for name in pass_through:
        _check_request(name, inherited, own)
    names = [*(name for name in _INHERITED if name in inherited), *pass_through]
    chosen = {name: _recordable(name, inherited[name]) for name in names}
    variables = dict(sorted((chosen | own).items()))
    if under_profiler:
        variables[NAMES_VARIABLE] = ",".join([*variables, NAMES_VARIABLE])
    sha256 = environment_sha256(variables)
    return ChildEnvironment({**variables, ATTESTATION_VARIABLE: sha256}, numeric, sha256)


def switches_numerics(name: str) -> bool:
    """Whether a numeric library takes a variable of that name for a switch."""
    return name.startswith(_MOVES_BITS)


def numeric_variables(settings: NumericSettings) -> dict[str, str]:
    """Every variable that moves bits, with the value that the settings mean."""
    threads = str(settings.threads)
    return {
        "CUBLAS_WORKSPACE_CONFIG": settings.workspace,
        "NVIDIA_TF32_OVERRIDE": "0",
        "ATEN_CPU_CAPABILITY": settings.vector,
        "ONEDNN_MAX_CPU_ISA": settings.onednn_isa,
        "MKL_CBWR": settings.mkl_cbwr,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        # Either would let a library use fewer threads under load, and so add up in another order.
        "OMP_DYNAMIC": "FALSE",
        "MKL_DYNAMIC": "FALSE",
    }


def _check_request(name: str, inherited: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Refuse a name that cannot be handed on; names set here come first, since they always exist."""
    if name in own or name in (ATTESTATION_VARIABLE, NAMES_VARIABLE):
        problem = "qualgate sets this variable itself"
    elif name.startswith(_INJECTS_CODE):
        problem = "it would run or redirect code in the task process"
    elif switches_numerics(name):
        problem = "it can move bits, and no setting of the record would say so"
    elif name not in inherited:
        problem = "it is not set in this environment"
    else:
        return
    raise UsageError(f"cannot pass {name!r} through: {problem}")


def _recordable(name: str, value: str) -> str:
    """The value, if a record can hold it.

    Refused and not dropped: without its TMPDIR or PATH the task process would do something else than
    the user set up, and the record would not say why.
    """
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(
            f"found {value!r}, expected UTF-8 text without NUL",
            where=f"environment variable {name}",
            remedy="set it to another value, or unset it",
        )
    return value
