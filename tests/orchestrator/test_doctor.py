"""What `qualgate doctor` says: directory trees for the kernel's, tools on a PATH, a double at NVML."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import types
from pathlib import Path

import pytest

from orchestrator import doctor, probe
from orchestrator.availability import Unavailable
from orchestrator.codec import content_sha256, encode, load_as
from orchestrator.models import QualificationRecord
from orchestrator.qualification import shipped_records
from tests.orchestrator.checkout import ROOT

ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="about x86's vector units")
HASWELL = "fma avx2"
SKYLAKE = "fma avx2 avx512f avx512dq avx512bw avx512vl"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def cpuinfo(flags: str, vendor: str = "AuthenticAMD") -> str:
    return f"processor: 0\nvendor_id: {vendor}\nmodel name: A CPU\nflags: {flags}"


def fake_nvml(monkeypatch: pytest.MonkeyPatch, *gpus: str | bytes) -> None:
    module = types.ModuleType("pynvml")
    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
        "nvmlDeviceGetName": lambda handle: handle,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    module.__spec__ = types.SimpleNamespace(origin="/elsewhere/pynvml/__init__.py")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "pynvml", module)


def facts(root: Path, *folders: Path) -> dict[str, doctor.Fact]:
    found = doctor.examine(folders, root)
    assert all(fact.available or fact.remedy for fact in found), "what is missing has a remedy"
    return {fact.what: fact for fact in found}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing: no kernel trees, no tools, no NVML."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return tmp_path


def test_a_bare_machine_has_facts_with_remedies_and_no_error(bare: Path) -> None:
    found = facts(bare)
    missing = {what for what, fact in found.items() if not fact.available}
    assert {"driver", "GPUs", "ncu", "performance counters", "CPU packages (RAPL)"} <= missing
    assert "no control group limits them" in found["threads"].found


# --- CPU ------------------------------------------------------------------------------------------


@ON_X86
@pytest.mark.parametrize(
    ("flags", "values"),
    [
        ("sse2", ("default",)),
        ("avx2", ("default",)),  # torch asks for fma with it
        (HASWELL, ("default", "avx2")),
        (f"{HASWELL} avx512f", ("default", "avx2")),
        (SKYLAKE, ("default", "avx2", "avx512")),
    ],
)
def test_vector_values_are_those_that_torch_obeys(bare: Path, flags: str, values: tuple[str, ...]) -> None:
    tree(bare, {"proc/cpuinfo": cpuinfo(flags)})
    assert probe.aten_capabilities(bare / "proc") == values
    assert facts(bare)["ATEN_CPU_CAPABILITY (--vector)"].found == ", ".join(values)


@ON_X86
def test_default_switches_that_this_cpu_cannot_have_are_said(bare: Path) -> None:
    tree(bare, {"proc/cpuinfo": cpuinfo("sse2")})
    fact = facts(bare)["default switches"]
    assert not fact.available
    assert "no avx2" in fact.found
    assert "--vector default" in fact.remedy


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        pytest.param({}, None, id="no-trees"),
        pytest.param({"proc/self/cgroup": "0::/a/b"}, None, id="no-limit-files"),
        pytest.param({"proc/self/cgroup": "0::/a/b", "cg/a/b/cpu.max": "max 100000"}, None, id="max"),
        pytest.param({"proc/self/cgroup": "0::/a/b", "cg/a/b/cpu.max": "150000 100000"}, 1.5, id="v2"),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b", "cg/a/b/cpu.max": "max 100000", "cg/a/cpu.max": "50000 100000"},
            0.5,
            id="v2-of-a-group-above",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/of/the/host", "cg/cpu.max": "200000 100000"}, 2.0, id="v2-container"
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n0::/",
                "cg/cpu,cpuacct/a/cpu.cfs_quota_us": "300000",
                "cg/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "cg/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cg/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            3.0,
            id="v1",
        ),
        pytest.param({"proc/self/cgroup": "0::/a", "cg/a/cpu.max": "nonsense"}, None, id="nonsense"),
    ],
)
def test_the_limit_of_the_control_groups(tmp_path: Path, files: dict[str, str], cpus: float | None) -> None:
    tree(tmp_path, files)
    assert probe.cpu_quota(tmp_path / "proc", tmp_path / "cg") == cpus


def test_a_limit_below_the_usable_cpus_comes_with_a_remedy(bare: Path) -> None:
    tree(bare, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"})
    fact = facts(bare)["threads"]
    assert fact.found.endswith("a control group allows the time of 0.5")
    assert "--cores 1" in fact.remedy


# --- NVIDIA ---------------------------------------------------------------------------------------


def test_gpus_are_named_without_torch(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, "NVIDIA A100-SXM4-40GB", b"NVIDIA H200")
    found = facts(bare)
    assert found["GPUs"].found == "NVIDIA A100-SXM4-40GB, NVIDIA H200"
    assert found["driver"].found == "580.95.05"


def test_a_driver_without_gpus_is_a_missing_gpu(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch)
    fact = facts(bare)["GPUs"]
    assert (fact.available, fact.found) == (False, "the driver shows no GPU")


def test_a_pynvml_of_another_distribution_is_said(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch)
    fact = facts(bare)["NVML (pynvml)"]
    assert not fact.available
    assert fact.found == "/elsewhere/pynvml/__init__.py is not of nvidia-ml-py"
    assert "pip uninstall pynvml" in fact.remedy


def test_the_pynvml_of_nvidia_ml_py_is_named() -> None:
    found = probe.nvml_binding()
    if isinstance(probe.package_version("nvidia-ml-py"), Unavailable):
        pytest.skip("nvidia-ml-py is not installed")
    assert isinstance(found, str)
    assert found.endswith("pynvml.py")


def test_ncu_is_told_by_its_version_and_place(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = bare / "mine" / "ncu"
    ncu.parent.mkdir()
    ncu.write_text("#!/bin/sh\necho 'NVIDIA (R) Nsight Compute'\necho 'Version 2025.1.1.0 (build 1)'\n")
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(ncu.parent))
    assert facts(bare)["ncu"].found == f"Version 2025.1.1.0 (build 1), {ncu}"


@pytest.mark.parametrize(
    ("params", "capabilities", "expected"),
    [
        pytest.param("RmProfilingAdminOnly: 0", "0", "for every user", id="open"),
        pytest.param("A: 1\nRmProfilingAdminOnly: 1", "0", None, id="closed"),
        pytest.param(
            "RmProfilingAdminOnly: 1",
            "000001ffffffffff",
            "for administrators, and this process is one",
            id="root",
        ),
        pytest.param("RmProfilingAdminOnly: 1", "00000000a80425fb", None, id="root-in-a-container"),
        pytest.param("Something: 1", "0", None, id="silent"),
    ],
)
def test_who_may_read_counters(bare: Path, params: str, capabilities: str, expected: str | None) -> None:
    tree(bare, {"proc/driver/nvidia/params": params, "proc/self/status": f"Name: x\nCapEff:\t{capabilities}"})
    fact = facts(bare)["performance counters"]
    assert fact.available is (expected is not None)
    assert fact.found == expected or expected is None


# --- energy ---------------------------------------------------------------------------------------


def test_energy_domains_are_named(bare: Path) -> None:
    zone = "sys/class/powercap/intel-rapl:0"
    tree(bare, {f"{zone}/name": "package-0", f"{zone}/energy_uj": "12345"})
    assert facts(bare)["CPU packages (RAPL)"].found == "package-0"


# --- packages and records -------------------------------------------------------------------------


def without_torch(name: str) -> str | Unavailable:
    return Unavailable("the package torch is not installed", "pip install torch") if name == "torch" else "1"


def test_a_missing_torch_says_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "package_version", without_torch)
    found = facts(bare)
    assert "qualgate[fixture]" in found["torch"].remedy
    native = found["digits-native-cpu (digits)"]
    assert native.available
    assert "torch 2.13.0+cpu, here none" in native.found


def test_a_portable_record_applies_to_every_machine(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "package_version", lambda name: "9.9")
    fact = facts(bare)["digits-portable (digits)"]
    assert (fact.available, fact.found) == (True, "level bitwise, on every machine (portable 1)")


@ON_X86
@pytest.mark.parametrize(
    ("version", "vendor", "flags", "found"),
    [
        pytest.param(
            "2.13.0+cpu", "AuthenticAMD", HASWELL,
            "level bitwise, if blas, onednn are the frozen ones: not known without running", id="this",
        ),
        pytest.param(
            "2.13.0", "AuthenticAMD", HASWELL,
            "level bitwise, if blas, onednn are the frozen ones: not known without running", id="no-build",
        ),
        pytest.param(
            "2.13.0+cu130", "AuthenticAMD", HASWELL,
            "level predictions at most: torch 2.13.0+cpu, here 2.13.0+cu130", id="build",
        ),
        pytest.param(
            "9.9", "GenuineIntel", HASWELL,
            "level predictions at most: cpu_vendor AuthenticAMD, here GenuineIntel; "
            "torch 2.13.0+cpu, here 9.9", id="vendor-and-torch",
        ),
        pytest.param(
            "2.13.0+cpu", "AuthenticAMD", "sse2",
            "level predictions at most: vector avx2, here default", id="vector",
        ),
    ],
)  # fmt: skip
def test_where_a_native_record_applies(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str, vendor: str, flags: str, found: str
) -> None:
    monkeypatch.setattr(probe, "package_version", lambda name: version)
    tree(bare, {"proc/cpuinfo": cpuinfo(flags, vendor)})
    assert facts(bare)["digits-native-cpu (digits)"].found == found


def refrozen(folder: Path, **changes: object) -> None:
    """The shipped native record under another name, and with other facts, as a record of its own."""
    (path,) = shipped_records().glob("digits-native-cpu-*.json")
    record = load_as(path, QualificationRecord).model_copy(update={"name": "other", "supersedes": None})
    value = record.model_copy(update=changes)
    sealed = value.model_copy(update={"content_sha256": content_sha256(value)})
    folder.mkdir()
    (folder / "other.json").write_bytes(encode(sealed))


def test_a_record_for_bits_alone_does_not_apply_elsewhere(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "package_version", lambda name: "9.9")
    refrozen(bare / "mine", levels=["bitwise"])
    fact = facts(bare, bare / "mine")["other (digits)"]
    assert not fact.available
    assert fact.found.startswith("does not apply: ")
    assert "freeze a record here" in fact.remedy


def test_a_record_of_other_switches_names_their_options(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = shipped_records().glob("digits-native-cpu-*.json")
    record = load_as(path, QualificationRecord)
    frozen = record.cases[0]
    settings = frozen.settings.model_copy(update={"threads": 2})
    key = record.platform_key | {"threads": "2", "machine": platform.machine()}
    key |= {"cpu_vendor": "unknown", "vector": "default"}
    monkeypatch.setattr(probe, "package_version", lambda name: "2.13.0")
    refrozen(bare / "mine", platform_key=key, cases=[frozen.model_copy(update={"settings": settings})])
    assert "--threads 2" in facts(bare, bare / "mine")["other (digits)"].remedy


def test_the_command_prints_the_same_facts_as_a_table_and_as_json() -> None:
    command = [sys.executable, "-m", "orchestrator", "doctor"]
    table, text = (
        subprocess.run(
            [*command, *more], cwd=ROOT, capture_output=True, text=True, check=True,
            env={"COLUMNS": "400", "PATH": ""},
        ).stdout
        for more in ((), ("--json",))
    )  # fmt: skip
    found = json.loads(text)
    assert {tuple(fact) for fact in found} == {("section", "what", "available", "found", "remedy")}
    assert {fact["section"] for fact in found} == {"cpu", "python", "nvidia", "energy", "records"}
    for fact in found:
        assert fact["what"] in table
        assert fact["found"] in table
