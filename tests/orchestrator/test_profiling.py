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
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator import runner
from orchestrator.cases import named_case
from orchestrator.codec import load_as
from orchestrator.environment import NAMES_VARIABLE, default_settings
from orchestrator.errors import EvidenceError, FixtureFailed
from orchestrator.models import CacheTraffic, EvidenceFile, NcuProfile, RunRecord, Unavailable
from orchestrator.profiling import profile_case
from orchestrator.render_profile import profile_table
from orchestrator.runner import Run, RunOptions
from tests import strategies as samples
from tests.orchestrator.checkout import Checkout, last_line

CASE = "synthetic-300-100"
Profile = Callable[..., Run]


def install_ncu(folder: Path, variant: str) -> str:
    """Put the double on a PATH of its own, before the system's; returns the PATH."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("fake_ncu.py"), folder / "ncu")
    (folder / "ncu").chmod(0o755)
    (folder / "variant").write_text(variant)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def run_profiled(tmp_path: Path) -> Profile:
    def run(variant: str = "", *, scope: str = "task", repeats: int = 16) -> Run:
        path = install_ncu(tmp_path / "bin", variant)
        options = RunOptions(
            mode="profile",
            scope="training" if scope == "training" else "task",
            repeats=repeats,
            inherited={**os.environ, "PATH": path},
        )
        (tmp_path / "run").mkdir()
        settings = default_settings(platform.machine())
        return profile_case(named_case(CASE), settings, options, tmp_path / "run", under_ncu=True)

    return run


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


def test_the_published_counters_become_traffic_with_all_their_evidence(run_profiled: Profile) -> None:
    run = run_profiled()
    found = profile_of(run)
    assert isinstance(found.traffic, CacheTraffic)
    assert (found.traffic.dram_read_bytes, found.traffic.dram_write_bytes) == (3_255_536, 1_868_800)
    assert found.passes == 2
    assert run.record.command[: len(found.command)] == found.command
    assert run.record.command[len(found.command)] == RunOptions().python
    assert Path(found.command[0]).name == "ncu"
    for kept, name in ((found.report, "profile.ncu-rep"), (found.supported_metrics, "ncu-query-metrics.txt")):
        assert isinstance(kept, EvidenceFile)
        assert kept.file == name
        assert kept.sha256 == hashlib.sha256((run.folder / name).read_bytes()).hexdigest()
        assert run.record.artefact_sha256[name] == kept.sha256
    text = shown(run.record)
    assert "52.088576 Mbyte" in text
    assert "3,255,536 B" in text
    assert "collected in 2 pass(es)" in text


def test_the_attestation_holds_beside_what_the_profiler_adds(run_profiled: Profile) -> None:
    run = run_profiled()
    attested = run.result.environment
    assert run.result.environment_was_set_externally
    assert attested.sha256 == attested.expected_sha256 == run.record.environment.sha256
    assert attested.added_variables == {
        "CUDA_INJECTION64_PATH": "/opt/ncu/libinjection.so",
        "NV_TPS_LAUNCH_TOKEN": "x y",
    }
    assert NAMES_VARIABLE in attested.variables


def test_a_profiler_that_sets_a_numeric_switch_breaks_the_evidence(run_profiled: Profile) -> None:
    with pytest.raises(EvidenceError, match="MKL_DEBUG_CPU_TYPE, which can move bits"):
        run_profiled("moves-bits")


def test_a_training_is_one_sequence(run_profiled: Profile) -> None:
    found = profile_of(run_profiled(scope="training", repeats=1))
    assert isinstance(found.traffic, CacheTraffic)
    assert (found.traffic.scope, found.traffic.dram_read_bytes) == ("training", 52_088_576)


def test_a_german_page_gives_the_same_traffic(run_profiled: Profile) -> None:
    found = profile_of(run_profiled("german"))
    assert isinstance(found.traffic, CacheTraffic)
    assert found.traffic.dram_read_bytes == 3_255_536
    assert found.traffic.l2_hit_rate_percent == 95.45


def test_a_newer_gpu_is_asked_for_the_metric_that_it_has(run_profiled: Profile) -> None:
    found = profile_of(run_profiled("newer-gpu"))
    assert not isinstance(found.counters, Unavailable)
    assert found.counters[0].metric == "dram__bytes_op_read.sum"
    assert found.counters[0].value == 52_088_576


@pytest.mark.parametrize(
    ("variant", "cause", "remedy"),
    [
        ("permission", "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("nothing", "No kernels were profiled", "CUDA device"),
        ("ranges", "found 2 ranges", "stdout.txt"),
    ],
)
def test_a_run_that_was_not_counted_is_sound_and_says_why(
    run_profiled: Profile, variant: str, cause: str, remedy: str
) -> None:
    run = run_profiled(variant)
    found = profile_of(run)
    for missing in (found.counters, found.traffic, found.passes):
        assert isinstance(missing, Unavailable)
        assert cause in missing.unavailable
        assert remedy in missing.remedy
    assert run.score.total == 100
    assert f"not measured: {found.counters.unavailable}" in " ".join(shown(run.record).split())  # type: ignore[union-attr]


def test_one_counter_that_was_not_counted_leaves_the_others(run_profiled: Profile) -> None:
    run = run_profiled("n/a")
    traffic = profile_of(run).traffic
    assert isinstance(traffic, CacheTraffic)
    assert isinstance(traffic.dram_read_bytes, Unavailable)
    assert traffic.dram_write_bytes == 1_868_800
    assert "dram__bytes_read.sum: found '(!) n/a'" in shown(run.record)


def test_counters_of_another_device_give_no_traffic(run_profiled: Profile) -> None:
    found = profile_of(run_profiled("other-device"))
    assert not isinstance(found.counters, Unavailable)
    assert isinstance(found.traffic, Unavailable)
    assert "of another device" in found.traffic.unavailable
    assert found.device["device__attribute_display_name"] == "NVIDIA A100-SXM4-40GB"


def test_a_launcher_whose_installation_is_gone_leaves_a_bare_run(run_profiled: Profile) -> None:
    run = run_profiled("gone")
    found = load_as(run.folder / "record.json", RunRecord).ncu
    assert isinstance(found, Unavailable)
    assert "installation that this launcher starts is gone" in found.unavailable
    assert "Nsight Compute" in found.remedy
    assert run.record.command[0] == RunOptions().python
    assert run.result.environment.added_variables == {}
    assert found.unavailable in " ".join(shown(run.record).split())


def test_a_profiler_that_never_starts_the_fixture_is_a_failed_run(run_profiled: Profile) -> None:
    with pytest.raises(
        FixtureFailed, match="no result of the fixture; ncu: Failed to create/open lock"
    ) as caught:
        run_profiled("dead")
    assert "TMPDIR" in caught.value.remedy
    folder = Path(caught.value.where)
    record = load_as(folder / "record.json", RunRecord)
    assert record.result is None
    assert isinstance(record.ncu, NcuProfile)
    assert isinstance(record.ncu.counters, Unavailable)


def test_a_large_output_is_stored_compressed_and_never_held_whole(run_profiled: Profile) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = run_profiled("noisy")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    stream = run.record.streams.stdout
    assert stream.size_bytes > 2 * 60 * 100_000 > runner._COMPRESS_ABOVE_BYTES
    assert stream.file == "stdout.txt.gz"
    assert not (run.folder / "stdout.txt").exists()
    data = gzip.decompress((run.folder / stream.file).read_bytes())
    assert (len(data), hashlib.sha256(data).hexdigest()) == (stream.size_bytes, stream.sha256)
    assert run.record.artefact_sha256[stream.file]
    assert isinstance(profile_of(run).traffic, CacheTraffic)
    # Imports and validators count too; the stream would add itself several times.
    assert grown_kib * 1024 < 300 << 20


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
    assert text.count("not measured") == 2
