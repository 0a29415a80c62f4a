from __future__ import annotations

import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixture.digests import environment_sha256
from orchestrator.environment import (
    ATTESTATION_VARIABLE,
    NAMES_VARIABLE,
    NumericSettings,
    build_environment,
    default_settings,
    switches_numerics,
    validate,
)
from orchestrator.errors import UsageError

X86 = default_settings("x86_64")


def build(inherited: dict[str, str], *pass_through: str) -> dict[str, str]:
    return build_environment(X86, inherited=inherited, machine="x86_64", pass_through=pass_through).variables


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("x86_64", NumericSettings("cpu", ":16:8", 1, "avx2", "AVX2", "AVX2")),
        ("aarch64", NumericSettings("cpu", ":16:8", 1, "default", "DEFAULT", "AUTO")),
        ("riscv64", NumericSettings("cpu", ":16:8", 1, "default", "DEFAULT", "AUTO")),
    ],
)
def test_defaults_are_valid_on_their_machine(machine: str, expected: NumericSettings) -> None:
    assert default_settings(machine) == expected
    validate(expected, machine)
    validate(default_settings(machine, "cuda"), machine)


@pytest.mark.parametrize(
    ("machine", "change", "found"),
    [
        pytest.param("x86_64", {"device": "gpu"}, "device: found 'gpu'", id="device"),
        pytest.param("x86_64", {"workspace": ":32:8"}, "workspace: found ':32:8'", id="workspace"),
        pytest.param("x86_64", {"vector": "AVX2"}, "vector: found 'AVX2'", id="torch-wants-lower"),
        pytest.param("x86_64", {"vector": "sve256"}, "vector: found 'sve256'", id="arm-on-x86"),
        pytest.param("aarch64", {"vector": "avx2"}, "vector: found 'avx2'", id="x86-on-arm"),
        pytest.param("x86_64", {"mkl_cbwr": "avx2"}, "mkl_cbwr: found 'avx2'", id="mkl-wants-upper"),
        pytest.param("x86_64", {"mkl_cbwr": "AVX"}, "mkl_cbwr: found 'AVX'", id="mkl-runs-another"),
        pytest.param("x86_64", {"mkl_cbwr": "SSE2,STRICT"}, "mkl_cbwr", id="strict-undocumented"),
        pytest.param("aarch64", {"mkl_cbwr": "AVX2"}, "mkl_cbwr: found 'AVX2'", id="no-mkl-on-arm"),
        pytest.param("x86_64", {"onednn_isa": "AVX512"}, "onednn_isa: found 'AVX512'", id="onednn"),
        pytest.param("x86_64", {"onednn_isa": ""}, "onednn_isa: found ''", id="empty"),
        pytest.param("x86_64", {"threads": 0}, "threads: found 0", id="no-threads"),
        pytest.param("x86_64", {"threads": 1025}, "threads: found 1025", id="many-threads"),
        pytest.param("x86_64", {"threads": True}, "threads: found True", id="bool-threads"),
        pytest.param("x86_64", {"threads": 2.0}, "threads: found 2.0", id="float-threads"),
    ],
)
def test_a_value_that_no_library_obeys_is_refused(machine: str, change: dict[str, Any], found: str) -> None:
    settings = replace(default_settings(machine), **change)

    with pytest.raises(UsageError) as caught:
        validate(settings, machine)
    assert found in str(caught.value)
    assert "expected" in str(caught.value)
    with pytest.raises(UsageError):
        build_environment(settings, inherited={}, machine=machine)


def test_every_fault_is_named_at_once_with_what_is_allowed() -> None:
    settings = replace(X86, workspace="", vector="avx9", threads=-1)

    with pytest.raises(UsageError) as caught:
        validate(settings, "x86_64")
    assert str(caught.value) == (
        "settings for x86_64: workspace: found '', expected :16:8 or :4096:8 or :0:0; "
        "vector: found 'avx9', expected default or avx2 or avx512; "
        "threads: found -1, expected a whole number, 1 to 1024"
    )


@pytest.mark.parametrize(
    ("machine", "change"),
    [
        ("x86_64", {"vector": "avx512", "onednn_isa": "AVX512_CORE_AMX", "mkl_cbwr": "AVX512"}),
        ("x86_64", {"mkl_cbwr": "AVX2,STRICT", "workspace": ":0:0", "threads": 1024}),
        ("aarch64", {"vector": "sve256", "onednn_isa": "SVE_256"}),
        ("ppc64le", {"vector": "vsx"}),
        ("s390x", {"vector": "zvector"}),
    ],
)
def test_other_values_that_the_libraries_obey_are_accepted(machine: str, change: dict[str, Any]) -> None:
    validate(replace(default_settings(machine), **change), machine)


# --- the environment ------------------------------------------------------------------------------


def test_the_whole_environment_of_a_bare_machine() -> None:
    settings = NumericSettings("cuda", ":4096:8", 3, "avx512", "AVX512_CORE", "AVX512,STRICT")
    numeric = {
        "ATEN_CPU_CAPABILITY": "avx512",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "MKL_CBWR": "AVX512,STRICT",
        "MKL_DYNAMIC": "FALSE",
        "MKL_NUM_THREADS": "3",
        "NVIDIA_TF32_OVERRIDE": "0",
        "OMP_DYNAMIC": "FALSE",
        "OMP_NUM_THREADS": "3",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "OPENBLAS_NUM_THREADS": "3",
    }
    plain = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    built = build_environment(settings, inherited={}, machine="x86_64")

    assert built.numeric == numeric
    assert built.variables == numeric | plain | {ATTESTATION_VARIABLE: built.sha256}


def test_the_digest_is_the_one_that_the_task_process_computes() -> None:
    built = build_environment(X86, inherited={"HOME": "/ä"}, machine="x86_64")
    seen = {name: value for name, value in built.variables.items() if name != ATTESTATION_VARIABLE}

    assert built.sha256 == built.variables[ATTESTATION_VARIABLE] == environment_sha256(seen)


def test_the_digest_tells_every_difference_and_no_order() -> None:
    def digest(inherited: dict[str, str], settings: NumericSettings = X86) -> str:
        return build_environment(settings, inherited=inherited, machine="x86_64").sha256

    assert digest({"PATH": "/a", "HOME": "/b"}) == digest({"HOME": "/b", "PATH": "/a"})
    assert digest({"PATH": "/a"}) != digest({"PATH": "/b"}) != digest({})
    assert digest({}) != digest({}, replace(X86, threads=2))


TEMPTING = (
    "PATH HOME TMPDIR TZ LC_ALL PYTHONPATH LD_PRELOAD LD_LIBRARY_PATH OMP_NUM_THREADS MKL_CBWR "
    f"CUDA_VISIBLE_DEVICES {ATTESTATION_VARIABLE}"
).split()
NAMES = st.one_of(
    st.sampled_from(TEMPTING),
    st.text(string.ascii_uppercase + string.digits + "_", min_size=1),
    st.text(min_size=1),
)
# Text of a POSIX environment, as Python decodes it: any character, and undecodable bytes as surrogates.
ANY_TEXT = st.text(st.one_of(st.characters(exclude_characters="\0"), st.just("\udcff")))


@given(inherited=st.dictionaries(NAMES, ANY_TEXT))
def test_nothing_outside_the_allowlist_gets_through(inherited: dict[str, str]) -> None:
    own = build({})
    allowed = {name: inherited[name] for name in ("PATH", "HOME", "TMPDIR") if name in inherited}
    if any("\ud800" <= character <= "\udfff" for character in "".join(allowed.values())):
        with pytest.raises(UsageError):
            build(inherited)
        return
    built = build(inherited)

    del own[ATTESTATION_VARIABLE], built[ATTESTATION_VARIABLE]
    assert built == own | allowed


@pytest.mark.parametrize("value", ["/scratch/\udcff", "/scratch/\0x"], ids=["not-utf-8", "nul"])
def test_a_value_that_a_record_cannot_hold_is_refused_where_it_would_count(value: str) -> None:
    with pytest.raises(UsageError, match=r"environment variable TMPDIR: .*expected UTF-8 text"):
        build({"TMPDIR": value})
    with pytest.raises(UsageError, match="environment variable NOTE"):
        build({"NOTE": value}, "NOTE")
    assert "NOTE" not in build({"NOTE": value})


# --- what the user asks for by name ---------------------------------------------------------------


def test_what_was_asked_for_gets_through_and_counts_in_the_digest() -> None:
    inherited = {"CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": "/cuda", "OTHER": "1"}
    built = build(inherited, "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")

    # An empty list of devices means "none" and is not the same as no list.
    assert built["CUDA_VISIBLE_DEVICES"] == ""
    assert built["LD_LIBRARY_PATH"] == "/cuda"
    assert "OTHER" not in built
    assert built[ATTESTATION_VARIABLE] != build(inherited)[ATTESTATION_VARIABLE]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ABSENT", "it is not set in this environment"),
        ("OMP_NUM_THREADS", "qualgate sets this variable itself"),
        ("CUDA_DEVICE_ORDER", "qualgate sets this variable itself"),
        ("LC_ALL", "qualgate sets this variable itself"),
        (NAMES_VARIABLE, "qualgate sets this variable itself"),
        (ATTESTATION_VARIABLE, "qualgate sets this variable itself"),
        ("PYTHONPATH", "it would run or redirect code"),
        ("LD_PRELOAD", "it would run or redirect code"),
        ("LD_AUDIT", "it would run or redirect code"),
        # The old name of ONEDNN_MAX_CPU_ISA, and switches that change a GPU's matrix products.
        ("DNNL_MAX_CPU_ISA", "it can move bits"),
        ("MKL_ENABLE_INSTRUCTIONS", "it can move bits"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "it can move bits"),
        ("GLIBC_TUNABLES", "it can move bits"),
    ],
)
def test_what_must_not_be_asked_for_is_refused(name: str, problem: str) -> None:
    inherited = {} if name == "ABSENT" else {name: "1"}

    with pytest.raises(UsageError) as caught:
        build(inherited, name)
    assert f"cannot pass {name!r} through: {problem}" in str(caught.value)


# --- under a profiler -----------------------------------------------------------------------------


def test_under_a_profiler_every_variable_is_named_and_the_names_are_attested() -> None:
    plain = build_environment(X86, inherited={"PATH": "/bin"}, machine="x86_64")
    named = build_environment(X86, inherited={"PATH": "/bin"}, machine="x86_64", under_profiler=True)
    assert named.variables.keys() - plain.variables.keys() == {NAMES_VARIABLE}
    assert NAMES_VARIABLE not in plain.variables
    names = named.variables[NAMES_VARIABLE].split(",")
    assert sorted(names) == sorted(named.variables.keys() - {ATTESTATION_VARIABLE})
    held = {name: value for name, value in named.variables.items() if name != ATTESTATION_VARIABLE}
    assert named.sha256 == environment_sha256(held) != plain.sha256


@pytest.mark.parametrize(
    ("name", "is_switch"),
    [("MKL_DEBUG_CPU_TYPE", True), ("OMP_PLACES", True), ("CUDA_INJECTION64_PATH", False), ("PWD", False)],
)
def test_numeric_switches_are_known_by_name(name: str, is_switch: bool) -> None:
    assert switches_numerics(name) is is_switch
