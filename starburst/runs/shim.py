"""The supervisor of one task of a run: a process of its own, which outlives the scheduler.

Started by path as `python -I -S shim.py <rank directory>`, so it imports the standard library only. It holds
the directory's `lock` (an flock inherited as fd 3) for as long as it lives, runs the command of `spec.json`,
writes `started.json` when that runs, and `exit.json` once nothing of it is alive. It ends the job on its own
when `stop.json` says so (a SIGTERM makes it look), at the time limit, and when a rented machine's lease has
passed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from typing import Any

LOCK_FD = 3
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WAKERS = {signal.SIGTERM, signal.SIGCHLD}
LEASE_LOOK_S = 1.0
IDLE_S = 60.0

#: Who ended a task, as `exit.json` says it.
ITSELF, STOP, TIME_LIMIT, LEASE, REFUSAL = "itself", "stop", "time_limit", "lease", "refusal"

#: The machine is short of something just now: no fault of the command.
PASSING_ERRORS = {errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE}


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write a whole file or none of it."""
    staging = f"{os.fspath(path)}.tmp"
    with open(staging, "w", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staging, path)


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a file says; None where there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


class Supervisor:
    """Runs the command of one rank directory to its end. Times are monotonic seconds unless named `_at`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.spec = read_json(self._path("spec.json"))
        self.spec["env"].update(self._secrets())
        self.status: int | None = None  # of the main process, once it has ended
        self.ended_by = ITSELF
        self.started_at = self.ended_at = time.time()
        self.kill_time = math.inf
        limit_s = self.spec["time_limit_s"]
        self.limit_time = math.inf if limit_s is None else time.monotonic() + limit_s

    def run(self) -> None:
        """Start the job, wait, clear up, and leave `exit.json`."""
        if read_json(self._path("stop.json")) is not None:
            self.ended_by = STOP
            self._write_exit(None, "stopped before it began")
            return
        try:
            self.process = self._spawn()
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in PASSING_ERRORS:
                raise
            self.ended_by = REFUSAL
            self._write_exit(None, self._refusal(error))
            return
        write_json(self._path("started.json"), {"shim": os.getpid(), "job": self.process.pid})
        status = self._supervise()
        end_children()
        self._write_exit(os.waitstatus_to_exitcode(status), self._message())

    def _secrets(self) -> dict[str, str]:
        """Variables that are in no other file, and in none from now on."""
        secrets: dict[str, str] = read_json(self._path("secrets.json")) or {}
        if secrets:
            os.unlink(self._path("secrets.json"))
        return secrets

    def _spawn(self) -> subprocess.Popen[bytes]:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)

        def prepare() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

        return subprocess.Popen(
            self.spec["command"],
            cwd=self.spec["cwd"],
            env=self.spec["env"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
        )

    def _supervise(self) -> int:
        """Wait for the main process and, when it was told to end, for its children within the grace too."""
        while True:
            alone = self._reap()
            now = time.monotonic()
            if self.status is not None and (alone or self.kill_time == math.inf or now >= self.kill_time):
                return self.status
            self._look(now)
            times = [at - now for at in (self.kill_time, self.limit_time) if at > now]
            look_s = LEASE_LOOK_S if self.spec["lease"] else IDLE_S
            signal.sigtimedwait(WAKERS, min([*times, look_s]))

    def _reap(self) -> bool:
        """Collect the dead, orphans of the job included; whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.process.pid:
                self.status = status
                self.ended_at = time.time()

    def _look(self, now: float) -> None:
        """End the job if there is a reason to."""
        stop = read_json(self._path("stop.json"))
        if stop is not None:
            self._end(STOP, now + stop["grace_s"])
        if now >= self.limit_time:
            self._end(TIME_LIMIT, now + self.spec["grace_s"])
        if self.spec["lease"] and self._lease_passed():
            self._end(LEASE, now)
        if now >= self.kill_time:
            self._signal(signal.SIGKILL)

    def _lease_passed(self) -> bool:
        lease = read_json(self.spec["lease"])
        return lease is None or time.time() >= lease["until"]

    def _end(self, ended_by: str, kill_time: float) -> None:
        """SIGTERM once; a later reason can only bring the SIGKILL forward."""
        if self.kill_time == math.inf:
            self.ended_by = ended_by
            self._signal(signal.SIGTERM)
        self.kill_time = min(self.kill_time, kill_time)

    def _signal(self, number: int) -> None:
        if self.status is None:  # until it is reaped its number cannot be another's
            os.killpg(self.process.pid, number)

    def _refusal(self, error: Exception) -> str:
        what = getattr(error, "filename", None) or self.spec["command"][0]
        why = getattr(error, "strerror", None) or error
        field = "workingDir" if what == self.spec["cwd"] else "command"
        return f"cannot run {what!r}: {why}; correct {field} of the job"

    def _message(self) -> str:
        if self.ended_by == TIME_LIMIT:
            return f"ran into its time limit of {self.spec['time_limit_s']:g} s"
        return "the lease of its machine passed" if self.ended_by == LEASE else ""

    def _write_exit(self, code: int | None, message: str) -> None:
        """`code` is negative for a signal, as Python has it; the file has it as shells do."""
        exit_ = {
            "exit_code": 128 - code if code is not None and code < 0 else code,
            "signal": -code if code is not None and code < 0 else None,
            "ended_by": self.ended_by,
            "message": message,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }
        write_json(self._path("exit.json"), exit_)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def end_children() -> None:
    """Kill until there are none: as subreaper we inherit whatever a killed child leaves behind."""
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """This process's children; their numbers stay theirs until we reap them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            found.append(int(name))
    return found


if __name__ == "__main__":
    os.closerange(LOCK_FD + 1, 1 << 16)  # whatever the scheduler left open is not ours to hold
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKERS)
    Supervisor(sys.argv[1]).run()
