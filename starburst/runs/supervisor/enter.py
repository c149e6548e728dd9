"""Runs a command beside a task of this machine: in its namespaces, with its environment and account.

The command joins the control group of the task and carries its mark, so that it ends with the run.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starburst.runs.supervisor import cgroups
from starburst.runs.supervisor.children import limit
from starburst.runs.supervisor.files import read_fact, try_lock
from starburst.runs.supervisor.seclusion import PR_SET_NO_NEW_PRIVS
from starburst.runs.supervisor.strays import mark_of

#: Kinds of namespaces in the order in which they are entered.
NAMESPACES = ("user", "ipc", "mnt", "pid")


class EnterError(Exception):
    """The task cannot be entered; the text is for people."""


@dataclass(frozen=True)  # Pythons of machines have no slots
class Inside:
    """What a command in a task needs to know of its main process."""

    pid: int
    env: dict[str, str]
    uid: int
    gid: int
    groups: tuple[int, ...]
    no_new_privs: bool

    @classmethod
    def of(cls, pid: int) -> Inside:
        """Read it of a process.

        Raises:
            OSError: the process is gone, or this user may not look at it.
        """
        proc = Path("/proc") / str(pid)
        status = dict(
            line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line
        )
        pairs = (os.fsdecode(each).partition("=") for each in (proc / "environ").read_bytes().split(b"\0"))
        return cls(
            pid,
            {name: value for name, _, value in pairs if name},
            int(status["Uid"].split()[1]),
            int(status["Gid"].split()[1]),
            tuple(map(int, status["Groups"].split())),
            status["NoNewPrivs"].strip() == "1",
        )


def enter(task: Path, command: Sequence[str]) -> int:
    """Run a command in the task of a directory, on this terminal.

    The exit code is the command's, or 128 and the number if a signal ended it.

    Raises:
        EnterError: the task does not run, or this user may not enter it.
    """
    try:
        inside = Inside.of(_main_process(task))
    except (OSError, KeyError, ValueError) as error:
        raise EnterError(f"its process cannot be looked at: {error}") from None
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _run(task, inside, command, told)
    os.close(told)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    try:
        with open(heard, "rb") as answer:
            problem = answer.read().decode()
        status = os.waitpid(child, 0)[1]
    finally:
        signal.signal(signal.SIGINT, before)
    if problem:
        raise EnterError(problem)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _main_process(task: Path) -> int:
    """The process of the task's command; of a task that is kept apart, behind its stand-in and init."""
    pid = (read_fact(task / "started.json") or {}).get("job")
    if type(pid) is not int or pid < 2 or not _is_held(task / "lock"):
        raise EnterError("it does not run now")
    for _ in range(2 if (read_fact(task / "spec.json", 1 << 24) or {}).get("seclusion") else 0):
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def _is_held(lock: Path) -> bool:
    """Whether the task's supervisor lives and holds its lock."""
    file = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return not try_lock(file)
    finally:
        os.close(file)


def _run(task: Path, inside: Inside, command: Sequence[str], told: int) -> None:
    """In a child: enter the namespaces, and run the command in a child of that; never returns.

    What goes wrong before the command runs is written to `told`, which closes when it runs.
    """
    code = 127
    try:
        spec = read_fact(task / "spec.json", 1 << 24) or {}
        if spec.get("cgroup"):
            with suppress(OSError):
                cgroups.join(spec["cgroup"])
        limit(spec.get("limits", {}))
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(str(task)),) * 2)
        folder = os.open(f"/proc/{inside.pid}/cwd", os.O_PATH | os.O_CLOEXEC)
        _enter_namespaces(inside.pid)
        main = os.fork()  # only a child is in the namespace of processes
        if main == 0:
            os.fchdir(folder)
            _take_rights(inside)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvpe(command[0], list(command), {**inside.env, **_terminal()})
        os.close(told)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = os.waitstatus_to_exitcode(os.waitpid(main, 0)[1])
        code = 128 - status if status < 0 else status
    except OSError as error:
        with suppress(OSError):
            os.write(told, f"{command[0]}: {error.strerror or error}".encode()[:4000])
    finally:
        os._exit(code)


def _terminal() -> dict[str, str]:
    """What a command needs to know of this terminal."""
    return {name: os.environ[name] for name in ("TERM", "COLORTERM") if name in os.environ}


def _enter_namespaces(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    ours = {kind: os.stat(f"/proc/self/ns/{kind}").st_ino for kind in NAMESPACES}
    theirs = {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in NAMESPACES}
    for kind, file in theirs.items():
        if os.fstat(file).st_ino != ours[kind] and libc.setns(file, 0):
            number = ctypes.get_errno()
            raise OSError(number, f"its {kind} namespace cannot be entered: {os.strerror(number)}")


def _take_rights(inside: Inside) -> None:
    if os.geteuid() == 0 and inside.uid != 0:
        os.setgroups(inside.groups)
        os.setresgid(*(inside.gid,) * 3)
        os.setresuid(*(inside.uid,) * 3)
    if inside.no_new_privs:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
