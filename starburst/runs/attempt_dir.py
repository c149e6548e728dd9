"""What the disk knows of one attempt of a job.

<root>/<job>/<attempt>/end.json          how it ended; written once, last
                       stop.json         it was told to end, and why; written once
                       <rank>/spec.json  what the shim is to run; all ranks appear at one stroke: the claim
                              lock       flocked by the shim for as long as it lives
                              started.json, stop.json, exit.json, log
                              work/, home/ and tmp/ (of tasks that are kept apart)
                              report/report.json  what the task says of its progress (starburst/iterator.py)

A task that runs as the scheduler can write over all of it. So whatever is read here is checked, and what is
not as it should be counts as absent: that is the run's own loss, and nobody else's.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starburst.core.model.events import Progress, RunEnd, RunEnded
from starburst.runs.files import claim_directory, directory_name, id_of, write_json_once
from starburst.runs.supervisor.cgroups import recorded
from starburst.runs.supervisor.children import LOCK_FD
from starburst.runs.supervisor.exits import Exit, load_exit
from starburst.runs.supervisor.files import FULL_DISK, read_fact, try_lock, write_json
from starburst.runs.supervisor.progress_report import FILE_NAME, VARIABLE, ProgressReport, read_report
from starburst.runs.supervisor.strays import kill_strays

#: What the kernel takes as arguments and variables is 2 MiB or so; in JSON it may be six times that.
MOST_SPEC = 1 << 24
#: Of our own environment, what the shim's Python may need; nothing that is a secret.
SHIM_NEEDS = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
#: What is started by path as the supervisor of a task.
SUPERVISOR = str(Path(__file__).parent / "supervisor" / "__main__.py")
#: Names of attempts and ranks.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class RankDir:
    """One task of an attempt."""

    path: Path

    def spec(self) -> dict[str, Any]:
        """What the shim was told to run; of a spec that is none any more, where it ran is not known."""
        spec = read_fact(self.path / "spec.json", MOST_SPEC) or {}
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
        """What the task writes of its progress."""
        return self.path / "report" / FILE_NAME

    def shim_pid(self) -> int | None:
        """The shim's process id, once the command has been started."""
        pid = (read_fact(self.path / "started.json") or {}).get("shim")
        return pid if type(pid) is int and 1 < pid < 1 << 31 else None

    def exit(self) -> Exit | None:
        """How it ended; None while it runs, or when its shim was killed, or what it left is no exit."""
        return load_exit(self.path / "exit.json")

    def report(self) -> ProgressReport | None:
        """What the task says of its progress; None if it says nothing, or nothing of sense."""
        return read_report(self.report_path)

    def touched(self) -> bool:
        """Whether a shim got so far that something may have run."""
        return self.shim_pid() is not None or self.exit() is not None

    def alive(self) -> bool:
        """Whether its shim lives."""
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
        """Start the shim and hand it the lock; None if one lives already."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(lock):
                return None
            log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            for name in ("work", "report"):
                (self.path / name).mkdir(exist_ok=True, mode=0o700)
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", SUPERVISOR, str(self.path)],
                {key: os.environ[key] for key in SHIM_NEEDS if key in os.environ},
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
        """Have the shim end its task; it looks for the file at its start, so no signal comes too early."""
        write_json(self.path / "stop.json", {"grace_s": grace_s})
        pid = self.shim_pid()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if self.alive():  # so the number was the shim's when we took hold of it
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    signal.pidfd_send_signal(handle, signal.SIGCONT)  # the job may have stopped it
            finally:
                os.close(handle)

    def kill_strays(self) -> bool:
        """SIGKILL what a killed shim left behind; whether there was anything."""
        spec = self.spec()
        marks = [f"{VARIABLE}={self.report_path}"]
        if isinstance(run := spec["env"].get("STARBURST_RUN"), str) and run:
            marks.append(f"STARBURST_RUN={run}")
        return kill_strays(self.path, recorded(spec.get("cgroup"), self.path), marks)


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """One attempt of a job."""

    path: Path

    @classmethod
    def of(cls, root: Path, job_id: str, attempt: int) -> AttemptDir:
        """Where an attempt is, or would be."""
        return cls(root / directory_name(job_id) / str(attempt))

    @property
    def key(self) -> tuple[str, int]:
        """The job's id and the attempt's number."""
        return id_of(self.path.parent), int(self.path.name)

    def claim(self, specs: list[dict[str, Any]]) -> bool:
        """Take the attempt's name with what each rank runs; False if it is taken."""
        return claim_directory(self.path, {f"{rank}/spec.json": spec for rank, spec in enumerate(specs)})

    def claim_ended(self, end: RunEnded) -> bool:
        """Take the attempt's name with an end and nothing to run; False if it is taken."""
        return claim_directory(self.path, {"end.json": _end_data(end)})

    def ranks(self) -> list[RankDir]:
        """Its tasks in the order of their ranks."""
        return [RankDir(path) for path in sorted(_numbered(self.path), key=lambda path: int(path.name))]

    def started(self) -> bool:
        """Whether every task was started."""
        ranks = self.ranks()
        return bool(ranks) and all(rank.shim_pid() is not None for rank in ranks)

    def progress(self) -> Progress | None:
        """How far it is: as far as the task that has most to go; None if none says."""
        said = [report for rank in self.ranks() if (report := rank.report()) is not None]
        slowest = max(said, key=lambda report: report.to_go, default=None)
        return None if slowest is None else Progress(*self.key, slowest.done, slowest.total, slowest.per_s)

    def over(self) -> bool:
        """Whether no task is alive or still to be started."""
        return not any(rank.alive() or not rank.touched() for rank in self.ranks())

    def end(self) -> RunEnded | None:
        """How it ended, once that is settled."""
        said = read_fact(self.path / "end.json") or {}
        code, message = said.get("exit_code"), said.get("message")
        if not (_is_end(said.get("end")) and type(code) in (int, type(None)) and isinstance(message, str)):
            return None
        return RunEnded(*self.key, RunEnd(said["end"]), code, message)

    def settle(self, end: RunEnded) -> None:
        """Keep how it ended for ever."""
        told = self.path / "end.json"
        if not write_json_once(told, _end_data(end)) and self.end() is None:  # what the job left there
            if told.is_dir() and not told.is_symlink():
                shutil.rmtree(told)
            write_json(told, _end_data(end))

    def stop_asked(self) -> dict[str, Any] | None:
        """The first stop it was told: `end`, `message`, `grace_s`, and `at` in wall seconds."""
        asked = read_fact(self.path / "stop.json") or {}
        sound = _is_duration(asked.get("grace_s")) and _is_duration(asked.get("at"))
        sound = sound and _is_end(asked.get("end")) and isinstance(asked.get("message"), str)
        return asked if sound else None

    def ask_stop(self, grace_s: float, end: RunEnd, message: str, at: float) -> None:
        """Have every task ended; the run then counts as `end`, unless it was over before."""
        asked = {"end": end.value, "message": message, "grace_s": grace_s, "at": at}
        write_json_once(self.path / "stop.json", asked)
        for rank in self.ranks():
            rank.ask_stop(grace_s)


def attempts_under(root: Path) -> list[AttemptDir]:
    """Every attempt below a root."""
    return [AttemptDir(path) for job in sorted(root.glob("[!.]*")) for path in sorted(_numbered(job))]


def log_path(root: Path, job_id: str, attempt: int, rank: int = 0) -> Path:
    """Where a task's output goes."""
    return AttemptDir.of(root, job_id, attempt).path / str(rank) / "log"


def _numbered(directory: Path) -> list[Path]:
    """Directories in it that are named by a number as we write them."""
    found = (path for path in directory.glob("[0-9]*") if _NUMBER.fullmatch(path.name))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_end(value: Any) -> bool:
    return isinstance(value, str) and value in {end.value for end in RunEnd}


def _end_data(end: RunEnded) -> dict[str, Any]:
    return {"end": end.end.value, "exit_code": end.exit_code, "message": end.message}
