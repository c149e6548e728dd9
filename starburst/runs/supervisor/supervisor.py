"""Runs the command of one rank directory to its end and writes how it ended.

The process outlives the scheduler. It holds the directory's `lock`, an flock inherited as LOCK_FD, for as
long as it lives: a held lock is how a restarted scheduler knows that the task is alive. It runs the command
of `spec.json`, writes `started.json` once that runs, and `exit.json` once nothing of the task is alive. It
ends the task when `stop.json` asks for it (a SIGTERM makes it look), at the time limit, and when the lease of
a rented machine has passed.

The blocks of both files are reserved before the command runs, so that a full disk loses no exit. What cannot
be written all the same is retried without end, with the lock held: until then the task cannot start twice.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from starburst.runs.supervisor import cgroups, line_times, seclusion
from starburst.runs.supervisor.children import (
    LOCK_FD,
    become_subreaper,
    die_with,
    end_children,
    keep_only,
    limit,
)
from starburst.runs.supervisor.exits import (
    ITSELF,
    LEASE,
    LOSS,
    OUT_OF_MEMORY,
    REFUSAL,
    STOP,
    TIME_LIMIT,
    VERDICT,
    Exit,
    message_of,
)
from starburst.runs.supervisor.file_owner import act_as_oneself, act_as_owner_of
from starburst.runs.supervisor.files import FULL_DISK, PASSING_ERRORS, ReservedFile, read_json
from starburst.runs.supervisor.lease import LEASE_GRACE_S, boottime, lease_left_s
from starburst.runs.supervisor.log_pump import LogPump
from starburst.runs.supervisor.shutdown import Shutdown
from starburst.runs.supervisor.strays import mark_of

#: Signals that end a wait; blocked, so that none is lost between two waits.
WAKERS = {signal.SIGTERM, signal.SIGCHLD}
#: What the task is not to find ignored: by Python, by `supervise`, by a shell that had us in the background.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
#: Seconds between two looks: at the lease, and without one.
LEASE_LOOK_S, IDLE_S = 1.0, 60.0
#: The message of a task that ended with its machine.
SHUT_DOWN = "the system of its machine ended it, as in a shutdown"
#: Characters of an error or a path that a message holds.
MAX_TEXT = 500


def supervise(directory: str) -> None:
    """Run the task of a rank directory to its end, as the main function of this process."""
    keep_only(LOCK_FD)  # the scheduler's other files are not the task's
    act_as_owner_of(directory)
    umask = os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKERS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a session that ends sends it: the task keeps its grace
    Supervisor(directory).run(umask)


class Supervisor:
    """Runs the command of one rank directory to its end. Times are monotonic seconds unless named `_at`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.spec = read_json(self._path("spec.json"))
        self.spec["env"].update(self._secrets())
        self.pid = 0
        self.status: int | None = None  # of the main process, once it has ended
        self.ended_by = ITSELF
        self.started = self.ended = boottime()
        self.kill_time = math.inf
        self.shutdown = Shutdown()
        limit_s = self.spec["time_limit_s"]
        self.limit_time = math.inf if limit_s is None else time.monotonic() + limit_s
        self.exit = ReservedFile(self._path("exit.json"))

    def run(self, umask: int) -> None:
        """Start the task with this umask, wait, clear up, and write `exit.json`.

        Raises:
            OSError: the machine is short of something for the moment; no exit is written.
        """
        if self._stop_asked() is not None:
            self.ended_by = STOP
            self._write_exit(None, "stopped before it began")
            return
        started = ReservedFile(self._path("started.json"))
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
        code = os.waitstatus_to_exitcode(self._supervise())
        shut_down = self.shutdown.explains(code) and self._stop_asked() is None
        memory = self._memory_message()
        self._clear_up()
        if log is not None:
            log.end()
        message = self._message() or self._verdict() or memory
        if shut_down and self.ended_by in (ITSELF, REFUSAL):
            self.ended_by, message = LOSS, SHUT_DOWN
        self._write_exit(code, message)

    def _clear_up(self) -> None:
        """End what is left of the task."""
        end_children()
        if self.spec.get("cgroup"):
            cgroups.remove(self.spec["cgroup"])

    def _secrets(self) -> dict[str, str]:
        """Variables with values of Secrets, whose file is removed: no other file has them.

        A container's are not for the command that makes it, which reads that file itself.
        """
        if self.spec.get("docker"):
            return {}
        secrets: dict[str, str] = read_json(self._path("secrets.json")) or {}
        if secrets:
            os.unlink(self._path("secrets.json"))
        return secrets

    def _log(self) -> LogPump | None:
        """The pump that bounds the log, if its bound is known."""
        max_bytes = self.spec.get("max_log")
        return None if max_bytes is None else LogPump(1, max_bytes, self._path(line_times.NAME))

    def _spawn(self, umask: int, log: LogPump | None) -> None:
        """Start the command in a child, which reports by a pipe if that fails; exec closes the pipe.

        Raises:
            OSError, ValueError: the command cannot be started; `filename` is the field of the job at fault.
        """
        become_subreaper()
        heard, told = os.pipe()
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become_job(supervisor, umask, log, told)
            except BaseException as error:
                number, why = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
                problem = [number, why[:MAX_TEXT], getattr(error, "filename", None)]
                os.write(told, json.dumps(problem).encode())
            finally:
                os._exit(127)
        os.close(told)
        with open(heard, "rb") as answer:
            problem = json.loads(answer.read() or b"null")
        if problem is not None:
            number, why, field = problem
            raise ValueError(why) if number is None else OSError(number, why, field)

    def _become_job(self, supervisor: int, umask: int, log: LogPump | None, told: int) -> None:
        """In the child: set session, marks, output, seclusion, limits and signals; then run the command."""
        os.setsid()
        act_as_oneself()
        die_with(supervisor)  # after that, for it undoes this
        with suppress(ValueError, OSError):  # a lower limit was set
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(self.directory),) * 2)
        limit(self.spec.get("limits", {}))  # before seclusion, which takes the right to raise them
        if self.spec.get("cgroup"):
            with suppress(OSError):  # the limit marks it all the same
                cgroups.join(self.spec["cgroup"])
        if log is not None:
            log.redirect()
        if self.spec.get("seclusion"):
            seclusion.enter(self.spec["seclusion"])
        keep_only(told)
        os.umask(self.spec.get("umask", umask))
        if self.spec.get("open_files") is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.spec["open_files"], hard), hard))
        for number in IGNORED:
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
        """The wait status of the main process; after a stop its children, too, have the grace to end in."""
        while True:
            alone = self._reap()
            now = time.monotonic()
            if self.status is not None and (alone or self.kill_time == math.inf or now >= self.kill_time):
                return self.status
            self._look(now)
            times = [at - now for at in (self.kill_time, self.limit_time) if at > now]
            look_s = LEASE_LOOK_S if self.spec["lease"] else IDLE_S
            self.shutdown.wait(WAKERS, min([*times, look_s]))

    def _reap(self) -> bool:
        """Reap ended children, orphans of the task included; whether no child is left."""
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
        """End the task if there is a reason to."""
        stop = self._stop_asked()
        if stop is not None:
            self._end(STOP, now + stop["grace_s"])
        if self.shutdown.heard:
            self._end(LOSS, now + self.spec["grace_s"])
        if now >= self.limit_time:
            self._end(TIME_LIMIT, now + self.spec["grace_s"])
        if self.spec["lease"] and self._lease_passed():
            self._end(LEASE, now + min(self.spec["grace_s"], LEASE_GRACE_S))
        if now >= self.kill_time:
            self._signal(signal.SIGKILL)

    def _stop_asked(self) -> Any:
        return read_json(self._path("stop.json"))

    def _lease_passed(self) -> bool:
        try:
            return lease_left_s(read_json(self.spec["lease"])) <= 0
        except OSError as error:  # a shortage says nothing about the lease
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
        if self.status is None:  # not reaped yet, so the number is still its own
            os.killpg(self.pid, number)

    def _refusal(self, error: Exception) -> str:
        why, field = getattr(error, "strerror", None) or error, getattr(error, "filename", None) or "command"
        if field == seclusion.RUN_AS:
            return f"cannot be kept apart from other users: {why}; see run_as of the site"
        what = self.spec["cwd"] if field == "workingDir" else self.spec["command"][0]
        return f"cannot run {what[:MAX_TEXT]!r}: {why}; correct {field} of the job"

    def _message(self) -> str:
        if self.ended_by == TIME_LIMIT:
            return f"ran into its time limit of {self.spec['time_limit_s']:g} s"
        if self.ended_by == LOSS:
            return SHUT_DOWN
        return "the lease of its machine passed" if self.ended_by == LEASE else ""

    def _memory_message(self) -> str:
        """That a process was killed for want of memory, if that is what ended the command."""
        group = self.spec.get("cgroup")
        failed = self.status != 0 and self.ended_by == ITSELF
        return f"{OUT_OF_MEMORY} memory" if failed and group and cgroups.ran_out_of_memory(group) else ""

    def _verdict(self) -> str:
        """What the command of a container says of its end, which is then not its own; "" if nothing."""
        said = read_json(self._path(VERDICT)) if self.spec.get("docker") else None
        if said is None or self.ended_by != ITSELF:
            return ""
        self.ended_by = said["ended_by"] or ITSELF
        return str(said["message"])

    def _write_exit(self, code: int | None, message: str) -> None:
        """`code` is negative for a signal, as Python has it; the file has it as shells do.

        Its times are those of the wall's clock as it is now: one that was set since the start tells no other
        end, nor another duration.
        """
        killed = code is not None and code < 0
        epoch = time.time() - boottime()
        exit_ = Exit(
            exit_code=128 - code if code is not None and killed else code,
            signal=-code if code is not None and killed else None,
            ended_by=self.ended_by,
            message=message_of(message),
            started_at=epoch + self.started,
            ended_at=epoch + self.ended,
        )
        self.exit.write(asdict(exit_))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
