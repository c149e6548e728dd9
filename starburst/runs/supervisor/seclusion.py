"""Keeps a task apart from other users' runs and from the scheduler, by namespaces of the kernel.

The process that becomes the task sees the home as an empty directory with nothing but the task's own
directories in it, and no process but those of the task. It has the rights of another account, or, where the
scheduler is not root, of the scheduler's own account without its privileges. Two processes stay between the
supervisor and the task: a stand-in, which ends as the task ends, and the init process of the PID namespace,
with which the kernel kills everything in the namespace.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
from contextlib import suppress
from typing import Any

from starburst.runs.supervisor.children import LOCK_FD, PR_SET_PDEATHSIG, keep_only
from starburst.runs.supervisor.file_owner import hand_over

#: What an error of `enter` names in place of a file.
RUN_AS = "run_as"

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x08000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)

#: Where programs of the machine have their sockets, and how names of container engines begin there.
SOCKETS = ("/run", "/var/run")
ENGINES = (
    "buildkit",
    "containerd",
    "containers",
    "cri-",
    "crio",
    "docker",
    "k3s",
    "libpod",
    "podman",
    "runc",
)
#: POSIX shared memory: files that outlive whoever made them.
SHARED_MEMORY = "/dev/shm"


def engine_sockets() -> list[list[Any]]:
    """What a task is to be `without`: sockets of container engines, whose users are root."""
    places = dict.fromkeys(map(os.path.realpath, SOCKETS))
    return [[place, ENGINES] for place in places if os.path.isdir(place)]


def shared_memory() -> list[str]:
    """Places of a task's own `memory`, which goes with it."""
    return [SHARED_MEMORY] if os.path.isdir(SHARED_MEMORY) else []


def enter(plan: dict[str, Any]) -> None:
    """In a child of the supervisor: return in the process that becomes the task, with its rights and view.

    `plan` comes from `accounts.py`: `uid`, `gid`, `groups` (a `uid` of None: this account, in a user
    namespace), `own` (directories to be made for it), `hide`, `keep` (exceptions from `hide`), `private`
    (pairs of a directory and the one to be mounted over it) and perhaps `memory` (directories over which
    memory of the task's own is mounted), `without` (pairs of a directory and the beginnings of names in it
    that are not to be seen) and `mounts` (pairs of a place, which need not exist, and what is mounted there
    read-only; outer places first).

    Raises:
        OSError: the kernel refuses; its filename is RUN_AS.
    """
    try:
        for path in plan["own"]:
            hand_over(path, plan["uid"], plan["gid"])
        if plan["uid"] is None:
            _enter_user_namespace()
        _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC), "namespaces")
        _see_only(plan)
        say = _fork_init()
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        _fork_task(say)
        _take_rights(plan)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise OSError(error.errno, f"{error.strerror}{where}", RUN_AS) from None


def attempt(plan: str) -> None:
    """Try a plan (JSON), as the main function of a process: exit with 0 if it can be entered."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        enter(json.loads(plan))
    except OSError as error:
        os.write(2, f"{error.strerror}".encode())
        os._exit(1)
    os._exit(0)


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(CLONE_NEWUSER), "a user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _see_only(plan: dict[str, Any]) -> None:
    """Mount over what is to be hidden, and mount what is kept into it."""
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in plan["keep"]}
    lain = {path: os.open(instead, os.O_PATH | os.O_CLOEXEC) for path, instead in plan["private"]}
    mounts = [(place, os.open(what, os.O_PATH | os.O_CLOEXEC)) for place, what in plan.get("mounts", ())]
    before = os.umask(0o066)
    for path, folder in lain.items():
        _mount(f"/proc/self/fd/{folder}", path, None, MS_BIND | MS_REC)
    for path in plan.get("memory", ()):
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for path, beginnings in plan.get("without", ()):
        _leave_out(path, tuple(beginnings))
    for path in plan["hide"]:
        os.makedirs(path, exist_ok=True)  # what is mounted above it may be empty
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=711,size=1m")
    for path, folder in kept.items():
        os.makedirs(path, exist_ok=True)
        _mount(f"/proc/self/fd/{folder}", path, None, MS_BIND | MS_REC)
    for place, what in mounts:
        _make_mount_point(plan, place, stat.S_ISDIR(os.fstat(what).st_mode))
        _mount(f"/proc/self/fd/{what}", place, None, MS_BIND)
    without = [path for path, _ in plan.get("without", ())]
    for path in (*plan["hide"], *without, *(place for place, _ in mounts)):
        _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.umask(before)


def _leave_out(directory: str, beginnings: tuple[str, ...]) -> None:
    """Mount an empty directory over one, and into it what is there now, but for names that begin so.

    So a socket that is made anew is not seen, either. What cannot be mounted there is left out.
    """
    kept, flags = {}, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    for name in os.listdir(directory):
        if not name.startswith(beginnings):
            with suppress(FileNotFoundError):  # removed meanwhile
                kept[name] = os.open(os.path.join(directory, name), flags)
    _mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    for name, handle in kept.items():
        place, kind = os.path.join(directory, name), os.fstat(handle).st_mode
        with suppress(OSError):
            if stat.S_ISLNK(kind):
                os.symlink(os.readlink("", dir_fd=handle), place)
                continue
            if stat.S_ISDIR(kind):
                os.mkdir(place)
            else:
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))
            _mount(f"/proc/self/fd/{handle}", place, None, MS_BIND | MS_REC)


def _make_mount_point(plan: dict[str, Any], place: str, is_directory: bool) -> None:
    """Have something to mount on, which nobody else sees where the task could not have made it itself.

    A name in / is made there, for what is mounted below it would be lost beneath an overlay.
    """
    if os.path.lexists(place):
        return
    above = os.path.dirname(place)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    real = os.path.realpath(above)
    emptied = [path for path, _ in plan.get("without", ())]  # what was there before is mounted in it again
    is_ours = _is_within(real, [*plan["hide"], *(path for path, _ in plan["private"])]) or any(
        _is_within(real, [path]) and os.stat(real).st_dev == os.stat(path).st_dev for path in emptied
    )
    if above != "/" and not os.stat(above).st_mode & stat.S_IWOTH and not is_ours:
        layers = os.path.join(plan["hide"][0], f".{place.replace('/', '-')}")
        upper, work = os.path.join(layers, "upper"), os.path.join(layers, "work")
        os.makedirs(upper)
        os.makedirs(work)
        os.chmod(upper, stat.S_IMODE(os.stat(above).st_mode))
        _mount("overlay", above, "overlay", 0, f"lowerdir={above},upperdir={upper},workdir={work}")
    os.makedirs(place if is_directory else os.path.dirname(place), exist_ok=True)
    if not is_directory:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))


def _is_within(path: str, roots: list[str]) -> bool:
    return any(os.path.commonpath([path, root]) == root for root in roots)


def _fork_init() -> int:
    """Fork the init process of the new namespace; the parent stays as a stand-in and ends as the task does.

    Returns, in the child, the descriptor to which the task's wait status is to be written.
    """
    heard, say = os.pipe()
    first = os.fork()
    if first == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return say
    keep_only(LOCK_FD, heard)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of rights has undone
    text = os.read(heard, 32)
    os.waitpid(first, 0)
    _end_like(int(text or signal.SIGKILL))
    raise AssertionError("unreachable")


def _end_like(status: int) -> None:
    """End this process in the way that a wait status describes."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _fork_task(say: int) -> None:
    """Fork the task; the parent stays as init, reaps orphans, and ends when the task has.

    It passes on a SIGTERM, which only the supervisor can send it; then the task's children have grace, too.
    """
    main = os.fork()
    with suppress(PermissionError):  # both do it, so that it is done when either goes on
        os.setpgid(main, main)
    if main == 0:
        os.close(say)
        return
    keep_only(LOCK_FD, say)
    status, ending = None, False
    while True:
        pid, ended = -1, 0
        while pid:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == main:
                status = ended
        if status is not None and (pid != 0 or not ending):
            os.write(say, str(status).encode())
            os._exit(0)
        if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGTERM:
            ending = True
            with suppress(ProcessLookupError):
                os.killpg(main, signal.SIGTERM)


def _take_rights(plan: dict[str, Any]) -> None:
    if plan["uid"] is not None:
        for stream in (1, 2):  # so that the task can open /dev/stdout
            if stat.S_ISFIFO(os.fstat(stream).st_mode):
                os.fchown(stream, plan["uid"], -1)
        os.setgroups(plan["groups"])
        os.setresgid(*(plan["gid"],) * 3)
        os.setresuid(*(plan["uid"],) * 3)
    if plan["no_new_privs"]:
        _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(_libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
