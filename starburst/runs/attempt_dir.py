"""What the disk knows of one attempt of a job.

<root>/<job>/<attempt>/end.json          how it ended; written once, last
                       stop.json         it was told to end, and why; written once
                       <rank>/spec.json  what the shim is to run; all ranks appear at one stroke: the claim
                              lock       flocked by the shim for as long as it lives
                              started.json, stop.json, exit.json, log, work/
                              report.json  what the task says of its progress (starburst/iterator.py)
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starburst.core.events import Progress, RunEnd, RunEnded
from starburst.runs import shim
from starburst.runs.exits import Exit, load_exit
from starburst.runs.files import claim_directory, directory_name, id_of, write_json_once
from starburst.runs.report import REPORT, Report, read_report
from starburst.runs.shim import read_json, write_json


@dataclass(frozen=True, slots=True)
class RankDir:
    """One task of an attempt."""

    path: Path

    def spec(self) -> dict[str, Any]:
        """What the shim was told to run."""
        spec: dict[str, Any] = read_json(self.path / "spec.json")
        return spec

    def shim_pid(self) -> int | None:
        """The shim's process id, once the command has been started."""
        started = read_json(self.path / "started.json")
        return None if started is None else int(started["shim"])

    def exit(self) -> Exit | None:
        """How it ended; None while it runs, or when its shim was killed, or what it left is no exit."""
        return load_exit(self.path / "exit.json")

    def report(self) -> Report | None:
        """What the task says of its progress; None if it says nothing, or nothing of sense."""
        return read_report(self.path / REPORT)

    def touched(self) -> bool:
        """Whether a shim got so far that something may have run."""
        return self.shim_pid() is not None or self.exit() is not None

    def alive(self) -> bool:
        """Whether its shim lives."""
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _flock(lock)
        finally:
            os.close(lock)

    def spawn(self) -> int | None:
        """Start the shim and hand it the lock; None if one lives already."""
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _flock(lock):
                return None
            log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            (self.path / "work").mkdir(exist_ok=True)
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", shim.__file__, str(self.path)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, lock, shim.LOCK_FD),
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(self.path / "log"), log_flags, 0o644),
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
            finally:
                os.close(handle)

    def kill_strays(self) -> bool:
        """SIGKILL what a killed shim left behind; whether there was anything. Knows it by its environment."""
        marker = f"STARBURST_RUN={self.spec()['env']['STARBURST_RUN']}".encode()
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone meanwhile, or another user's
                if marker in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        return found


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
        numbers = sorted(int(path.name) for path in self.path.glob("[0-9]*"))
        return [RankDir(self.path / str(number)) for number in numbers]

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
        data = read_json(self.path / "end.json")
        if data is None:
            return None
        return RunEnded(*self.key, RunEnd(data["end"]), data["exit_code"], data["message"])

    def settle(self, end: RunEnded) -> None:
        """Keep how it ended for ever."""
        write_json_once(self.path / "end.json", _end_data(end))

    def stop_asked(self) -> dict[str, Any] | None:
        """The first stop it was told: `end`, `message`, `grace_s`, and `at` in wall seconds."""
        asked: dict[str, Any] | None = read_json(self.path / "stop.json")
        return asked

    def ask_stop(self, grace_s: float, end: RunEnd, message: str, at: float) -> None:
        """Have every task ended; the run then counts as `end`, unless it was over before."""
        asked = {"end": end.value, "message": message, "grace_s": grace_s, "at": at}
        write_json_once(self.path / "stop.json", asked)
        for rank in self.ranks():
            rank.ask_stop(grace_s)


def attempts_under(root: Path) -> list[AttemptDir]:
    """Every attempt below a root."""
    return [AttemptDir(path) for path in sorted(root.glob("[!.]*/[0-9]*"))]


def log_path(root: Path, job_id: str, attempt: int, rank: int = 0) -> Path:
    """Where a task's output goes."""
    return AttemptDir.of(root, job_id, attempt).path / str(rank) / "log"


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_data(end: RunEnded) -> dict[str, Any]:
    return {"end": end.end.value, "exit_code": end.exit_code, "message": end.message}
