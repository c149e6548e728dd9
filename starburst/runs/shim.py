"""The supervisor of one task of a run: a process of its own, which outlives the scheduler.

Started by path as `python -I -S shim.py <rank directory>`, so it imports the standard library only, and what
lies beside it when its spec asks for that. It holds the directory's `lock` (an flock inherited as fd 3) for
as long as it lives, runs the command of `spec.json`, writes `started.json` when that runs, and `exit.json`
once nothing of it is alive. It ends the job on its own when `stop.json` says so (a SIGTERM makes it look), at
the time limit, and when a rented machine's lease has passed.

Room for both files is taken before the command runs, so that a full disk loses no end; what cannot be
written all the same is tried again for ever, with the lock held: until it is written nothing runs twice.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

LOCK_FD = 3
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WAKERS = {signal.SIGTERM, signal.SIGCHLD}
LEASE_LOOK_S = 1.0
IDLE_S = 60.0
#: Seconds between tries of what must be written.
RETRY_S = 1.0
#: A run whose machine's lease has passed has its grace, up to this.
LEASE_GRACE_S = 60.0
#: Of a file whose room is taken beforehand; and of what a message may hold.
ROOM, LONGEST = 4096, 500

#: What an error of seclusion names in place of a file.
RUN_AS = "run_as"

#: Who ended a task, as `exit.json` says it.
ITSELF, STOP, TIME_LIMIT, LEASE, REFUSAL = "itself", "stop", "time_limit", "lease", "refusal"

#: The machine is short of something just now: no fault of the command.
PASSING_ERRORS = {errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE}
#: And what may keep a file from being written for a while.
FULL_DISK = PASSING_ERRORS | {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE}


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write a whole file or none of it."""
    staging = f"{os.fspath(path)}.tmp"
    with open(staging, "w", encoding="utf-8", opener=private) as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staging, path)


def private(path: str, flags: int) -> int:
    """Open a file, which others cannot read if it is new."""
    return os.open(path, flags, 0o600)


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a file says; None where there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def insist(write: Callable[[], None]) -> None:
    """Write something, as often as it takes until the disk has room."""
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
        time.sleep(RETRY_S)


class Room:
    """A file that will be written once, whole, in room that is taken now."""

    def __init__(self, path: str) -> None:
        self._path, self._staging = path, f"{path}.room"
        insist(lambda: self._fill(b" " * ROOM, os.O_CREAT | os.O_TRUNC))

    def write(self, data: Any) -> None:
        """Write it, in place, and give it its name."""
        text = json.dumps(data).encode().ljust(ROOM)
        insist(lambda: self._fill(text, 0))
        insist(lambda: os.replace(self._staging, self._path))

    def _fill(self, text: bytes, flags: int) -> None:
        file = os.open(self._staging, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600)
        try:
            while text:
                text = text[os.write(file, text) :]
            os.fsync(file)
        finally:
            os.close(file)


def mark_of(directory: str) -> int:
    """What the processes of a task are known by: the hard limit RLIMIT_RTTIME, in µs.

    Children inherit it through fork, exec, setsid and an emptied environment, nobody without privileges can
    raise it, and at some 70,000 years of real-time computing it limits nothing.
    """
    return (1 << 61) + int.from_bytes(hashlib.sha256(directory.encode()).digest()[:7], "big")


def boot_id() -> str:
    """Which boot of the machine this is; seconds of CLOCK_BOOTTIME compare within one."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def new_lease(lease_s: float) -> dict[str, Any]:
    """A lease from now on, on the clock of this boot and, for a later boot, on the wall's."""
    return {"until": time.time() + lease_s, "boot": boot_id(), "until_boottime": boottime() + lease_s}


def lease_left_s(lease: Any) -> float:
    """Seconds until a lease passes; less than nothing once it has, and of what is no lease.

    A wall clock that is set does not move it, unless the machine was booted since it was renewed.
    """
    try:
        if lease.get("boot") == boot_id():
            return float(lease["until_boottime"]) - boottime()
        return float(lease["until"]) - time.time()
    except (AttributeError, KeyError, TypeError, ValueError):
        return -math.inf


class Supervisor:
    """Runs the command of one rank directory to its end. Times are monotonic seconds unless named `_at`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.spec = read_json(self._path("spec.json"))
        self.spec["env"].update(self._secrets())
        self.pid = 0
        self.status: int | None = None  # of the main process, once it has ended
        self.ended_by = ITSELF
        self.started_at, self.started = time.time(), boottime()
        self.ended = self.started
        self.kill_time = math.inf
        limit_s = self.spec["time_limit_s"]
        self.limit_time = math.inf if limit_s is None else time.monotonic() + limit_s
        self.exit = Room(self._path("exit.json"))

    def run(self, umask: int) -> None:
        """Start the job with this umask, wait, clear up, and leave `exit.json`."""
        if read_json(self._path("stop.json")) is not None:
            self.ended_by = STOP
            self._write_exit(None, "stopped before it began")
            return
        started = Room(self._path("started.json"))
        log = self._log()
        try:
            self._spawn(umask, log)
        except (OSError, ValueError) as error:
            self._clear_up()
            if getattr(error, "errno", None) in PASSING_ERRORS:
                raise
            self.ended_by = REFUSAL
            self._write_exit(None, self._refusal(error))
            return
        started.write({"shim": os.getpid(), "job": self.pid})
        if log is not None:
            log.begin()
        status = self._supervise()
        self._clear_up()
        if log is not None:
            log.end()
        self._write_exit(os.waitstatus_to_exitcode(status), self._message())

    def _clear_up(self) -> None:
        """End what is left of the job."""
        end_children()
        if self.spec.get("cgroup"):
            with suppress(OSError):
                os.rmdir(self.spec["cgroup"])

    def _secrets(self) -> dict[str, str]:
        """Variables that are in no other file, and in none from now on."""
        secrets: dict[str, str] = read_json(self._path("secrets.json")) or {}
        if secrets:
            os.unlink(self._path("secrets.json"))
        return secrets

    def _log(self) -> Any:
        """What keeps the job's output within its bounds; None where the job writes to the file itself."""
        if self.spec.get("max_log") is None:
            return None
        return import_module("log_pump").LogPump(1, self.spec["max_log"])

    def _spawn(self, umask: int, log: Any) -> None:
        """Start the command; OSError or ValueError if it cannot be started."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        heard, told = os.pipe()
        shim = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become_job(shim, umask, log, told)
            except BaseException as error:
                number, why = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
                problem = [number, why[:LONGEST], getattr(error, "filename", None)]
                os.write(told, json.dumps(problem).encode())
            finally:
                os._exit(127)
        os.close(told)
        with open(heard, "rb") as answer:
            problem = json.loads(answer.read() or b"null")
        if problem is not None:
            number, why, field = problem
            raise ValueError(why) if number is None else OSError(number, why, field)

    def _become_job(self, shim: int, umask: int, log: Any, told: int) -> None:
        """In the child: all that is different for the command, then the command."""
        os.setsid()
        die_with(shim)
        with suppress(ValueError, OSError):  # somebody has set a lower one
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(self.directory),) * 2)
        if self.spec.get("cgroup"):
            with suppress(OSError):  # the mark is left
                join(self.spec["cgroup"])
        if log is not None:
            log.redirect()
        if self.spec.get("seclusion"):
            import_module("seclusion").enter(self.spec["seclusion"])
        keep_only(told)
        os.umask(self.spec.get("umask", umask))
        if self.spec.get("open_files") is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.spec["open_files"], hard), hard))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        field = "workingDir"
        try:
            os.chdir(self.spec["cwd"])
            field = "command"
            os.execvpe(self.spec["command"][0], self.spec["command"], self.spec["env"])
        except OSError as error:
            raise OSError(error.errno, error.strerror, field) from None

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
            if pid == self.pid:
                self.status = status
                self.ended = boottime()

    def _look(self, now: float) -> None:
        """End the job if there is a reason to."""
        stop = read_json(self._path("stop.json"))
        if stop is not None:
            self._end(STOP, now + stop["grace_s"])
        if now >= self.limit_time:
            self._end(TIME_LIMIT, now + self.spec["grace_s"])
        if self.spec["lease"] and self._lease_passed():
            self._end(LEASE, now + min(self.spec["grace_s"], LEASE_GRACE_S))
        if now >= self.kill_time:
            self._signal(signal.SIGKILL)

    def _lease_passed(self) -> bool:
        try:
            return lease_left_s(read_json(self.spec["lease"])) <= 0
        except OSError as error:  # which says nothing of the lease
            return error.errno not in FULL_DISK
        except ValueError:
            return True

    def _end(self, ended_by: str, kill_time: float) -> None:
        """SIGTERM once; a later reason can only bring the SIGKILL forward."""
        if self.kill_time == math.inf:
            self.ended_by = ended_by
            self._signal(signal.SIGTERM)
        self.kill_time = min(self.kill_time, kill_time)

    def _signal(self, number: int) -> None:
        if self.status is None:  # until it is reaped its number cannot be another's
            os.killpg(self.pid, number)

    def _refusal(self, error: Exception) -> str:
        why, field = getattr(error, "strerror", None) or error, getattr(error, "filename", None) or "command"
        if field == RUN_AS:
            return f"cannot be kept apart from other users: {why}; see run_as of the site"
        what = self.spec["cwd"] if field == "workingDir" else self.spec["command"][0]
        return f"cannot run {what[:LONGEST]!r}: {why}; correct {field} of the job"

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
            "ended_at": self.started_at + (self.ended - self.started),
        }
        self.exit.write(exit_)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def boottime() -> float:
    """Seconds since the machine booted, whatever anybody sets the wall's clock to."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def join(cgroup: str) -> None:
    """Move this process to a cgroup of its own."""
    os.makedirs(cgroup, exist_ok=True)
    with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def keep_only(*kept: int) -> None:
    """Close what is open, but for the standard streams and these."""
    low = 2
    for high in (*sorted(kept), 1 << 16):
        os.closerange(low + 1, high)
        low = high


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
    keep_only(LOCK_FD)  # whatever else the scheduler left open is not ours to hold
    before = os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKERS)
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    Supervisor(sys.argv[1]).run(before)
