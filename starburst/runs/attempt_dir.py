"""One attempt of a job on disk: the only memory of its runs, which survives a kill of the scheduler.

<root>/<job>/<attempt>/end.json          how it ended; written once, last
                       stop.json         the first request to stop it; written once
                       <rank>/spec.json  what the supervisor runs; all ranks appear by one rename: the claim
                              lock       flock of the supervisor for as long as it lives
                              started.json, stop.json, exit.json, log
                              work/, home/ and tmp/ (of tasks that are kept apart)
                              report/report.json  the task's progress (starburst/iterator.py)
                       report/hosts        the addresses of its gang (supervisor/progress_report.py)

A task that runs as the scheduler can overwrite all of it. So everything read here is checked, and an unsound
file counts as absent: the loss is that run's alone.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from starburst.core.model.events import Progress, RunEnd, RunEnded
from starburst.runs.files import claim_directory, directory_name, id_of, write_json_once
from starburst.runs.outcome import has_decided
from starburst.runs.supervisor import cgroups
from starburst.runs.supervisor.children import LOCK_FD
from starburst.runs.supervisor.exits import Exit, is_time, load_exit
from starburst.runs.supervisor.files import FULL_DISK, read_fact, try_lock, write_json
from starburst.runs.supervisor.progress_report import (
    FILE_NAME,
    HOSTS_NAME,
    HOSTS_VARIABLE,
    VARIABLE,
    ProgressReport,
    read_report,
    write_hosts,
)
from starburst.runs.supervisor.strays import kill_strays

#: Bytes of a spec: the kernel takes 2 MiB or so of arguments and variables, six times that in JSON.
MAX_SPEC_BYTES = 1 << 24
#: Variables that the supervisor's Python may need of the scheduler's environment; none holds a secret.
PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
#: The program that is started by path as the supervisor of a task.
SUPERVISOR = str(Path(__file__).parent / "supervisor" / "__main__.py")
#: Names of attempts and ranks.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class RankDir:
    """One task of an attempt."""

    path: Path

    def spec(self) -> dict[str, Any]:
        """What the supervisor runs; of an unsound spec a substitute, which belongs to no machine."""
        spec = read_fact(self.path / "spec.json", MAX_SPEC_BYTES) or {}
        gpus, env = spec.get("gpus"), spec.get("env")
        sound = (
            isinstance(spec.get("where"), str)
            and isinstance(gpus, list)
            and all(type(gpu) is int for gpu in gpus)
            and isinstance(spec.get("lease"), str | None)
            and _is_duration(spec.get("grace_s"))
            and isinstance(env, dict)
        )
        return spec if sound else {"where": "", "gpus": [], "lease": None, "grace_s": 0.0, "env": {}}

    @property
    def report_path(self) -> Path:
        """The file to which the task writes its progress."""
        return self.path / "report" / FILE_NAME

    def hosts_variable(self, hosts: list[str]) -> dict[str, str]:
        """The variable that names the task's hosts file; {} if it is to have none."""
        return {HOSTS_VARIABLE: str(self.report_path.with_name(HOSTS_NAME))} if hosts else {}

    def shim_pid(self) -> int | None:
        """The supervisor's process id, once the command was started."""
        pid = (read_fact(self.path / "started.json") or {}).get("shim")
        return pid if type(pid) is int and 1 < pid < 1 << 31 else None

    def deciding(self) -> tuple[int, ...]:
        """The ranks whose success is that of the run; () is all of them, and of an unsound spec."""
        found = self.spec().get("deciding")
        sound = isinstance(found, list) and all(type(rank) is int and rank >= 0 for rank in found)
        return tuple(found) if sound and found else ()

    def exit(self) -> Exit | None:
        """How it ended; None while it runs, after its supervisor was killed, or if the file is unsound."""
        return load_exit(self.path / "exit.json")

    def report(self) -> ProgressReport | None:
        """The task's progress report; None if there is none, or it is unsound."""
        return read_report(self.report_path)

    def touched(self) -> bool:
        """Whether a supervisor got so far that something may have run."""
        return self.shim_pid() is not None or self.exit() is not None

    def alive(self) -> bool:
        """Whether its supervisor is alive.

        Raises:
            OSError: it cannot be told at the moment, as for want of open files.
        """
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in FULL_DISK:
                raise
            return False
        try:
            return not try_lock(lock)
        finally:
            os.close(lock)

    def spawn(self) -> int | None:
        """Start the supervisor with the lock as LOCK_FD; its process id, or None if one is alive."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(lock):
                return None
            log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            for name in ("work", "report"):
                (self.path / name).mkdir(exist_ok=True, mode=0o700)
            write_hosts(self.path / "report", self.spec().get("hosts") or [])
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", SUPERVISOR, str(self.path)],
                {key: os.environ[key] for key in PASSED_VARIABLES if key in os.environ},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, lock, LOCK_FD),
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(self.path / "log"), log_flags, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=(),
            )
        finally:
            os.close(lock)

    def ask_stop(self, grace_s: float) -> None:
        """Have the supervisor end its task. It also reads the file at its start: no stop comes too early."""
        write_json(self.path / "stop.json", {"grace_s": grace_s})
        pid = self.shim_pid()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if self.alive():  # so the number was the supervisor's when the handle was opened
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    signal.pidfd_send_signal(handle, signal.SIGCONT)  # the job may have sent it a SIGSTOP
            finally:
                os.close(handle)

    def kill_group(self) -> bool:
        """SIGKILL what is in the task's control group; whether there was anything.

        The group is looked for where the spec says and where this process would make it: the task may have
        spoiled its spec.
        """
        here = cgroups.group_of(self.path)
        groups = {
            cgroups.recorded(self.spec().get("cgroup"), self.path),
            None if here is None else Path(here),
        }
        killed = [cgroups.kill(group) for group in groups if group is not None]
        return any(killed)

    def kill_strays(self) -> bool:
        """SIGKILL what a killed supervisor left behind; whether there was anything."""
        spec = self.spec()
        marks = [f"{VARIABLE}={self.report_path}"]
        if isinstance(run := spec["env"].get("STARBURST_RUN"), str) and run:
            marks.append(f"STARBURST_RUN={run}")
        found = self.kill_group()
        return kill_strays(self.path, marks) or found


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """One attempt of a job."""

    path: Path

    @classmethod
    def of(cls, root: Path, job_id: str, attempt: int) -> AttemptDir:
        """The directory of an attempt, whether it exists or not."""
        return cls(root.joinpath(directory_name(job_id), str(attempt)))

    @property
    def key(self) -> tuple[str, int]:
        """The job's id and the attempt's number."""
        return id_of(self.path.parent), int(self.path.name)

    def claim(self, specs: list[dict[str, Any]]) -> bool:
        """Create the attempt with a spec per rank, by one rename; False if it exists."""
        return claim_directory(self.path, {f"{rank}/spec.json": spec for rank, spec in enumerate(specs)})

    def claim_ended(self, end: RunEnded) -> bool:
        """Create the attempt with an end and nothing to run; False if it exists."""
        return claim_directory(self.path, {"end.json": _end_data(end)})

    def ranks(self) -> list[RankDir]:
        """Its tasks in the order of their ranks."""
        return [RankDir(path) for path in sorted(_numbered(self.path), key=lambda path: int(path.name))]

    def deciding(self) -> tuple[int, ...]:
        """The ranks whose success is that of the run; () is all of them."""
        return next((rank.deciding() for rank in self.ranks()), ())

    def started(self) -> bool:
        """Whether every task was started."""
        ranks = self.ranks()
        return bool(ranks) and all(rank.shim_pid() is not None for rank in ranks)

    def progress(self) -> Progress | None:
        """Progress of the task with most left to do, as that of the run; None if no task reports any."""
        said = [report for rank in self.ranks() if (report := rank.report()) is not None]
        slowest = max(said, key=lambda report: report.to_go, default=None)
        return None if slowest is None else Progress(*self.key, slowest.done, slowest.total, slowest.per_s)

    def grace_s(self) -> float:
        """Seconds between SIGTERM and SIGKILL for its tasks."""
        return min((float(rank.spec()["grace_s"]) for rank in self.ranks()), default=0.0)

    def leases(self) -> set[str]:
        """The files of the leases of its machines."""
        return {rank.spec()["lease"] for rank in self.ranks()}

    def over(self) -> bool:
        """Whether no task is alive or still to be started."""
        return not any(rank.alive() or not rank.touched() for rank in self.ranks())

    def end(self) -> RunEnded | None:
        """How it ended, once that is settled; `ended_at` is in epoch seconds of this machine's clock here.

        Versions that did not note when it ended left it out.
        """
        said = read_fact(self.path / "end.json") or {}
        code, message, at = said.get("exit_code"), said.get("message"), said.get("ended_at")
        sound = _is_end(said.get("end")) and type(code) in (int, type(None)) and (at is None or is_time(at))
        if not (sound and isinstance(message, str)):
            return None
        return RunEnded(*self.key, RunEnd(said["end"]), code, message, ended_at=at)

    def settle(self, end: RunEnded) -> None:
        """Write how it ended, for good; `ended_at` as `end` has it."""
        told = self.path / "end.json"
        if (
            not write_json_once(told, _end_data(end)) and self.end() is None
        ):  # the job had put something else there
            if told.is_dir() and not told.is_symlink():
                shutil.rmtree(told)
            write_json(told, _end_data(end))

    def stop_asked(self) -> dict[str, Any] | None:
        """The first request to stop: `end`, `message`, `grace_s`, `at` (epoch seconds); None without one."""
        asked = read_fact(self.path / "stop.json") or {}
        sound = _is_duration(asked.get("grace_s")) and _is_duration(asked.get("at"))
        sound = sound and _is_end(asked.get("end")) and isinstance(asked.get("message"), str)
        return asked if sound else None

    def ask_stop(self, grace_s: float, end: RunEnd, message: str, at: float) -> None:
        """End every task; the run counts as `end`, unless it was over before `at`."""
        asked = {"end": end.value, "message": message, "grace_s": grace_s, "at": at}
        write_json_once(self.path / "stop.json", asked)
        for rank in self.ranks():
            rank.ask_stop(grace_s)


def attempts_under(root: Path) -> list[AttemptDir]:
    """Every attempt below a root."""
    return [AttemptDir(path) for job in sorted(root.glob("[!.]*")) for path in sorted(_numbered(job))]


@lru_cache(1024)  # it is asked for at each look at a task
def log_path(root: Path, job_id: str, attempt: int, rank: int = 0) -> Path:
    """The file of a task's output."""
    return root.joinpath(directory_name(job_id), str(attempt), str(rank), "log")


def _numbered(directory: Path) -> list[Path]:
    """Directories in it whose names are numbers without leading zeros."""
    found = (path for path in directory.glob("[0-9]*") if _NUMBER.fullmatch(path.name))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_end(value: Any) -> bool:
    return isinstance(value, str) and value in {end.value for end in RunEnd}


def _end_data(end: RunEnded) -> dict[str, Any]:
    return {
        "end": end.end.value,
        "exit_code": end.exit_code,
        "message": end.message,
        "ended_at": end.ended_at,
    }


def ends_gang(rank: RankDir, gang: Sequence[RankDir]) -> bool:
    """Whether the end of a task is that of its gang: it failed, or all tasks that decide have succeeded."""
    found, deciding = rank.exit(), rank.deciding()
    if found is None or not found.went_well:
        return True
    return bool(deciding) and has_decided([each.exit() for each in gang], deciding)
