"""Independent cases at the same time, within a number of cores: the scheduler of `gate --cases`.

Rules

- Each case has an orchestrator process of its own, a fork of this one: a run needs the signals, the orphans
  and the children of its whole process for itself, so threads would end each other's runs (see `process`).
- A case keeps its settings, whatever else runs: its number of threads is what it counts in the limit and is
  never made smaller. CPU affinity is left alone, since libraries choose by the CPUs that they see.
- An error ends its own case. A signal ends all: every case's process is asked to stop, ends its task process
  with its group and is waited for. If this process is killed outright, the kernel kills the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Final, Generic, NoReturn, TypeVar

from orchestrator.environment import NumericSettings
from orchestrator.errors import FixtureFailed, Interrupted, QualgateError, UsageError
from orchestrator.models import Case
from orchestrator.process import STOP_SIGNALS, bond_to_parent, noted_stop_signals

T = TypeVar("T")

_TICK_S: Final = 0.1  # how late a signal is noticed
_STOP_WAIT_S: Final = 20.0  # a case's process ends its run within half of that: see `process`


@dataclass(frozen=True)
class Job:
    """One case with the settings that it runs under."""

    case: Case
    settings: NumericSettings


@dataclass(frozen=True)
class Finished(Generic[T]):
    """What became of a job: what its act returned or the error that ended it, and the seconds it took."""

    job: Job
    outcome: T | QualgateError
    duration_s: float


def check_cores(jobs: Iterable[Job], cores: int) -> None:
    """Refuse a job that could never start.

    Raises:
        UsageError: naming it.
    """
    for job in jobs:
        if job.settings.threads > cores:
            raise UsageError(
                f"--cores: found {cores}, but {job.case.name} runs with {job.settings.threads} threads",
                remedy="give more cores; other threads would be other bits",
            )


def next_to_start(waiting: Sequence[Job], running: Iterable[Job], cores: int) -> Job | None:
    """The first waiting job whose threads fit beside those of the running ones.

    On a GPU one job runs at a time: jobs there share its memory, which `cores` says nothing of.
    """
    busy = list(running)
    free = cores - sum(job.settings.threads for job in busy)
    gpu_is_busy = any(job.settings.device == "cuda" for job in busy)
    for job in waiting:
        if job.settings.threads <= free and not (gpu_is_busy and job.settings.device == "cuda"):
            return job
    return None


def run_side_by_side(
    jobs: Sequence[Job],
    cores: int,
    act: Callable[[Job], T],
    tell: Callable[[Finished[T]], object],
) -> list[Finished[T]]:
    """Do `act` on every job in a process of its own; returns what became of each, in the order of `jobs`.

    No job may be there twice. The threads of those that run at one time are together at most `cores`. What
    `act` returns has to be picklable; `tell` is told of each job as it ends. Call it in the main thread,
    with no other beside it: forks and signals are no matter for threads.

    Raises:
        UsageError: for a job with more threads than `cores`.
        Interrupted: when SIGINT, SIGTERM or SIGHUP arrived; no process is left then.
    """
    check_cores(jobs, cores)
    waiting, running, finished = list(jobs), list[_Worker[T]](), list[Finished[T]]()
    with noted_stop_signals() as arrived:
        try:
            while not arrived and (waiting or running):
                while (job := next_to_start(waiting, (item.job for item in running), cores)) is not None:
                    waiting.remove(job)
                    running.append(_Worker(job, act))
                for worker in _ready(running):
                    running.remove(worker)
                    finished.append(worker.finish())
                    tell(finished[-1])
        finally:
            _stop(running)
    return sorted(finished, key=lambda item: jobs.index(item.job))


# --- one job's process ----------------------------------------------------------------------------


class _Worker(Generic[T]):
    """The process of one job, and the pipe through which its outcome comes."""

    def __init__(self, job: Job, act: Callable[[Job], T]) -> None:
        self.job = job
        self._started_s = time.monotonic()
        self.outcome, ours = multiprocessing.Pipe(duplex=False)
        # A fork brings what is loaded already. OpenBLAS, in NumPy, may have threads: it ends them itself.
        self.process = ForkProcess(target=_work, args=(job, act, ours, os.getpid()))
        # A signal between the fork and the new process's own handlers would be noted there and forgotten.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self.process.start()
        except OSError as error:
            raise FixtureFailed(
                f"cannot start a process for {job.case.name}: {error.strerror}",
                remedy="run fewer cases at one time: --cores",
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            # The only one that can write is then the process itself: its end is the end of the pipe.
            ours.close()

    def finish(self) -> Finished[T]:
        """What became of the job; waits for the end of its process."""
        outcome: T | QualgateError
        try:
            outcome = self.outcome.recv()
            self.process.join()
        except EOFError:
            self.process.join()
            outcome = FixtureFailed(
                f"the process that gates it ended with {self.process.exitcode} in the middle",
                where=self.job.case.name,
                remedy="look for the out-of-memory killer; a traceback, if there is one, is above",
            )
        self.outcome.close()
        return Finished(self.job, outcome, time.monotonic() - self._started_s)


def _ready(running: Sequence[_Worker[T]]) -> list[_Worker[T]]:
    """The workers that have an outcome or have died, within a tick."""
    ready = wait([worker.outcome for worker in running], _TICK_S)
    return [worker for worker in running if worker.outcome in ready]


def _stop(running: Sequence[_Worker[T]]) -> None:
    """Ask every worker to stop and wait until it has; one that does not is killed, and its run with it."""
    for worker in running:
        worker.process.terminate()
    deadline_s = time.monotonic() + _STOP_WAIT_S
    for worker in running:
        # What it still says must not fill the pipe and hold it up.
        worker.outcome.close()
        worker.process.join(max(0.0, deadline_s - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()


def _work(job: Job, act: Callable[[Job], T], outcome: Connection, parent_pid: int) -> None:
    # A session of its own: Ctrl-C at the terminal reaches the scheduler alone, which passes it on once.
    os.setsid()
    bond_to_parent(parent_pid)
    try:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        outcome.send(_outcome(job, act))
    except (Interrupted, BrokenPipeError):
        return  # the scheduler has asked for it, and listens no more


def _outcome(job: Job, act: Callable[[Job], T]) -> T | QualgateError:
    try:
        return act(job)
    except QualgateError as error:
        return error


def _interrupt(number: int, _: object) -> NoReturn:
    raise Interrupted(f"interrupted by {signal.Signals(number).name}")
