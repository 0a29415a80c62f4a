"""Real children throughout. Tests and children meet at marker files and by process number."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import FixtureFailed, Interrupted, QualgateError, StorageError, UsageError
from orchestrator.process import ProcessOutcome, run_process

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0  # a bound for a loaded machine, never a wait

# What children use to say how far they are. A marker appears at once with its content.
PRELUDE = """
import os, signal, sys, time
def mark(name, content=""):
    with open(name + ".part", "w") as file:
        file.write(str(content))
    os.rename(name + ".part", name)
def wait_for_ever():
    while True:
        signal.pause()
"""


# What stands in for the orchestrator has its signals as in a terminal, however pytest was started.
ORCHESTRATOR = f"""
sys.path.insert(0, {str(ROOT)!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from orchestrator import process
def run(command, **options):
    return process.run_process(command, env={{}}, cwd=Path("."), stdout_path=Path("out"),
                               stderr_path=Path("err"), timeout_s={PATIENCE_S}, **options)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", PRELUDE + textwrap.dedent(code)]


def orchestrator(code: str) -> list[str]:
    return python(ORCHESTRATOR + textwrap.dedent(code))


def run(folder: Path, command: list[str], **options: Any) -> ProcessOutcome:
    arguments: dict[str, Any] = {
        "env": {},
        "cwd": folder,
        "stdout_path": folder / "stdout.txt",
        "stderr_path": folder / "stderr.txt",
        "timeout_s": PATIENCE_S,
    }
    return run_process(command, **(arguments | options))


def orchestrate(folder: Path, code: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run code that calls `run` in a process of its own."""
    return subprocess.run(orchestrator(code), cwd=folder, capture_output=True, check=False, **options)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"never happened: {what}"
        time.sleep(0.005)


def marked_pid(path: Path) -> int:
    wait_until(path.exists, f"marker {path.name}")
    return int(path.read_text())


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie: whose duty it is to reap it differs by machine."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def children() -> set[int]:
    """This process's children, zombies included."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            if f"\nPPid:\t{os.getpid()}\n" in status.read_text():
                found.add(int(status.parent.name))
    return found


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


@contextmanager
def orchestrating(folder: Path, child: list[str]) -> Iterator[Any]:
    """A process that runs `child` with run_process; ends with `Interrupted` in the file `raised`."""
    code = f"""
        from orchestrator.errors import Interrupted
        try:
            run({child!r}, grace_s={PATIENCE_S})
        except Interrupted as error:
            mark("raised", error)
            sys.exit(error.exit_code)
    """
    with subprocess.Popen(orchestrator(code), cwd=folder, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


# --- what an outcome says -------------------------------------------------------------------------


def test_an_outcome_holds_both_streams_the_exit_code_and_the_times(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    outcome = run(tmp_path, python("print('out'); print('err', file=sys.stderr); sys.exit(7)"))
    after = datetime.now(UTC)

    assert outcome.returncode == 7
    assert outcome.stdout.text == "out\n"
    assert outcome.stderr.text == "err\n"
    assert outcome.stdout.path.read_bytes() == b"out\n"
    assert outcome.stdout.size_bytes == 4
    assert outcome.stdout.sha256 == hashlib.sha256(b"out\n").hexdigest()
    assert outcome.stdout.text_is_complete
    assert (outcome.timed_out, outcome.stop_signal, outcome.pipe_held_open) == (False, None, False)
    times = [datetime.fromisoformat(t) for t in (outcome.started_at_utc, outcome.finished_at_utc)]
    assert before <= times[0] <= times[1] <= after
    assert times[0].utcoffset() == timedelta(0)
    assert len(outcome.started_at_utc) == len("2026-01-01T00:00:00.000000+00:00")
    assert 0 < outcome.duration_s <= (after - before).total_seconds() + 1


def test_death_by_a_signal_is_a_negative_return_code(tmp_path: Path) -> None:
    outcome = run(tmp_path, python("os.kill(os.getpid(), signal.SIGSEGV)"))

    assert outcome.returncode == -signal.SIGSEGV
    assert outcome.stop_signal is None


def test_the_environment_is_exactly_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    outcome = run(tmp_path, ["/bin/cat", "/proc/self/environ"], env={"B": "2", "A": "ä=1"})

    assert sorted(outcome.stdout.text.split("\0")) == ["", "A=ä=1", "B=2"]


def test_stdin_is_at_its_end_though_ours_is_not(tmp_path: Path) -> None:
    code = "print(run(['/bin/cat']).stdout.size_bytes)"

    assert orchestrate(tmp_path, code, input=b"for the orchestrator").stdout == b"0\n"


def test_the_session_is_new(tmp_path: Path) -> None:
    code = "print(os.getsid(0) == os.getpid() == os.getpgid(0))"

    assert run(tmp_path, python(code)).stdout.text == "True\n"


def test_no_file_of_this_process_is_open_in_the_child(tmp_path: Path) -> None:
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        outcome = run(tmp_path, python("print(sorted(os.listdir('/proc/self/fd')))"))

    # 3 is the listing itself.
    assert outcome.stdout.text == "['0', '1', '2', '3']\n"


# --- streams --------------------------------------------------------------------------------------


def test_80_megabytes_on_each_stream_are_kept_whole_in_bounded_memory(tmp_path: Path) -> None:
    total = 80_000_000
    child = python(f"""
        for _ in range({total} // 100_000):
            os.write(1, b"o" * 100_000); os.write(2, b"e" * 100_000)
    """)
    # Measured in a process of its own: the peak of this one is pytest's.
    code = f"""
        import resource
        def peak_bytes():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        before = peak_bytes()
        outcome = run({child!r})
        print(peak_bytes() - before, outcome.stdout.sha256, outcome.stderr.sha256)
    """
    printed = orchestrate(tmp_path, code).stdout
    growth_bytes, out_sha256, err_sha256 = printed.decode().split()

    assert int(growth_bytes) < 20_000_000
    assert (tmp_path / "out").stat().st_size == (tmp_path / "err").stat().st_size == total
    for name, digest, byte in (("out", out_sha256, b"o"), ("err", err_sha256, b"e")):
        assert digest == hashlib.sha256(byte * total).hexdigest()
        assert digest == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_a_long_partial_write_is_read_to_its_end(tmp_path: Path) -> None:
    """A child that ends right after filling the pipe: what is still in it counts."""
    outcome = run(tmp_path, python("os.write(1, b'x' * 60_000); os._exit(0)"))

    assert outcome.stdout.size_bytes == 60_000


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        pytest.param(b"0123456789", "0123456789", id="at-the-cap"),
        pytest.param(
            b"01234-----56789",
            "01234\n[qualgate: 5 bytes left out here; the file of this stream has them all]\n56789",
            id="over-the-cap",
        ),
        pytest.param(
            "0123ä-----ä6789".encode(),
            "0123\n[qualgate: 9 bytes left out here; the file of this stream has them all]\n6789",
            id="characters-across-both-cuts",
        ),
        pytest.param(b"a\xff\xc3", "a\ufffd\ufffd", id="not-utf-8"),
    ],
)
def test_text_is_utf8_with_a_cap(tmp_path: Path, printed: bytes, text: str) -> None:
    outcome = run(tmp_path, python(f"os.write(1, {printed!r})"), text_cap_bytes=10)

    assert outcome.stdout.text == text
    assert outcome.stdout.text_is_complete == (len(printed) <= 10)
    assert outcome.stdout.path.read_bytes() == printed


def test_echo_gets_every_byte_while_the_child_still_runs(tmp_path: Path) -> None:
    heard: list[tuple[str, bytes]] = []

    def echo(name: str, chunk: bytes) -> None:
        heard.append((name, chunk))
        (tmp_path / "heard").touch()

    # The child ends only once its output has been echoed: a late echo would time out.
    code = """
        print("ping", file=sys.stderr, flush=True)
        while not os.path.exists("heard"):
            pass
        print("pong")
    """
    assert run(tmp_path, python(code), echo=echo).returncode == 0
    assert heard == [("stderr", b"ping\n"), ("stdout", b"pong\n")]


def test_a_broken_pipe_in_echo_ends_the_echo_and_loses_nothing(tmp_path: Path) -> None:
    calls = []

    def echo(name: str, chunk: bytes) -> None:
        calls.append(name)
        raise BrokenPipeError(errno.EPIPE, "the reader has gone")

    outcome = run(tmp_path, python("os.write(1, b'x' * 1_000_000)"), echo=echo)

    assert (outcome.returncode, outcome.stdout.size_bytes, len(calls)) == (0, 1_000_000, 1)


def test_any_other_error_of_echo_comes_out_after_the_child_has_gone(tmp_path: Path) -> None:
    def echo(name: str, chunk: bytes) -> None:
        raise RuntimeError("a fault of the caller")

    code = "mark('child', os.getpid()); print('x', flush=True); wait_for_ever()"
    with pytest.raises(RuntimeError, match="a fault of the caller"):
        run(tmp_path, python(code), echo=echo)
    assert not is_alive(marked_pid(tmp_path / "child"))


def test_what_is_to_be_done_meanwhile_is_done_while_the_child_runs(tmp_path: Path) -> None:
    """The child ends only once it has been done: done before the start or after, it would time out."""
    code = """
        mark("child")
        while not os.path.exists("done"):
            pass
    """

    def meanwhile() -> None:
        wait_until((tmp_path / "child").exists, "the child's start")
        (tmp_path / "done").touch()

    assert run(tmp_path, python(code), meanwhile=meanwhile).returncode == 0


# --- what cannot be done --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param("./missing", "No such file or directory", id="missing"),
        pytest.param("./plain", "Permission denied", id="not-executable"),
        pytest.param("./garbage", "Exec format error", id="not-a-program"),
        pytest.param("nul\0", "embedded null byte", id="nul"),
    ],
)
def test_a_command_that_cannot_start_says_why(tmp_path: Path, command: str, reason: str) -> None:
    (tmp_path / "plain").touch(0o644)
    (tmp_path / "garbage").write_bytes(b"\0garbage")
    (tmp_path / "garbage").chmod(0o755)

    with pytest.raises(FixtureFailed) as caught:
        run(tmp_path, [command])
    assert f"cannot start the command: {reason}" in str(caught.value)
    assert str(caught.value).startswith(command)


def test_a_missing_working_folder_is_not_blamed_on_the_command(tmp_path: Path) -> None:
    with pytest.raises(FixtureFailed, match=r"cannot enter the folder .*elsewhere"):
        run(tmp_path, python(""), cwd=tmp_path / "elsewhere")


def test_a_full_disk_ends_the_child_and_names_the_file(tmp_path: Path) -> None:
    code = "mark('child', os.getpid()); print('x', flush=True); wait_for_ever()"
    with pytest.raises(StorageError, match=r"^/dev/full: cannot write stdout: No space left"):
        run(tmp_path, python(code), stdout_path=Path("/dev/full"))
    assert not is_alive(marked_pid(tmp_path / "child"))


def test_a_write_that_the_disk_takes_only_in_part_is_an_error(tmp_path: Path) -> None:
    """The child's last bytes do not fit: the run must not pass for complete."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(StorageError, match="cannot write stderr: File too large"):
            run(tmp_path, python("os.write(2, b'x' * 1_000_001)"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_stream_file_that_cannot_be_made_is_known_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no/stderr\.txt: cannot write stderr: No such file"):
        run(tmp_path, python("mark('child')"), stderr_path=tmp_path / "no" / "stderr.txt")
    assert not (tmp_path / "child").exists()


def test_another_system_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="runs need Linux: found darwin"):
        run(tmp_path, ["true"])


# --- time -----------------------------------------------------------------------------------------


def test_a_child_that_heeds_sigterm_is_not_killed_and_its_last_words_count(tmp_path: Path) -> None:
    """The whole group hears of it: the child waits for its own child's mark before it ends."""
    code = """
        def on_term(*_):
            if child:
                os.waitpid(child, 0)
                os.write(1, b"x" * 200_000)
            os._exit(3)
        signal.signal(signal.SIGTERM, on_term)
        child = os.fork()
        wait_for_ever()
    """
    outcome = run(tmp_path, python(code), timeout_s=2.0, grace_s=PATIENCE_S)

    assert (outcome.timed_out, outcome.stop_signal, outcome.returncode) == (True, "SIGTERM", 3)
    assert outcome.stdout.size_bytes == 200_000


def test_a_timeout_kills_a_child_and_a_grandchild_that_both_ignore_sigterm(tmp_path: Path) -> None:
    code = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        name = "child" if os.fork() else "grandchild"
        mark(name, os.getpid())
        wait_for_ever()
    """
    outcome = run(tmp_path, python(code), timeout_s=2.0, grace_s=0.2)

    assert (outcome.timed_out, outcome.stop_signal) == (True, "SIGKILL")
    assert outcome.returncode == -signal.SIGKILL
    assert not is_alive(marked_pid(tmp_path / "child"))
    assert not is_alive(marked_pid(tmp_path / "grandchild"))


def test_a_stopped_child_times_out(tmp_path: Path) -> None:
    outcome = run(tmp_path, python("os.kill(0, signal.SIGSTOP)"), timeout_s=0.5, grace_s=0.1)

    assert (outcome.timed_out, outcome.returncode) == (True, -signal.SIGKILL)


def test_a_child_that_closes_its_streams_is_still_bounded(tmp_path: Path) -> None:
    """The end of both pipes is not the end of the process."""
    code = "os.close(1); os.close(2); wait_for_ever()"
    outcome = run(tmp_path, python(code), timeout_s=0.5, grace_s=PATIENCE_S)

    assert (outcome.timed_out, outcome.stop_signal) == (True, "SIGTERM")


# --- descendants ----------------------------------------------------------------------------------


def test_a_grandchild_that_holds_the_pipe_is_killed_once_the_child_has_gone(tmp_path: Path) -> None:
    code = """
        if os.fork() == 0:
            mark("grandchild", os.getpid())
            print("from the grandchild", flush=True)
            wait_for_ever()
        while not os.path.exists("grandchild"):
            pass
    """
    outcome = run(tmp_path, python(code))

    assert (outcome.returncode, outcome.timed_out, outcome.pipe_held_open) == (0, False, True)
    assert outcome.stdout.text == "from the grandchild\n"
    assert not is_alive(marked_pid(tmp_path / "grandchild"))


def test_a_grandchild_that_never_stops_talking_does_not_keep_the_run(tmp_path: Path) -> None:
    code = """
        if os.fork() == 0:
            mark("grandchild", os.getpid())
            for _ in range(1 << 20):
                os.write(1, b"x" * 4096)
        while not os.path.exists("grandchild"):
            pass
    """
    # A reader this slow finds the pipe full each time: a wait for an empty one would not end.
    outcome = run(tmp_path, python(code), echo=lambda *_: time.sleep(0.01))

    assert outcome.pipe_held_open
    assert outcome.stdout.size_bytes < 20_000_000
    assert outcome.stdout.path.stat().st_size == outcome.stdout.size_bytes > 0
    assert not is_alive(marked_pid(tmp_path / "grandchild"))


def test_a_helper_that_ends_just_after_the_child_is_heard_out(tmp_path: Path) -> None:
    """As in a shell pipeline: the last stage outlives the child by a moment."""
    code = """
        child = os.getpid()
        if os.fork() == 0:
            while os.getppid() == child:
                pass
            time.sleep(0.02)
            os.write(1, b"last words")
            os._exit(0)
    """
    outcome = run(tmp_path, python(code))

    assert (outcome.stdout.text, outcome.pipe_held_open) == ("last words", False)


def test_a_daemon_that_left_the_group_is_found_and_killed(tmp_path: Path) -> None:
    """It has a session of its own, another parent, a child, and one of the pipes."""
    code = """
        if os.fork() == 0:
            os.setsid()
            name = "daemon" if os.fork() else "its-child"
            os.setsid() if name == "its-child" else None
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            mark(name, os.getpid())
            wait_for_ever()
        while not (os.path.exists("daemon") and os.path.exists("its-child")):
            pass
    """
    outcome = run(tmp_path, python(code))

    assert (outcome.returncode, outcome.pipe_held_open) == (0, True)
    assert not is_alive(marked_pid(tmp_path / "daemon"))
    assert not is_alive(marked_pid(tmp_path / "its-child"))


def test_a_daemon_that_holds_no_pipe_is_killed_too(tmp_path: Path) -> None:
    code = """
        if os.fork() == 0:
            os.setsid(); os.close(1); os.close(2)
            mark("daemon", os.getpid())
            wait_for_ever()
        while not os.path.exists("daemon"):
            pass
    """
    outcome = run(tmp_path, python(code))

    assert not outcome.pipe_held_open
    assert not is_alive(marked_pid(tmp_path / "daemon"))


def test_a_process_that_keeps_forking_away_is_caught(tmp_path: Path) -> None:
    """Every generation has a new number and, once its parent ended, is a child of this process."""
    code = f"""
        end_s = time.monotonic() + {PATIENCE_S}
        if os.fork() == 0:
            os.close(1); os.close(2)
            while time.monotonic() < end_s:
                if os.fork():
                    os._exit(0)
    """
    assert run(tmp_path, python(code)).returncode == 0


def test_an_earlier_child_of_this_process_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as earlier:
        run(tmp_path, python("os.fork()"))
        assert earlier.poll() is None
        earlier.kill()


def test_this_process_is_a_subreaper_only_during_a_run(tmp_path: Path) -> None:
    code = """
        import ctypes
        def is_subreaper():
            flag = ctypes.c_int()
            ctypes.CDLL(None).prctl(37, ctypes.byref(flag), 0, 0, 0)
            return flag.value
        during = []
        run(["/bin/echo"], echo=lambda *_: during.append(is_subreaper()))
        print(during, is_subreaper())
    """
    assert orchestrate(tmp_path, code).stdout == b"[1] 0\n"


# --- the end of this process ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_leaves_no_process_and_is_named(tmp_path: Path, number: signal.Signals) -> None:
    child = python("mark('child' if os.fork() else 'grandchild', os.getpid()); wait_for_ever()")
    with orchestrating(tmp_path, child) as process:
        pids = [marked_pid(tmp_path / "child"), marked_pid(tmp_path / "grandchild")]
        process.send_signal(number)

        assert process.wait(PATIENCE_S) == 130
        assert [is_alive(pid) for pid in pids] == [False, False]
    assert number.name in (tmp_path / "raised").read_text()


def test_further_signals_during_the_grace_do_not_cut_it_short(tmp_path: Path) -> None:
    """An impatient second Ctrl-C must not leave the group behind."""
    child = python("""
        def on_term(*_):
            mark("in-grace")
            while not os.path.exists("go"):
                pass
            os._exit(0)
        signal.signal(signal.SIGTERM, on_term)
        mark("child", os.getpid())
        wait_for_ever()
    """)
    with orchestrating(tmp_path, child) as process:
        pid = marked_pid(tmp_path / "child")
        process.send_signal(signal.SIGINT)
        wait_until((tmp_path / "in-grace").exists, "the child's SIGTERM")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()

        assert process.wait(PATIENCE_S) == 130
        assert not is_alive(pid)


def test_a_child_dies_with_an_orchestrator_that_was_killed(tmp_path: Path) -> None:
    with orchestrating(tmp_path, python("mark('child', os.getpid()); wait_for_ever()")) as process:
        pid = marked_pid(tmp_path / "child")
        process.kill()
        process.wait(PATIENCE_S)
        wait_until(lambda: not is_alive(pid), "the child's death")


def test_a_child_whose_parent_is_gone_before_the_bond_never_starts(tmp_path: Path) -> None:
    """The race in the fork, played out: the bond is made for a parent that is not there."""
    code = """
        process._bond_to(os.getppid() + 1, process._load_prctl())()
        print("went on")
    """
    ended = orchestrate(tmp_path, code)

    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")


def test_a_signal_before_the_start_ends_the_child_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between the handlers and the spawn, at which a raising handler would leak."""
    spawn = subprocess.Popen
    spawned = []

    def spawn_after_signal(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        spawned.append(spawn(*arguments, **options))
        return spawned[-1]

    monkeypatch.setattr(subprocess, "Popen", spawn_after_signal)
    with pytest.raises(Interrupted, match="SIGTERM"):
        run(tmp_path, python("wait_for_ever()"))
    assert not is_alive(spawned[0].pid)


def test_a_signal_during_the_clean_up_is_not_lost(tmp_path: Path) -> None:
    """The child has ended by itself when the signal comes: the run ends, as asked, all the same."""

    code = """
        from orchestrator.errors import Interrupted
        clean_up = process._Run.leave_nothing
        def interrupted_clean_up(self, older):
            os.kill(os.getpid(), signal.SIGINT)
            clean_up(self, older)
        process._Run.leave_nothing = interrupted_clean_up
        try:
            run(["/bin/true"])
        except Interrupted as error:
            print(error.exit_code, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
    assert orchestrate(tmp_path, code).stdout == b"130 True\n"


def test_handlers_are_put_back_and_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """Ignored before means ignored during the run: that is how nohup works."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    own = signal.getsignal(signal.SIGTERM)
    during: list[object] = []
    try:
        outcome = run(
            tmp_path,
            python("print('x', flush=True)"),
            echo=lambda *_: during.extend(map(signal.getsignal, (signal.SIGHUP, signal.SIGTERM))),
        )
        after = [signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)]
    finally:
        signal.signal(signal.SIGHUP, former)

    assert outcome.returncode == 0
    assert during[0] == signal.SIG_IGN
    assert during[1] != own
    assert after == [signal.SIG_IGN, own]


def test_it_runs_outside_the_main_thread(tmp_path: Path) -> None:
    outcomes: list[ProcessOutcome | QualgateError] = []
    thread = threading.Thread(target=lambda: outcomes.append(run(tmp_path, ["/bin/echo", "hi"])))
    thread.start()
    thread.join(PATIENCE_S)

    assert isinstance(outcomes[0], ProcessOutcome)
    assert outcomes[0].stdout.text == "hi\n"
