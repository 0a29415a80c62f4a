"""One fresh child process: streamed, bounded in time, and gone with all of its descendants.

Rules:

- Every byte that the child prints is in a file and in a hash before anyone else sees it; memory holds
  the ends of the text and no more, however much is printed.
- Nothing waits without an end. The child gets its time, then SIGTERM, then SIGKILL; a pipe that a
  descendant keeps open is given up.
- When `run_process` returns or raises, no process of the run is left: the next run does not start
  while the last one is dying. Descendants that left the child's process group become children of this
  process (Linux calls it a subreaper) and are found there.
- A signal that asks this process to stop is noted by a handler and acted on by the loop. Handlers that
  raise could do so between a fork and the line that remembers the child.
- If this process is killed outright, the kernel kills the child. Descendants of the child are then on
  their own: the bond is not inherited.

Linux only. What a run means is the caller's business: a non-zero exit or a timeout is an outcome here.
"""

from __future__ import annotations

import codecs
import ctypes
import hashlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator.errors import FixtureFailed, Interrupted, StorageError, UsageError

Echo = Callable[[str, bytes], None]

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_CHUNK_BYTES: Final = 1 << 16
_MAX_PIPE_BYTES: Final = 1 << 20  # Linux's default bound on a pipe's size (fs.pipe-max-size)

_TICK_S: Final = 0.1  # how late an exit or a signal is noticed when no pipe tells of it
_SHORT_TICK_S: Final = 0.005  # the same while no pipe is open, which is mostly just before an exit
_SETTLE_S: Final = 0.5  # what helpers of the child get to end by themselves once it has gone
_KILL_WAIT_S: Final = 10.0  # SIGKILL acts at once, but for a process that waits on a device

_UTF8_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))

# <linux/prctl.h>
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37

# A subreaper and its orphans belong to the whole process, so runs in two threads would end each other.
_one_run_at_a_time = threading.Lock()


@dataclass(frozen=True)
class CapturedStream:
    """What the child printed to one stream.

    Args:
        path: The file that holds every byte.
        size_bytes: How many there are.
        sha256: Their SHA-256, as 64 lower-case hex digits.
        text: The bytes as UTF-8, with U+FFFD for what is not. Of a long stream, its first and last
            parts around a line that says how many bytes were left out.
        text_is_complete: Whether nothing was left out.
    """

    path: Path
    size_bytes: int
    sha256: str
    text: str
    text_is_complete: bool


@dataclass(frozen=True)
class ProcessOutcome:
    """How one child process went.

    Args:
        returncode: Its exit code; the negative number of the signal that ended it.
        stdout: What it printed there.
        stderr: What it printed there.
        started_at_utc: Wall-clock time just before its start, ISO 8601 with microseconds and offset.
        finished_at_utc: Wall-clock time when it was seen to have ended, likewise.
        duration_s: Seconds between the two, by a clock that nobody sets.
        timed_out: Whether it was stopped because its time was over.
        stop_signal: Name of the last signal that was sent to stop it; None when it ended by itself.
        pipe_held_open: Whether a descendant kept stdout or stderr open after the child had gone; what
            it would have printed later is lost.
    """

    returncode: int
    stdout: CapturedStream
    stderr: CapturedStream
    started_at_utc: str
    finished_at_utc: str
    duration_s: float
    timed_out: bool
    stop_signal: str | None
    pipe_held_open: bool


def run_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout_path: Path,
    stderr_path: Path,
    timeout_s: float,
    echo: Echo | None = None,
    meanwhile: Callable[[], object] | None = None,
    text_cap_bytes: int = 1 << 20,
    grace_s: float = 2.0,
) -> ProcessOutcome:
    """Run a command in a session of its own, with exactly `env` and an empty stdin.

    `timeout_s` bounds the child, `grace_s` the time between SIGTERM and SIGKILL. `echo` is called with
    a stream's name and each chunk as it comes; a broken pipe in it ends the echo and nothing else. A
    slow echo holds up the child as a slow terminal would, and with it the check of the time.
    `text_cap_bytes` bounds the text that is kept of each stream. `meanwhile` is called once, in a thread,
    after the start: work that the caller needs only at the end; what it raises, it raises to nobody.

    While this runs, no other thread may start processes: they would be taken for descendants of the
    child that had left its group, and killed. Called outside the main thread, it cannot take care of
    signals.

    Raises:
        FixtureFailed: when the command cannot be started, or a process survives SIGKILL.
        StorageError: when a stream's file cannot be written.
        Interrupted: when SIGINT, SIGTERM or SIGHUP arrived, unless it was ignored before.
        UsageError: on a system other than Linux.
    """
    if sys.platform != "linux":
        raise UsageError(f"runs need Linux: found {sys.platform}")
    prctl = _load_prctl()
    with _one_run_at_a_time, noted_stop_signals() as arrived, ExitStack() as files:
        streams = {
            name: files.enter_context(_Capture(name, path, text_cap_bytes))
            for name, path in (("stdout", stdout_path), ("stderr", stderr_path))
        }
        with _adopted_orphans(prctl), selectors.DefaultSelector() as selector:
            older_children = _children()
            started_at, started_s = _utc_now(), time.monotonic()
            child = _start(command, env, cwd, prctl)
            run = _Run(child, selector, streams, echo, arrived)
            try:
                if meanwhile is not None:
                    # After the fork, so that no lock of this thread's can be held in the child.
                    threading.Thread(target=meanwhile, daemon=True).start()
                run.watch(started_s + timeout_s, grace_s)
            finally:
                run.leave_nothing(older_children)
        if run.failure is not None:
            raise run.failure
    return ProcessOutcome(
        returncode=child.returncode,
        stdout=streams["stdout"].captured(),
        stderr=streams["stderr"].captured(),
        started_at_utc=started_at,
        finished_at_utc=run.finished_at_utc,
        duration_s=run.finished_s - started_s,
        timed_out=run.timed_out,
        stop_signal=run.stop_signal,
        pipe_held_open=run.pipe_held_open,
    )


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


# --- the start ------------------------------------------------------------------------------------


def _start(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, prctl: _Prctl
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=_bond_to(os.getpid(), prctl),
        )
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and str(error.filename) == str(cwd):
            reason = f"cannot enter the folder {cwd}: {error.strerror}"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise FixtureFailed(
            f"cannot start the command: {reason}",
            where=command[0],
            remedy="give the path of an executable program",
        ) from error


def _bond_to(parent_pid: int, prctl: _Prctl) -> Callable[[], None]:
    """What the child does between fork and exec, so that it does not outlive this process.

    A `preexec_fn` is unsafe where another thread may have held a lock when the process forked. This
    one takes none: the function of the C library is resolved beforehand, it is called without giving
    up the interpreter's lock, and the rest are system calls. A launcher program in between would
    be safe too, but it would show up in the evidence: its own environment, its own start-up time.
    """

    def bond() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The kernel sends no signal for a parent that was gone before the line above.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)

    return bond


def bond_to_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent, whose number this is, has gone.

    For a fork of this program that goes on as this program; `run_process` does it for its commands.
    """
    _bond_to(parent_pid, _load_prctl())()


# --- the watch ------------------------------------------------------------------------------------


class _Run:
    """The child while it lives: its pipes, the reasons to stop it, and its end.

    Nothing here raises while the child lives. A failure is remembered and is a reason to stop, so that
    there is one way to end a run. From then on output is read and thrown away.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        selector: selectors.BaseSelector,
        streams: Mapping[str, _Capture],
        echo: Echo | None,
        arrived: Sequence[signal.Signals],
    ) -> None:
        self.failure: Exception | None = None
        self.timed_out = False
        self.stop_signal: str | None = None
        self.pipe_held_open = False
        self.finished_at_utc = ""
        self.finished_s = 0.0
        self._child = child
        self._selector = selector
        self._streams = streams
        self._echo = echo
        self._arrived = arrived
        self._pipes = {
            name: pipe
            for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr))
            if pipe is not None
        }

    def watch(self, deadline_s: float, grace_s: float) -> None:
        """Read until the child has ended, by itself or because it had to."""
        for name, pipe in self._pipes.items():
            self._selector.register(pipe, selectors.EVENT_READ, name)
        self._read_until(deadline_s, self._must_stop)
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
            if self._has_ended():
                break
            self.timed_out = not self._must_stop()
            self.stop_signal = number.name
            _signal_group(self._child.pid, number)
            self._read_until(time.monotonic() + patience_s)
        self.finished_at_utc, self.finished_s = _utc_now(), time.monotonic()
        self._drain()
        self.pipe_held_open = bool(self._selector.get_map())

    def leave_nothing(self, older_children: set[int]) -> None:
        """Kill what is left of the run, wait until it is gone, and close the pipes.

        Raises:
            FixtureFailed: when a process survives.
        """
        # All at once, so that none can fork away. The child is not reaped yet: its number cannot have
        # become another group's.
        _signal_group(self._child.pid, signal.SIGKILL)
        deadline_s = time.monotonic() + _KILL_WAIT_S
        try:
            while survivors := self._survivors(older_children):
                if time.monotonic() > deadline_s:
                    raise FixtureFailed(
                        f"process {survivors[0]} of the run survives SIGKILL",
                        remedy="look for a hung device or file system before the next run",
                    )
                self._read_ready(_SHORT_TICK_S)
            self._drain()
        finally:
            for pipe in self._pipes.values():
                pipe.close()

    def _survivors(self, older_children: set[int]) -> list[int]:
        """Processes of the run that are not gone yet; kills and reaps those that lost their parent.

        Killing one makes its own children ours, so the caller asks again until there are none. None
        can be missed on the way: whoever is left descends from a child of ours, and a child of ours
        does not go before it is reaped here.
        """
        if self._child.poll() is None:
            return [self._child.pid]
        orphans = sorted(_children() - older_children)
        for pid in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return orphans

    def _must_stop(self) -> bool:
        return bool(self._arrived) or self.failure is not None

    def _has_ended(self) -> bool:
        """Whether the child has ended; it stays a zombie, and its number with it."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._child.pid, options) is not None

    def _read_until(self, deadline_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Read until the child has ended, the deadline has passed, or `stop` says so."""
        while not self._has_ended() and time.monotonic() < deadline_s and not stop():
            self._read_ready(_TICK_S if self._selector.get_map() else _SHORT_TICK_S)

    def _drain(self) -> None:
        """Read to the end of the pipes; of one that stays open, what is in it and no more."""
        end_s = time.monotonic() + _SETTLE_S
        budget_bytes = 2 * _MAX_PIPE_BYTES
        while self._selector.get_map() and budget_bytes > 0:
            wait_s = max(0.0, end_s - time.monotonic())
            count = self._read_ready(wait_s)
            if wait_s == 0.0:
                if count == 0:
                    return
                budget_bytes -= count

    def _read_ready(self, wait_s: float) -> int:
        """Read once from each pipe that has something within `wait_s`; returns the bytes read."""
        total = 0
        for key, _ in self._selector.select(wait_s):
            # Does not block: nobody else reads from these pipes, so what was ready still is.
            chunk = os.read(key.fd, _CHUNK_BYTES)
            if chunk:
                self._take(key.data, chunk)
                total += len(chunk)
            else:
                self._selector.unregister(key.fileobj)
        return total

    def _take(self, name: str, chunk: bytes) -> None:
        if self.failure is not None:
            return
        try:
            self._streams[name].take(chunk)
            if self._echo is not None:
                self._echo(name, chunk)
        except BrokenPipeError:
            # Whoever read along has gone (`qualgate run | head`); the evidence goes on.
            self._echo = None
        except Exception as error:
            self.failure = error


# --- the streams ----------------------------------------------------------------------------------


class _Capture:
    """One stream's file, its hash, and the ends of its text.

    Raises:
        StorageError: on entering, in `take`, and on leaving, when the file cannot be written.
    """

    def __init__(self, name: str, path: Path, text_cap_bytes: int) -> None:
        self._name = name
        self._path = path
        self._cap_bytes = text_cap_bytes
        self._tail_cap_bytes = text_cap_bytes - text_cap_bytes // 2
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._head = bytearray()
        self._tail = bytearray()

    def __enter__(self) -> _Capture:
        with self._storage_errors():
            # Unbuffered: what has been read is in the file, whatever happens to this process next.
            self._file = self._path.open("wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        with self._storage_errors():  # network file systems tell of a full disk only here
            self._file.close()

    def take(self, chunk: bytes) -> None:
        """Append a chunk to the file, then to the hash and the text."""
        with self._storage_errors():
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._file.write(rest) :]
        self._size_bytes += len(chunk)
        self._hash.update(chunk)
        self._head += chunk[: self._cap_bytes - len(self._head)]
        self._tail += chunk
        del self._tail[: max(0, len(self._tail) - self._tail_cap_bytes)]

    def captured(self) -> CapturedStream:
        """The stream as it was captured."""
        is_complete = self._size_bytes <= self._cap_bytes
        return CapturedStream(
            path=self._path,
            size_bytes=self._size_bytes,
            sha256=self._hash.hexdigest(),
            text=self._head.decode("utf-8", "replace") if is_complete else self._ends(),
            text_is_complete=is_complete,
        )

    def _ends(self) -> str:
        """Both ends of the text; a character that a cut would split is left out whole."""
        head = bytes(self._head[: self._cap_bytes // 2])
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        first = decoder.decode(head)
        split_bytes = len(decoder.getstate()[0])
        tail = bytes(self._tail)
        # At most three bytes can be the rest of a character; more are no UTF-8, and stay.
        tail = tail[:3].lstrip(_UTF8_CONTINUATIONS) + tail[3:]
        left_out = self._size_bytes - (len(head) - split_bytes) - len(tail)
        last = tail.decode("utf-8", "replace")
        note = f"[qualgate: {left_out} bytes left out here; the file of this stream has them all]"
        return f"{first}\n{note}\n{last}"

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot write {self._name}: {error.strerror}",
                where=str(self._path),
                remedy="free space there, or choose another folder",
            ) from error


# --- this process ---------------------------------------------------------------------------------


@contextmanager
def noted_stop_signals() -> Iterator[Sequence[signal.Signals]]:
    """Note stop signals instead of dying of them; the names noted so far are what is yielded.

    Raises:
        Interrupted: on leaving, with the old handlers back, when a signal was noted. No moment lies
            between the two in which a signal could be lost.
    """
    arrived: list[signal.Signals] = []
    former = {}
    in_main_thread = threading.current_thread() is threading.main_thread()
    try:
        for number in STOP_SIGNALS if in_main_thread else ():
            # Ignored stays ignored (nohup), and a handler of C code could not be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                former[number] = signal.getsignal(number)
                signal.signal(number, lambda got, _: arrived.append(signal.Signals(got)))
        yield arrived
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        if arrived:
            raise Interrupted(f"{arrived[0].name} arrived and the run was stopped")


@contextmanager
def _adopted_orphans(prctl: _Prctl) -> Iterator[None]:
    """Make this process the parent of every descendant that loses its own parent."""
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


_Prctl = Callable[[int, int, int, int, int], int]


def _load_prctl() -> _Prctl:
    # PyDLL keeps the interpreter's lock during the call; `_bond_to` relies on it.
    function = ctypes.PyDLL(None).prctl
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    function.restype = ctypes.c_int
    return function


def _signal_group(group: int, number: int) -> None:
    """Send a signal to every process of a group that may be signalled; to none if it is empty."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _children() -> set[int]:
    """Process numbers of this process's children, zombies included."""
    own_pid = os.getpid()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # `PID (NAME) STATE PPID ...`, where NAME may hold spaces and parentheses.
            with suppress(OSError):  # it has ended meanwhile
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[1]) == own_pid:
                    found.add(int(entry.name))
    return found
