"""`qualgate profile`: the whole command under a double of Nsight Compute, and torch's profiler on a CPU.

The double drives the CPU's fixture: what it adds to the environment, repeats and prints is what the real one
does; that the range is marked on CUDA is the fixture's own test.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import sys
import tracemalloc
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator import models, profiling
from orchestrator.cases import named_case
from orchestrator.codec import load_as
from orchestrator.environment import NAMES_VARIABLE, default_settings
from orchestrator.errors import EvidenceError, FixtureFailed
from orchestrator.models import CacheTraffic, EvidenceFile, NcuProfile, RunRecord, Unavailable
from orchestrator.ncu import read_output
from orchestrator.profiling import profile_case
from orchestrator.render_profile import profile_table
from orchestrator.runner import Run, RunOptions
from tests import strategies as samples
from tests.orchestrator.checkout import Checkout, last_line

CASE = "synthetic-300-100"


def install_ncu(folder: Path, variant: str) -> str:
    """Put the double on a PATH of its own, before the system's; returns the PATH."""
    folder.mkdir()
    # By this interpreter: a wrapper of `python3` may change PATH, and the attestation would rightly fail.
    source = Path(__file__).with_name("fake_ncu.py").read_text()
    (folder / "ncu").write_text(f"#!{sys.executable} -I\n{source}")
    (folder / "ncu").chmod(0o755)
    (folder / "variant").write_text(variant)
    return f"{folder}:{os.environ['PATH']}"


def run_under_ncu(folder: Path, variant: str, scope: models.Scope = "task", repeats: int = 16) -> Run:
    """Run the CPU's fixture under the double."""
    options = RunOptions(
        mode="profile",
        scope=scope,
        repeats=repeats,
        inherited={**os.environ, "PATH": install_ncu(folder / "bin", variant)},
    )
    (folder / "run").mkdir()
    settings = default_settings(platform.machine())
    return profile_case(named_case(CASE), settings, options, folder / "run", under_ncu=True)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose range was counted in two passes, with nothing wrong."""
    return run_under_ncu(tmp_path_factory.mktemp("counted"), "")


def profile_of(run: Run) -> NcuProfile:
    """What was found, from the record as it was written."""
    record = load_as(run.folder / "record.json", RunRecord)
    assert isinstance(record.ncu, NcuProfile)
    return record.ncu


def shown(record: RunRecord) -> str:
    """What a person sees."""
    console = Console(width=160, file=io.StringIO())
    with console.capture() as capture:
        console.print(profile_table(record))
    return capture.get()


def test_the_published_counters_become_traffic_with_all_their_evidence(counted: Run) -> None:
    found = profile_of(counted)
    assert isinstance(found.traffic, CacheTraffic)
    assert (found.traffic.dram_read_bytes, found.traffic.dram_write_bytes) == (3_255_536, 1_868_800)
    assert found.passes == 2
    assert counted.record.command[: len(found.command)] == found.command
    assert counted.record.command[len(found.command)] == RunOptions().python
    assert Path(found.command[0]).name == "ncu"
    for kept, name in ((found.report, "profile.ncu-rep"), (found.supported_metrics, "ncu-query-metrics.txt")):
        assert isinstance(kept, EvidenceFile)
        assert kept.file == name
        assert kept.sha256 == hashlib.sha256((counted.folder / name).read_bytes()).hexdigest()
        assert counted.record.artefact_sha256[name] == kept.sha256


def test_a_person_sees_what_was_printed_and_what_it_means(counted: Run) -> None:
    text = shown(counted.record)
    assert "52.088576 Mbyte" in text
    assert "3,255,536 B" in text
    assert "collected in 2 pass(es)" in text
    assert "not measured" not in text


def test_the_attestation_holds_beside_what_the_profiler_adds(counted: Run) -> None:
    attested = counted.result.environment
    assert counted.result.environment_was_set_externally
    assert attested.sha256 == attested.expected_sha256 == counted.record.environment.sha256
    assert attested.added_variables == {
        "CUDA_INJECTION64_PATH": "/opt/ncu/libinjection.so",
        "NV_TPS_LAUNCH_TOKEN": "x y",
    }
    assert NAMES_VARIABLE in attested.variables


def test_a_profiler_that_sets_a_numeric_switch_breaks_the_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="MKL_DEBUG_CPU_TYPE, which can move bits"):
        run_under_ncu(tmp_path, "moves-bits one-pass")


def test_a_training_on_a_newer_gpu_in_german(tmp_path: Path) -> None:
    found = profile_of(run_under_ncu(tmp_path, "newer-gpu german one-pass", "training", 1))
    assert not isinstance(found.counters, Unavailable)
    assert found.counters[0].metric == "dram__bytes_op_read.sum"
    assert found.counters[0].printed == "52,088576"
    assert isinstance(found.traffic, CacheTraffic)
    assert (found.traffic.scope, found.traffic.dram_read_bytes) == ("training", 52_088_576)
    assert found.traffic.l2_hit_rate_percent == 95.45


def test_a_run_that_was_not_counted_is_sound_and_says_why(tmp_path: Path) -> None:
    run = run_under_ncu(tmp_path, "permission one-pass")
    found = profile_of(run)
    assert run.record.returncode == 1
    assert run.score.total == 100
    for missing in (found.counters, found.traffic, found.passes):
        assert isinstance(missing, Unavailable)
        assert "ERR_NVGPUCTRPERM" in missing.unavailable
        assert "NVreg_RestrictProfilingToAdminUsers=0" in missing.remedy
    assert isinstance(found.report, Unavailable)
    assert "not measured: ncu: ERR_NVGPUCTRPERM" in shown(run.record)


def test_counters_of_another_device_give_no_traffic(tmp_path: Path) -> None:
    run = run_under_ncu(tmp_path, "other-device one-pass")
    found = profile_of(run)
    assert not isinstance(found.counters, Unavailable)
    assert found.counters[0].value == 52_088_576
    assert isinstance(found.traffic, Unavailable)
    assert "of another device" in found.traffic.unavailable
    assert found.device_attributes["device__attribute_display_name"] == "NVIDIA A100-SXM4-40GB"
    assert "3,255,536" not in shown(run.record)


def test_a_launcher_whose_installation_is_gone_leaves_a_bare_run(tmp_path: Path) -> None:
    run = run_under_ncu(tmp_path, "gone")
    found = load_as(run.folder / "record.json", RunRecord).ncu
    assert isinstance(found, Unavailable)
    assert "installation that this launcher starts is gone" in found.unavailable
    assert "Nsight Compute" in found.remedy
    assert run.record.command[0] == RunOptions().python
    assert run.result.environment.added_variables == {}
    assert "not measured: " in shown(run.record)


def test_a_profiler_that_never_starts_the_fixture_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(
        FixtureFailed, match="no result of the fixture; ncu: Failed to create/open lock"
    ) as caught:
        run_under_ncu(tmp_path, "dead")
    assert "TMPDIR" in caught.value.remedy
    record = load_as(tmp_path / "run" / "record.json", RunRecord)
    assert record.result is None
    assert isinstance(record.ncu, NcuProfile)
    assert isinstance(record.ncu.counters, Unavailable)


def test_a_large_output_is_stored_compressed_and_one_counter_may_be_missing(tmp_path: Path) -> None:
    run = run_under_ncu(tmp_path, "noisy n/a one-pass")
    stream = run.record.streams.stdout
    assert stream.size_bytes > 60 * 100_000
    assert stream.file == "stdout.txt.gz"
    assert not (run.folder / "stdout.txt").exists()
    data = gzip.decompress((run.folder / stream.file).read_bytes())
    assert (len(data), hashlib.sha256(data).hexdigest()) == (stream.size_bytes, stream.sha256)
    stored = hashlib.sha256((run.folder / stream.file).read_bytes()).hexdigest()
    assert run.record.artefact_sha256["stdout.txt.gz"] == stored
    traffic = profile_of(run).traffic
    assert isinstance(traffic, CacheTraffic)
    assert isinstance(traffic.dram_read_bytes, Unavailable)
    assert traffic.dram_write_bytes == 1_868_800
    assert "dram__bytes_read.sum: found '(!) n/a'" in shown(run.record)


def test_the_page_is_sought_without_holding_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    with path.open("w") as file:
        for _ in range(60):
            file.write("x" * (1 << 20))  # one line of 60 MiB, as a progress bar can leave
        file.write("\n==ERROR== at the end\n")
    tracemalloc.start()
    try:
        output = read_output(profiling.lines_of(path))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output.errors == ["at the end"]
    assert peak_bytes < 16 << 20


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout.copy(tmp_path_factory.mktemp("checkout"))


def test_a_cpu_is_profiled_by_operator(checkout: Checkout) -> None:
    done = checkout.qualgate("profile", "--case", CASE, "--repeats", "2")
    assert done.returncode == 0, done.stderr
    header = next(line for line in done.stdout.splitlines() if "operator" in line)
    assert header.split() == ["operator", "calls", "self", "time", "allocated"]
    assert "aten::addmm" in done.stdout
    record = load_as(Path(done.stdout.split()[-1]), RunRecord)
    assert record.ncu is None
    assert (record.action, record.scope) == ("profile", "task")


def test_a_cpu_profile_is_json_too(checkout: Checkout) -> None:
    done = checkout.qualgate("profile", "--case", CASE, "--scope", "training", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["result"]["profile"]["repeats"] == 1
    assert record["ncu"] is None


def test_a_missing_gpu_ends_the_command_with_the_fixtures_refusal(checkout: Checkout) -> None:
    done = checkout.qualgate("profile", "--case", CASE, "--device", "cuda")
    if done.returncode == 0:
        pytest.skip("this machine has a CUDA device")
    assert done.returncode == 4
    assert "fixture: refused" in last_line(done)


def test_a_cuda_record_shows_its_counters() -> None:
    text = shown(RunRecord.model_validate(samples.ncu_run_record()))
    assert "NVIDIA A100-SXM4-40GB" in text
    assert "3,255,536 B" in text
    assert "859,619,420 B" in text
    assert "95.45 %" in text
    assert text.count("not measured") == 2  # one counter, and the cause
